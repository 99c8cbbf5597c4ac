"""What an entry of a file of runs says: model, layouts, servers and seconds."""

from dataclasses import asdict, replace

from codesign_base import InputError
from parallelism.accelerators import Accelerator, get_accelerator, scale_up_of
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention, LatentAttention
from parallelism.transformers.costs import model_flops
from parallelism.transformers.experts import Experts
from parallelism.transformers.gpu import rates_like_h100
from parallelism.transformers.implementation import get_stack
from parallelism.transformers.layout import FOLDED, USUAL_MODULES, Layout, PipelineScheduleName
from parallelism.transformers.links import Links, switched_links
from parallelism.transformers.load import load_transformer
from parallelism.transformers.presets import TRANSFORMERS
from parallelism.transformers.shares import layer_kinds
from topoopt.studies.validation.published_run import PublishedRun
from topoopt.studies.validation.run_schema import (
    AcceleratorEntry,
    LayoutEntry,
    RunEntry,
    ShapeEntry,
)

_ALL_EXPERTS = 99
# Layers, width, heads and experts of released models that are no presets: Grok-1 and DBRX.
_RELEASED = (
    (64, 6144, 48, Experts(8, 2, 32768)),
    (40, 6144, 48, Experts(16, 4, 10752)),
)
# Runs on which numbers of rates or stacks were fitted, by name.
_FITTED = frozenset(
    [f"Llama3.1-8B {gpus}" for gpus in (8, 16, 32, 64, 128)]
    + [f"Llama3.1-70B {gpus}" for gpus in (64, 128, 256, 512, 1024, 2048)]
    + ["MCore 1.7B 48", "MCore 7.1B 96", "MCore 16B 192", "MCore 32B 384", "MCore 70B 768",
       "MCore 119B 1536", "MCore 177B 2304", "MCore 314B 3072", "MCore 462B 6144",
       "AutoModel Llama3-70B 64", "TorchTitan 8B FSDP 8", "TorchTitan 8B FSDP 128",
       "TorchTitan 8B FSDP8xTP8 64", "mpt-30b 512 h100",
       "mpt-30b 128 h100", "mpt-13b 512 h100", "mpt-13b 64 h100", "mpt-30b 8 a100",
       "mpt-13b 8 a100"]
)  # fmt: skip
# Sources whose runs of Megatron-Core were made by NeMo.
_SOFTWARE = {"dgxc-benchmarking": "nemo", "NVIDIA/NeMo": "nemo"}
_NEEDED = ("hidden", "ffn", "gated", "layers", "heads", "vocab")
_SHAPE = (*_NEEDED, "qw", "kvw", "moe", "experts", "latent")
_MEASURED = ("seconds", "tokens_per_second", "tokens_per_second_gpu", "tflops_gpu", "mfu")
# What a run's recipe may say other than its stack.
_RECIPE = ("attention", "gradient_bytes", "overlap_tensor", "fp8_scatter")
# Sources that print another GPU than their runs' ``accel``.
_HARDWARE = {"llama3_h100_202412": "h100-96gb", "asyncTP_llama3_h100": "h100-96gb"}


def published_run(entry: RunEntry, shapes: dict[str, ShapeEntry]) -> PublishedRun:
    """Return a run of a file as the validation of language models takes it.

    Parameters
    ----------
    entry : RunEntry
    shapes : dict of str to ShapeEntry
        Models that the file describes, by name.

    Raises
    ------
    InputError
        If model, layout, stack, accelerator or measured time are not possible or known.
    """
    model = _model(entry, shapes)
    layouts = tuple(_layout(entry, one, model) for one in entry.layouts)
    if not layouts:
        raise InputError("layouts is empty; give those that the source allows")
    if isinstance(entry.accel, str):
        name = entry.accel
        for source, printed in _HARDWARE.items():
            name = printed if source in entry.source else name
        accelerator, rates = get_accelerator(name), None
    else:
        name, accelerator = entry.accel.name, _accelerator(entry.accel)
        rates = rates_like_h100(accelerator)
    software = entry.software
    for source, printed in _SOFTWARE.items():
        software = printed if software == "megatron-core" and source in entry.source else software
    if software == "fsdp2" and model.experts is not None:
        software = "fsdp2-moe"
    stack = get_stack(software, precision=entry.precision, load_imbalance=entry.load_imbalance)
    recipe = {name: getattr(entry, name) for name in _RECIPE}
    stack = replace(stack, **{name: said for name, said in recipe.items() if said is not None})
    fitted = entry.name in _FITTED if entry.fitted is None else entry.fitted
    seconds, derived = _seconds(entry, model, accelerator)
    return PublishedRun(
        entry.name, entry.source, "fitted" if fitted else "held-out", model, layouts, entry.batch,
        entry.seq, seconds, name, _links(entry, accelerator), stack, derived, rates,
    )  # fmt: skip


