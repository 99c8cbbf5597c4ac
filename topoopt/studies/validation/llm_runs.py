"""Published measurements of training large language models on real clusters, as data."""

from collections.abc import Iterator
from dataclasses import replace

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.costs import model_flops
from parallelism.transformers.experts import Experts
from parallelism.transformers.implementation import (
    DEEPSPEED_2022,
    LLAMA3,
    MEGATRON_2021,
    MEGATRON_2022,
    MEGATRON_CORE,
)
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import links_of
from topoopt.studies.validation.fp8_runs import fp8_runs
from topoopt.studies.validation.published_run import PublishedRun, Role

NARAYANAN = (
    "Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using "
    "Megatron-LM, SC 2021, table 1"
)
KORTHIKANTI = (
    "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022"
)
SMITH = "Smith et al., Using DeepSpeed and Megatron to Train MT-NLG 530B, 2022"
LLAMA = "Llama team, The Llama 3 Herd of Models, 2024, table 4"

MCORE_DOCS = (
    "Megatron-Core 0.8, documentation of mixture-of-experts training (figure of merit and "
    "reference parallel mapping)"
)

A100_LINKS = links_of("a100", 8, 25e9)
"""Eight A100 on NVSwitch, a NIC of 200 Gbit/s each (Selene)."""
H100_LINKS = links_of("h100", 8, 50e9)
"""Eight H100 on NVSwitch, a NIC of 400 Gbit/s each."""


