"""Layouts in which models were trained by others, as far as they were published."""

from dataclasses import replace

from codesign_base import InputError
from parallelism.transformers.choices import LayoutSpace
from parallelism.transformers.layout import USUAL_MODULES, Layout
from parallelism.transformers.shares import check_layout, rank_tokens, shares_out

DGX = "NVIDIA/dgxc-benchmarking on GitHub"
_BRIDGE = "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md"


def _interleaved(tensor: int, context: int, pipeline: int, virtual: int) -> Layout:
    return Layout(
        tensor, context, 1, pipeline, schedule="interleaved", virtual_stages=virtual,
    )  # fmt: skip


_DEEPSEEK = Layout(tensor=2, data=32, pipeline=8, expert=64, expert_tensor=1)

PUBLISHED: dict[str, tuple[tuple[Layout, str], ...]] = {
    "gpt3-175b": (
        (_interleaved(4, 1, 8, 12), f"{DGX}, nemo_megatron/README_175b.md, 128 to 2,048 H100"),
    ),
    "llama3-70b": (
        (_interleaved(4, 2, 4, 5), f"{DGX}, llama3.1/README_70b.md, 64 to 2,048 H100"),
        (_interleaved(4, 1, 8, 5), f"{_BRIDGE}, 64 H100"),
    ),
    "llama3.1-405b": (
        (_interleaved(8, 2, 9, 7), f"{DGX}, llama3.1/README_405b.md, 576 to 2,304 H100"),
        (_interleaved(8, 2, 8, 8), f"{_BRIDGE}, 1,024 H100"),
    ),
    "deepseek-v3": (
        (_DEEPSEEK, f"{DGX}, deepseek_v3/pretraining/README.md, 512 H100"),
        (replace(_DEEPSEEK, pipeline=16), f"{DGX}, deepseek_v3/pretraining/README.md, 1,024 H100"),
        (
            Layout(
                data=64, pipeline=16, expert=64, sequence_parallel=False, recompute="modules",
                modules=USUAL_MODULES,
            ),
            "DeepSeek-V3, arXiv 2412.19437, sections 3.2 and 3.4, 2,048 H800 (DualPipe there)",
        ),
    ),
}  # fmt: skip
"""By preset: layouts with a source each. Data-parallel degrees are those of the job's GPUs; what a
source does not say of recomputation and sharding is none, and ZeRO 1."""


def published_layouts(space: LayoutSpace) -> tuple[Layout, ...]:
    """Return the published layouts of a preset that fill some GPUs.

    Parameters
    ----------
    space : LayoutSpace
        Of a model of `PUBLISHED` by its name. What was chosen otherwise than by default leaves
        out layouts with other values.

    Returns
    -------
    tuple of Layout
        None, where degrees, batch or layers do not divide.
    """
    model = space.model
    found = []
    for base, _ in PUBLISHED.get(model.name, ()):
        ranks = base.tensor * base.context * base.pipeline
        if space.gpus % ranks or space.gpus_per_server % base.tensor:
            continue
        if not space.choices.allows(base):
            continue
        try:
            layout = replace(base, data=space.gpus // ranks)
            check_layout(model, layout)
            tokens = rank_tokens(model, layout, space.sequence)
            count = layout.microbatches(space.batch)
        except InputError:
            continue
        if not shares_out(model, layout.tensor, tokens):
            continue
        if layout.schedule != "interleaved" or count % layout.pipeline == 0:
            found.append(layout)
    return tuple(found)