def _model(entry: RunEntry, shapes: dict[str, ShapeEntry]) -> Transformer:
    """Return a run's model, with the modules for multi-token prediction that the run trained."""
    found = _main_model(entry, shapes)
    return found if entry.mtp_layers is None else replace(found, mtp_layers=entry.mtp_layers)


def _main_model(entry: RunEntry, shapes: dict[str, ShapeEntry]) -> Transformer:
    """Return a run's model: a shape of the file, a preset, or that of the run's own fields."""
    given = {name: getattr(entry, name) for name in _SHAPE}
    if entry.model is not None:
        extra = [name for name, value in given.items() if value is not None]
        if extra:
            raise InputError(
                f"model is {entry.model!r}, but {extra[0]} is given too; leave one out"
            )
        if entry.model in shapes:
            return _shaped(entry.model, shapes[entry.model], entry.seq)
        return load_transformer(entry.model, sequence=entry.seq)
    missing = [name for name in _NEEDED if given[name] is None]
    if missing:
        raise InputError(f"{missing[0]} is missing; give it, or the model by its name")
    if entry.moe and entry.experts is None:
        return _known_mixture(entry)
    shape = {name: value for name, value in given.items() if name != "moe"}
    return _shaped(entry.name, ShapeEntry(**shape, tied=entry.tied), entry.seq)


