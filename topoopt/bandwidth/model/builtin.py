"""Built-in workloads, worked out from public model parameters at full depth.

Collectives follow Megatron-LM: in each half of a transformer block the activations are
AllReduced once forward and once backward over the tensor-parallel group, and gradients over
the data-parallel one. Compute is FLOPs over a fraction of the accelerator's peak.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from codesign_base import InputError
from codesign_base.arguments import check_kind, whole
from codesign_base.counted import counted
from parallelism.models import get_model
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import Layout
from parallelism.transformers.presets import get_transformer
from topoopt.bandwidth.model.collectives import Collective
from topoopt.bandwidth.model.from_model import ACCELERATOR, model_workload
from topoopt.bandwidth.model.workload import Layer, LayerPhase, LayerWorkload

EFFICIENCY = 0.6  # of peak FLOP/s, as the roofline's default
MEMORY_EFFICIENCY = 0.8
_SINGLE = 4  # bytes of an element


def _replica(tensor: int, sequences: int) -> Layout:
    """Return the layout of one replica that passes through at once, with AllReduces."""
    return Layout(tensor, microbatch=sequences, sequence_parallel=False)


def _published() -> Mapping[str, tuple[Transformer, Layout]]:
    models = {
        "turing-nlg": (
            get_transformer(
                "turing-nlg-17b",
                source="Microsoft Research, Turing-NLG: A 17-billion-parameter language model, "
                "2020",
            ),
            _replica(1, 8),
        ),
        "gpt-3": (get_transformer("gpt3-175b"), _replica(16, 16)),
        # As deep and wide as Megatron's model of this size, whose heads stand in for its own;
        # they do not enter here.
        "msft-1t": (
            get_transformer(
                "megatron-1t", vocabulary=50257, sequence=1024, positions=1024,
                source="Rajbhandari et al., ZeRO-Infinity, SC 2021, table 1 (1 T parameters)",
            ),
            _replica(128, 8),
        ),
    }  # fmt: skip
    return {name: (replace(model, name=name), layout) for name, (model, layout) in models.items()}


PUBLISHED_WORKLOADS = MappingProxyType(_published())
"""LIBRA's transformers by name, and the layout of one replica: its tensor group and sequences."""

DLRM_SOURCE = (
    "Naumov et al., Deep Learning Recommendation Model, 2019, with the widths of MLPerf "
    "Training for the Criteo Terabyte data set"
)
WORKLOAD_NAMES = (*PUBLISHED_WORKLOADS, "dlrm", "resnet-50")


def builtin_workload(name: str, tensor: int | None = None) -> LayerWorkload:
    """Return a built-in workload.

    Parameters
    ----------
    name : str
        ``turing-nlg``, ``gpt-3``, ``msft-1t``, ``dlrm`` or ``resnet-50``.
    tensor : int, optional
        NPUs of a tensor-parallel group (transformers only); the model's own by default.

    Returns
    -------
    LayerWorkload

    Raises
    ------
    InputError
        If the name is unknown, the group is below 1, or the model has no tensor parallelism.
    """
    check_kind("workload", name, str, f"one of {', '.join(WORKLOAD_NAMES)}")
    remedy = "a whole number of at least 1"
    if tensor is not None and whole("tensor parallelism", tensor, remedy) < 1:
        raise InputError(f"workload {name!r}: tensor parallelism is {tensor}; give at least 1")
    if name in PUBLISHED_WORKLOADS:
        model, layout = PUBLISHED_WORKLOADS[name]
        layout = _replica(tensor or layout.tensor, layout.microbatch)
        return transformer_workload(model, layout, layout.microbatch)
    if name == "dlrm":
        if tensor not in (None, 1):
            raise InputError(
                f"workload 'dlrm' shards its tables over all NPUs; tensor parallelism {tensor} "
                "does not apply to it, leave it out"
            )
        return dlrm_workload()
    if name == "resnet-50":
        made = model_workload(get_model("resnet50-imagenet"), tensor or 1)
        return LayerWorkload(name, made.layers, made.notes, made.tensor, made.everywhere)
    raise InputError(f"unknown workload {name!r}; known: {', '.join(WORKLOAD_NAMES)}")


def matrix_parameters(model: Transformer) -> tuple[float, float]:
    """Return the matrices' parameters of attention and of the feed-forward part of a layer.

    Without biases and norms, as LIBRA counts; dense layers of grouped-query attention only.
    """
    attention = model.attention
    projections = attention.query_width + 2 * attention.kv_heads * attention.head_width
    halves = model.hidden * (projections + attention.value_width)
    return float(halves), float((3 if model.gated else 2) * model.hidden * model.feed_forward)


