"""Built-in workloads, worked out from public model parameters at full depth.

Collectives follow Megatron-LM: in each half of a transformer block the activations are
AllReduced once forward and once backward over the tensor-parallel group, and gradients over
the data-parallel one. Compute is FLOPs over a fraction of the accelerator's peak.
"""

from dataclasses import dataclass

from codesign_base import InputError
from parallelism.accelerators import Accelerator, get_accelerator
from topoopt.bandwidth.collectives import Collective
from topoopt.bandwidth.workload import Layer, Phase, Workload

EFFICIENCY = 0.6  # of peak FLOP/s, as the roofline's default
MEMORY_EFFICIENCY = 0.8
_HALF, _SINGLE = 2, 4  # bytes of an element


@dataclass(frozen=True)
class TransformerSpec:
    """A decoder-only transformer.

    Parameters
    ----------
    name : str
    source : str
        Where depth and widths are published.
    blocks, hidden, sequence, vocabulary : int
    batch : int
        Sequences of one replica in an iteration.
    tensor : int
        NPUs of one tensor-parallel group.
    """

    name: str
    source: str
    blocks: int
    hidden: int
    sequence: int
    vocabulary: int
    batch: int
    tensor: int


TRANSFORMERS = {
    spec.name: spec
    for spec in (
        TransformerSpec(
            "turing-nlg",
            "Microsoft Research, Turing-NLG: A 17-billion-parameter language model, 2020",
            78, 4256, 1024, 50257, 8, 1,
        ),
        TransformerSpec(
            "gpt-3",
            "Brown et al., Language Models are Few-Shot Learners, NeurIPS 2020, table 2.1",
            96, 12288, 2048, 50257, 16, 16,
        ),
        TransformerSpec(
            "msft-1t",
            "Rajbhandari et al., ZeRO-Infinity, SC 2021, table 1 (1 T parameters)",
            128, 25600, 1024, 50257, 8, 128,
        ),
    )
}  # fmt: skip

DLRM_SOURCE = (
    "Naumov et al., Deep Learning Recommendation Model, 2019, with the widths of MLPerf "
    "Training for the Criteo Terabyte data set"
)
NAMES = (*TRANSFORMERS, "dlrm", "resnet-50")


def builtin_workload(
    name: str,
    tensor: int | None = None,
    batch: int | None = None,
    device: str = "a100",
) -> Workload:
    """Return a built-in workload.

    Parameters
    ----------
    name : str
        ``turing-nlg``, ``gpt-3``, ``msft-1t``, ``dlrm`` or ``resnet-50``.
    tensor : int, optional
        NPUs of a tensor-parallel group (transformers only); the model's own by default.
    batch : int, optional
        Samples of one replica; the model's own by default.
    device : str, optional
        Accelerator that compute is timed on.

    Returns
    -------
    Workload

    Raises
    ------
    InputError
        If the name is unknown, a number is below 1, or the model has no tensor parallelism.
    """
    for what, value in (("tensor parallelism", tensor), ("batch", batch)):
        if value is not None and value < 1:
            raise InputError(f"workload {name!r}: {what} is {value}; give at least 1")
    accelerator = get_accelerator(device)
    if name in TRANSFORMERS:
        return transformer_workload(TRANSFORMERS[name], tensor, batch, accelerator)
    if name == "dlrm":
        if tensor not in (None, 1):
            raise InputError(
                f"workload 'dlrm' shards its tables over all NPUs; tensor parallelism {tensor} "
                "does not apply to it, leave it out"
            )
        return dlrm_workload(batch or 512, accelerator)
    if name == "resnet-50":
        from parallelism.models import get_model
        from topoopt.bandwidth.from_model import model_workload

        made = model_workload(get_model("resnet50-imagenet"), tensor or 1, batch, device)
        return Workload(name, made.layers, made.notes, made.tensor, made.everywhere)
    raise InputError(f"unknown workload {name!r}; known: {', '.join(NAMES)}")