def _shaped(name: str, shape: ShapeEntry, sequence: int) -> Transformer:
    query = shape.hidden if shape.qw is None else shape.qw
    if shape.heads < 1 or query < 1 or query % shape.heads:
        raise InputError(f"qw is {query} and heads {shape.heads}; give a width of whole heads")
    head = query // shape.heads
    keys = query if shape.kvw is None else shape.kvw
    if not keys or keys % head:
        raise InputError(
            f"qw is {query} and kvw {keys}, not multiples of qw / heads = {head}; give widths of "
            "whole heads"
        )
    latent = LatentAttention(**asdict(shape.latent)) if shape.latent else None
    return Transformer(
        name, shape.layers, shape.hidden,
        Attention(shape.heads, keys // head, head, latent=latent), shape.ffn, shape.vocab,
        sequence, gated=shape.gated, tied=shape.tied,
        experts=Experts(**asdict(shape.experts)) if shape.experts else None,
    )  # fmt: skip


def _known_mixture(entry: RunEntry) -> Transformer:
    """Return the model of a run that does not print its experts.

    A preset with these layers, width and heads; or, of these widths, what a released model has,
    with the run's own layers. Hybrid models have widths that an entry cannot say.
    """
    presets = [one for one in TRANSFORMERS.values() if one.linear is None]
    mixtures = [one for one in presets if one.experts and one.hidden == entry.hidden]
    for one in mixtures:
        if (one.layers, one.attention.heads) == (entry.layers, entry.heads):
            return replace(one, sequence=entry.seq)
    released = [*_RELEASED, *((m.layers, m.hidden, m.attention.heads, m.experts) for m in mixtures)]
    alike = [
        (abs(layers - (entry.layers or 0)), experts)
        for layers, hidden, heads, experts in released
        if experts and (hidden, heads, experts.width) == (entry.hidden, entry.heads, entry.ffn)
    ]
    if alike:
        _, experts = min(alike, key=lambda one: one[0])
        given = {name: getattr(entry, name) for name in _SHAPE if name not in ("moe", "experts")}
        return replace(_shaped(entry.name, ShapeEntry(**given), entry.seq), experts=experts)
    raise InputError(
        f"moe is true, but no known model has {entry.layers} layers of width {entry.hidden} with "
        "experts; give experts"
    )


def _accelerator(entry: AcceleratorEntry) -> Accelerator:
    """Return an accelerator by its data sheet."""
    return Accelerator(
        entry.name, 0.0, 0.0, 1e12 * entry.bf16_tflops, 1e12 * entry.bf16_tflops,
        1e9 * entry.memory_gb, 1e9 * entry.memory_gb_s, "the file of runs",
        1e12 * entry.fp8_tflops,
    )  # fmt: skip


def _links(entry: RunEntry, accelerator: Accelerator) -> Links:
    """Return the links of a run's servers; a NIC of its own counts for the usual one."""
    if isinstance(entry.accel, AcceleratorEntry):
        gpus, inside, nic = entry.accel.gpus, 1e9 * entry.accel.link_gb_s, entry.accel.nic_gbps
    else:
        domain = scale_up_of(accelerator)
        gpus, inside, nic = domain.gpus, domain.bandwidth, domain.nic * 8e-9
    if entry.nic_gbps is not None:
        nic = entry.nic_gbps
    return switched_links(gpus, inside, nic * 1e9 / 8)


def _seconds(entry: RunEntry, model: Transformer, accelerator: Accelerator) -> tuple[float, str]:
    """Return the seconds of an iteration, and how they follow from what is published."""
    given = {name: getattr(entry, name) for name in _MEASURED}
    known = [name for name, value in given.items() if value is not None]
    if len(known) != 1:
        raise InputError(
            f"{', '.join(known) or 'no measured time'} is given; give one of {', '.join(_MEASURED)}"
        )
    (what,) = known
    value = given[what]
    if not 0 < value < float("inf"):
        raise InputError(f"{what} is {value}; give a positive number")
    if entry.batch < 1 or entry.gpus < 1:
        raise InputError(f"batch is {entry.batch} and gpus {entry.gpus}; give at least 1")
    tokens = entry.batch * entry.seq
    if what == "seconds":
        return value, ""
    if what == "tokens_per_second":
        return tokens / value, f"{value:g} tokens a second"
    if what == "tokens_per_second_gpu":
        return tokens / (value * entry.gpus), f"{value:g} tokens a second and GPU"
    share = {"all": 1.0, "causal": 0.5, "none": 0.0}[entry.scores]
    flops = model_flops(model, entry.batch, entry.seq)
    if share < 1.0:
        flops -= (1.0 - share) * _score_flops(entry, model)
    if what == "tflops_gpu":
        return flops / (1e12 * value * entry.gpus), f"{value:g} TFLOP/s per GPU"
    if value > 1:
        raise InputError(f"mfu is {value}; give a share of the peak, at most 1")
    peak = accelerator.peak_flops("fp8" if entry.precision == "fp8" else "bf16")
    return flops / (value * peak * entry.gpus), f"{value:g} of the peak"


def _score_flops(entry: RunEntry, model: Transformer) -> float:
    """Return what `model_flops` counts of scores and weighted values, backward passes too."""
    if model.indexer is not None:
        raise InputError(
            f"scores is {entry.scores!r}, but {model.name} attends to chosen keys, of which all "
            "are counted; leave scores out"
        )
    widths = model.attention.query_width + model.attention.value_width
    layers = sum(
        count * (2.0 * model.score_share(layer, entry.seq) if model.slides(layer) else 1.0)
        for layer, count in layer_kinds(model, 0, model.layers, model.mtp_layers)
        if model.has_attention(layer)
    )
    return 6.0 * entry.batch * entry.seq**2 * widths * layers


def _layout(entry: RunEntry, one: LayoutEntry, model: Transformer) -> Layout:
    ranks, expert = one.data * one.context, one.expert
    # Tables print 1 where there are no experts or no tensor group, and parts of a lone stage.
    folded = model.experts is not None and one.expert_tensor != one.tensor
    split = one.expert_tensor if folded else None
    if expert == _ALL_EXPERTS and model.experts is not None:
        # The largest degree that there is.
        fold, count = one.tensor // (split or one.tensor), model.experts.count
        expert = fold * max(e for e in range(1, ranks + 1)
                            if ranks % e == 0 and count % (fold * e) == 0)  # fmt: skip
    virtual = one.virtual if one.pipeline > 1 else 1
    usual: PipelineScheduleName = "interleaved" if virtual > 1 else "1f1b"
    modules = tuple(one.modules) if one.modules else USUAL_MODULES
    parallel = one.tensor > 1 if one.sequence_parallel is None else one.sequence_parallel
    layout = Layout(
        tensor=one.tensor, context=one.context, data=one.data, pipeline=one.pipeline,
        expert=expert, sequence_parallel=parallel, microbatch=one.microbatch,
        schedule=one.schedule or usual,
        virtual_stages=2 if one.schedule in FOLDED else virtual,
        recompute=one.recompute, zero=one.zero, expert_tensor=split,
        modules=modules if one.recompute == "modules" else (),
        stage_layers=tuple(one.stage_layers or ()),
    )  # fmt: skip
    if layout.gpus != entry.gpus:
        raise InputError(
            f"a layout is for {layout.gpus} GPUs, but gpus is {entry.gpus}; correct one of them"
        )
    return layout