def transformer_workload(model: Transformer, layout: Layout, batch: int) -> LayerWorkload:
    """Return one iteration of a stage of a transformer, on one NPU of a replica.

    Parameters
    ----------
    model : Transformer
        With dense layers of grouped-query attention.
    layout : Layout
        Its tensor groups AllReduce activations; stages hold equally many layers.
    batch : int
        Sequences of the replica in an iteration.

    Returns
    -------
    LayerWorkload
        Two layers a block and the output projection; without stages, the token embedding, too.

    References
    ----------
    Shoeybi et al., Megatron-LM, 2019, section 3 (collectives); Narayanan et al., Efficient
    Large-Scale Language Model Training, SC 2021, section 3 (FLOPs).
    """
    rate = ACCELERATOR.bf16_flops * EFFICIENCY * layout.tensor
    tokens = float(batch * model.sequence)
    activations = tokens * model.hidden * model.dense_bytes
    reduce = Collective.ALL_REDUCE

    def layer(name: str, parameters: float, scores: float, both: bool = True) -> Layer:
        # Scores multiply activations by activations: both gradients are input gradients.
        product = 2.0 * tokens * parameters
        return Layer(
            name,
            LayerPhase((product + scores) / rate, *((reduce, activations) if both else ())),
            LayerPhase((product + 2.0 * scores) / rate, reduce, activations),
            LayerPhase(product / rate, reduce, parameters * model.dense_bytes / layout.tensor),
        )

    layers = []
    if layout.pipeline == 1:
        lookup = activations / (ACCELERATOR.memory_bandwidth * MEMORY_EFFICIENCY)
        looked_up = LayerPhase(lookup, reduce, activations)
        layers.append(Layer("embedding", looked_up, LayerPhase(0.0), LayerPhase(lookup)))
    attention, feed_forward = matrix_parameters(model)
    scores = 4.0 * tokens * model.sequence * model.attention.query_width
    for block in range(model.layers // layout.pipeline):
        layers.append(layer(f"block_{block}_attention", attention, scores))
        layers.append(layer(f"block_{block}_mlp", feed_forward, 0.0))
    # The output projection shares the embedding's weights and has no forward AllReduce.
    layers.append(layer("logits", float(model.vocabulary) * model.hidden, 0.0, both=False))
    return LayerWorkload(
        model.name,
        tuple(layers),
        (
            f"{model.name}: {counted(model.layers, 'block')} of {model.hidden}, sequence "
            f"{model.sequence} ({model.source}); {counted(batch, 'sequence')} a replica over "
            f"{layout.tensor} tensor-parallel NPUs, 2-byte elements, {EFFICIENCY:g} of the peak "
            f"of {ACCELERATOR.name}",
        ),
        layout.tensor,
    )


def dlrm_workload() -> LayerWorkload:
    """Return DLRM: tables sharded over all NPUs, MLPs data-parallel.

    Returns
    -------
    LayerWorkload
        512 samples an NPU; 26 tables of width 128; bottom MLP 13-512-256-128, top MLP
        479-1024-1024-512-256-1.
    """
    batch = 512
    rate = ACCELERATOR.tf32_flops * EFFICIENCY
    memory = ACCELERATOR.memory_bandwidth * MEMORY_EFFICIENCY
    tables, width = 26, 128
    vectors = float(batch * tables * width * _SINGLE)
    exchange = Collective.ALL_TO_ALL
    layers = [
        Layer(
            "embedding",
            LayerPhase(2.0 * vectors / memory, exchange, vectors),
            LayerPhase(0.0, exchange, vectors),
            LayerPhase(3.0 * vectors / memory),
        )
    ]

    def dense(name: str, inner: int, outer: int) -> Layer:
        parameters = inner * outer + outer
        traffic = (batch * (inner + outer) + parameters) * _SINGLE / memory
        time = max(2.0 * batch * inner * outer / rate, traffic)
        size = float(parameters * _SINGLE)
        return Layer(
            name, LayerPhase(time), LayerPhase(time), LayerPhase(time, Collective.ALL_REDUCE, size)
        )

    for name, widths in (
        ("bottom", (13, 512, 256, 128)),
        ("top", (479, 1024, 1024, 512, 256, 1)),
    ):
        layers += [
            dense(f"{name}_{at}", widths[at], widths[at + 1]) for at in range(len(widths) - 1)
        ]
    return LayerWorkload(
        "dlrm",
        tuple(layers),
        (
            f"dlrm: {tables} tables of width {width} ({DLRM_SOURCE}); {counted(batch, 'sample')} "
            f"an NPU, 4-byte elements, {EFFICIENCY:g} of the TF32 peak and {MEMORY_EFFICIENCY:g} "
            f"of the memory bandwidth of {ACCELERATOR.name}; the feature interaction is not timed",
        ),
        1,
        ("embedding",),
    )