def transformer_workload(
    spec: TransformerSpec,
    tensor: int | None = None,
    batch: int | None = None,
    accelerator: Accelerator | None = None,
) -> Workload:
    """Return one iteration of a transformer under tensor and data parallelism.

    Parameters
    ----------
    spec : TransformerSpec
    tensor, batch : int, optional
        Those of the specification by default.
    accelerator : Accelerator, optional
        A100 by default.

    Returns
    -------
    Workload
        Two layers a block, and the token embedding at both ends.

    References
    ----------
    Shoeybi et al., Megatron-LM, 2019, section 3 (collectives); Narayanan et al., Efficient
    Large-Scale Language Model Training, SC 2021, section 3 (FLOPs).
    """
    degree, sequences = tensor or spec.tensor, batch or spec.batch
    device = accelerator or get_accelerator("a100")
    rate = device.bf16_flops * EFFICIENCY * degree
    tokens = float(sequences * spec.sequence)
    h = float(spec.hidden)
    activations = tokens * h * _HALF
    reduce = Collective.ALL_REDUCE

    def layer(name: str, parameters: float, scores: float, both: bool = True) -> Layer:
        # Scores multiply activations by activations: both gradients are input gradients.
        product = 2.0 * tokens * parameters
        return Layer(
            name,
            Phase((product + scores) / rate, *((reduce, activations) if both else ())),
            Phase((product + 2.0 * scores) / rate, reduce, activations),
            Phase(product / rate, reduce, parameters * _HALF / degree),
        )

    table = float(spec.vocabulary) * h
    lookup = activations / (device.memory_bandwidth * MEMORY_EFFICIENCY)
    layers = [Layer("embedding", Phase(lookup, reduce, activations), Phase(0.0), Phase(lookup))]
    for block in range(spec.blocks):
        scores = 4.0 * tokens * spec.sequence * h
        layers.append(layer(f"block_{block}_attention", 4.0 * h * h, scores))
        layers.append(layer(f"block_{block}_mlp", 8.0 * h * h, 0.0))
    # The output projection shares the embedding's weights and has no forward AllReduce.
    layers.append(layer("logits", table, 0.0, both=False))
    return Workload(
        spec.name,
        tuple(layers),
        (
            f"{spec.name}: {spec.blocks} blocks of {spec.hidden}, sequence {spec.sequence} "
            f"({spec.source}); {sequences} sequences a replica over {degree} tensor-parallel "
            f"NPUs, 2-byte elements, {EFFICIENCY:g} of the peak of {device.name}",
        ),
        degree,
    )


def dlrm_workload(batch: int, accelerator: Accelerator) -> Workload:
    """Return DLRM: tables sharded over all NPUs, MLPs data-parallel.

    Parameters
    ----------
    batch : int
        Samples of one NPU.
    accelerator : Accelerator

    Returns
    -------
    Workload
        26 tables of width 128; bottom MLP 13-512-256-128, top MLP 479-1024-1024-512-256-1.
    """
    rate = accelerator.tf32_flops * EFFICIENCY
    memory = accelerator.memory_bandwidth * MEMORY_EFFICIENCY
    tables, width = 26, 128
    vectors = float(batch * tables * width * _SINGLE)
    exchange = Collective.ALL_TO_ALL
    layers = [
        Layer(
            "embedding",
            Phase(2.0 * vectors / memory, exchange, vectors),
            Phase(0.0, exchange, vectors),
            Phase(3.0 * vectors / memory),
        )
    ]

    def dense(name: str, inner: int, outer: int) -> Layer:
        parameters = inner * outer + outer
        traffic = (batch * (inner + outer) + parameters) * _SINGLE / memory
        time = max(2.0 * batch * inner * outer / rate, traffic)
        size = float(parameters * _SINGLE)
        return Layer(name, Phase(time), Phase(time), Phase(time, Collective.ALL_REDUCE, size))

    for name, widths in (
        ("bottom", (13, 512, 256, 128)),
        ("top", (479, 1024, 1024, 512, 256, 1)),
    ):
        layers += [
            dense(f"{name}_{at}", widths[at], widths[at + 1]) for at in range(len(widths) - 1)
        ]
    return Workload(
        "dlrm",
        tuple(layers),
        (
            f"dlrm: {tables} tables of width {width} ({DLRM_SOURCE}); {batch} samples an NPU, "
            f"4-byte elements, {EFFICIENCY:g} of the TF32 peak and {MEMORY_EFFICIENCY:g} of the "
            f"memory bandwidth of {accelerator.name}; the feature interaction is not timed",
        ),
        1,
        ("embedding",),
    )
