"""Models as they are trained where a test says nothing else: by Megatron-Core, on own sequences."""

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.training import Training


def training_of(
    model: Transformer,
    layout: Layout,
    implementation: Implementation = MEGATRON_CORE,
    sequence: int | None = None,
) -> Training:
    """Return a model as it is trained in a layout, on samples of its own length by default."""
    return Training(model, layout, implementation, model.sequence if sequence is None else sequence)