def megatron_gpt(billions: str, layers: int, hidden: int, heads: int) -> Transformer:
    """Return a GPT as Megatron-LM trains it: 51,200 tokens, sequences of 2,048."""
    return Transformer(
        f"GPT {billions}", layers, hidden,
        Attention(heads, heads, hidden // heads, query_bias=True, output_bias=True),
        4 * hidden, 51200, 2048, bias=True, norm="layernorm", positions=2048, tied=True,
    )  # fmt: skip


GPT_22B = megatron_gpt("22B", 48, 6144, 64)
GPT3_175B = megatron_gpt("175B", 96, 12288, 96)
GPT_530B = megatron_gpt("530B", 105, 20480, 128)
GPT_1T = megatron_gpt("1T", 128, 25600, 160)
LLAMA3_405B = Transformer(
    "Llama 3 405B", 126, 16384, Attention(128, 8, 128), 53248, 128256, 8192, gated=True
)

MIXTRAL_8X7B = Transformer(
    "Mixtral 8x7B", 32, 4096, Attention(32, 8, 128), 14336, 32000, 4096, gated=True,
    experts=Experts(8, 2, 14336),
)  # fmt: skip


def published_runs() -> tuple[PublishedRun, ...]:
    """Return every run of the table."""
    return (
        *_narayanan(), *_korthikanti(), *_large(), *_llama(), *_mixtral(), *_smith(), *fp8_runs()
    )  # fmt: skip


# Parameters, layers, hidden, heads, tensor, pipeline, GPUs, batch, achieved TFLOP/s per GPU.
_WEAK_SCALING = (
    ("1.7B", 24, 2304, 24, 1, 1, 32, 512, 137),
    ("3.6B", 30, 3072, 32, 2, 1, 64, 512, 138),
    ("7.5B", 36, 4096, 32, 4, 1, 128, 512, 142),
    ("18.4B", 40, 6144, 48, 8, 1, 256, 1024, 135),
    ("39.1B", 48, 8192, 64, 8, 2, 512, 1536, 138),
    ("76.1B", 60, 10240, 80, 8, 4, 1024, 1792, 140),
    ("145.6B", 80, 12288, 96, 8, 8, 1536, 2304, 148),
    ("310.1B", 96, 16384, 128, 8, 16, 1920, 2160, 155),
    ("529.6B", 105, 20480, 128, 8, 35, 2520, 2520, 163),
    ("1008B", 128, 25600, 160, 8, 64, 3072, 3072, 163),
)
_MICROBATCHES = (1, 2, 4, 8, 16)


def _narayanan() -> Iterator[PublishedRun]:
    for size, layers, hidden, heads, tensor, pipeline, gpus, batch, tflops in _WEAK_SCALING:
        model = megatron_gpt(size, layers, hidden, heads)
        flops = model_flops(model, batch, model.sequence, recompute=True)
        data = gpus // (tensor * pipeline)
        base = Layout(
            tensor=tensor, pipeline=pipeline, data=data, sequence_parallel=False,
            recompute="full", zero=0,
        )  # fmt: skip
        yield PublishedRun(
            f"SC21 {size}", NARAYANAN, "fitted" if size == "1.7B" else "held-out", model,
            tuple(_open_layouts(base, layers, batch)), batch, 2048, flops / (gpus * tflops * 1e12),
            "a100", A100_LINKS, MEGATRON_2021,
            f"{tflops} TFLOP/s per GPU by the source's equation 3; microbatch and interleaving are "
            "not in the table",
        )  # fmt: skip


def _open_layouts(base: Layout, layers: int, batch: int) -> Iterator[Layout]:
    """Yield a layout with every microbatch and interleaving that divides."""
    for microbatch in _MICROBATCHES:
        if batch % (base.data * microbatch):
            continue
        yield replace(base, microbatch=microbatch)
        count = batch // (base.data * microbatch)
        if base.pipeline == 1 or count % base.pipeline or layers % base.pipeline:
            continue
        own = layers // base.pipeline
        for chunks in range(2, own + 1):
            if own % chunks == 0:
                yield replace(
                    base, microbatch=microbatch, schedule="interleaved", virtual_stages=chunks
                )


# Model, pipeline, interleaving, microbatch, batch, seconds with full recomputation and with
# sequence parallelism and selective recomputation.
_SELECTIVE = (
    ("22B", GPT_22B, 1, 1, 4, 4, 1.42, 1.10),
    ("175B", GPT3_175B, 8, 3, 1, 64, 18.13, 13.75),
    ("530B", GPT_530B, 35, 3, 1, 280, 49.05, 37.83),
    ("1T", GPT_1T, 64, 1, 1, 512, 94.42, 71.49),
)


def selective_layouts(
    pipeline: int, interleaving: int, microbatch: int, data: int = 1
) -> tuple[Layout, Layout]:
    """Return the two layouts that Korthikanti et al. compare: full, and selective with sequence."""
    full = Layout(
        tensor=8, pipeline=pipeline, data=data, virtual_stages=interleaving,
        schedule="interleaved" if interleaving > 1 else "1f1b", microbatch=microbatch,
        sequence_parallel=False, recompute="full", zero=0,
    )  # fmt: skip
    return full, replace(full, sequence_parallel=True, recompute="selective")


def _korthikanti() -> Iterator[PublishedRun]:
    for size, model, pipeline, chunks, microbatch, batch, *times in _SELECTIVE:
        both = selective_layouts(pipeline, chunks, microbatch)
        for kind, layout, seconds in zip(("full", "selective"), both, times, strict=True):
            yield PublishedRun(
                f"{size} {kind}", f"{KORTHIKANTI}, table 5",
                "fitted" if size == "175B" else "held-out", model, (layout,), batch, 2048, seconds,
                "a100", A100_LINKS, MEGATRON_2022,
            )  # fmt: skip


def _large() -> Iterator[PublishedRun]:
    flops = model_flops(GPT_530B, 2240, GPT_530B.sequence)
    both = selective_layouts(35, 3, 1, data=8)
    for kind, layout, share in zip(("full", "selective"), both, (0.421, 0.542), strict=True):
        yield PublishedRun(
            f"530B {kind}, 2240 GPUs", f"{KORTHIKANTI}, abstract", "held-out", GPT_530B, (layout,),
            2240, 2048, flops / (2240 * 312e12 * share), "a100", A100_LINKS, MEGATRON_2022,
            f"{100 * share:.1f} % of 312 TFLOP/s, without recomputation",
        )  # fmt: skip


def _smith() -> Iterator[PublishedRun]:
    for servers, seconds in ((280, 60.1), (350, 50.2), (420, 44.4)):
        layout = Layout(
            tensor=8, pipeline=35, data=servers // 35, sequence_parallel=False, recompute="full",
            zero=0,
        )  # fmt: skip
        yield PublishedRun(
            f"MT-NLG 530B, {8 * servers} GPUs", SMITH, "other-software", GPT_530B, (layout,), 1920,
            2048, seconds, "a100", A100_LINKS, DEEPSPEED_2022,
        )  # fmt: skip


def _llama() -> Iterator[PublishedRun]:
    rows: tuple[tuple[str, int, int, int, int, int, Role], ...] = (
        ("8K, 8192 GPUs", 8192, 1, 8192, 2048, 430, "held-out"),
        ("8K, 16384 GPUs", 16384, 1, 8192, 2048, 400, "held-out"),
        ("128K, 16384 GPUs", 16384, 16, 131072, 128, 380, "held-out"),
    )
    for name, gpus, context, sequence, batch, tflops, role in rows:
        data = gpus // (8 * 16 * context)
        flops = _causal_flops(batch, sequence)
        base = Layout(tensor=8, context=context, pipeline=16, data=data, zero=1)
        layouts = [
            replace(base, schedule="interleaved", virtual_stages=chunks) for chunks in range(2, 8)
        ]
        yield PublishedRun(
            f"Llama 3 405B {name}", LLAMA, role, LLAMA3_405B, (base, *layouts), batch, sequence,
            flops / (gpus * tflops * 1e12), "h100", H100_LINKS, LLAMA3,
            f"{tflops} TFLOP/s per GPU, scores under the causal mask not counted; interleaving is "
            "not in the table",
        )  # fmt: skip


def _mixtral() -> Iterator[PublishedRun]:
    layout = Layout(pipeline=4, data=16, expert=8, schedule="interleaved", virtual_stages=8, zero=1)
    flops = model_flops(MIXTRAL_8X7B, 256, MIXTRAL_8X7B.sequence)
    yield PublishedRun(
        "Mixtral 8x7B, 64 GPUs", MCORE_DOCS, "held-out", MIXTRAL_8X7B, (layout,), 256, 4096,
        flops / (64 * 438e12), "h100", H100_LINKS, MEGATRON_CORE,
        "438 TFLOP/s per GPU, no token dropped; balanced experts are assumed",
    )  # fmt: skip


def _causal_flops(batch: int, sequence: int) -> float:
    """Operations of Llama 3 405B with half of the attention scores."""
    every = model_flops(LLAMA3_405B, batch, sequence)
    scores = 3.0 * 4.0 * batch * sequence**2 * LLAMA3_405B.attention.query_width
    return every - 0.5 * scores * LLAMA3_405B.layers
