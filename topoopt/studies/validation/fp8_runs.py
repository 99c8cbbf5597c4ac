"""Published runs in FP8: Megatron Bridge's tables, and DeepSeek-V3's own training."""

from collections.abc import Iterator
from dataclasses import replace

from parallelism.accelerators import scale_up_of
from parallelism.transformers.implementation import DEEPSEEK_V3, MEGATRON_CORE
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import links_of
from parallelism.transformers.load import load_transformer
from topoopt.studies.validation.published_run import PublishedRun

_BRIDGE = (
    "NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md, containers 25.11, 26.02"
)
DEEPSEEK = "DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437, table 1, sections 3, 4.2"

# Model, accelerator, GPUs, batch, tensor, context, pipeline, parts a stage, microbatch, ZeRO,
# tokens a second and GPU. Sequences of 8,192 tokens.
_TABLE = (
    ("llama3-8b", "h100", 8, 128, 1, 1, 1, 1, 1, 3, 14451),
    ("llama3-70b", "h100", 64, 128, 4, 1, 8, 5, 1, 1, 1602),
    ("llama3-70b", "h100", 64, 256, 4, 1, 8, 5, 1, 1, 1621),
    ("llama3.1-405b", "h100", 1024, 512, 8, 2, 8, 8, 1, 1, 292),
    ("llama3.1-405b", "h100", 1024, 1536, 8, 2, 8, 8, 1, 1, 311),
    ("llama3-8b", "b200", 8, 128, 1, 1, 1, 1, 2, 1, 30624),
    ("llama3.1-405b", "b200", 128, 64, 4, 2, 8, 8, 1, 1, 661),
    ("llama3-8b", "gb200", 8, 128, 1, 1, 1, 1, 2, 1, 31508),
    ("llama3.1-405b", "gb200", 256, 1536, 4, 1, 16, 4, 1, 1, 813),
    ("llama3-8b", "gb300", 8, 128, 1, 1, 1, 1, 2, 1, 37556),
    ("llama3.1-405b", "gb300", 256, 1536, 4, 1, 8, 4, 1, 1, 988),
)
_SEQUENCE = 8192


def fp8_runs() -> Iterator[PublishedRun]:
    """Yield every run; `GpuRates.fp8_efficiency` was fitted on those on H100."""
    for (name, accelerator, gpus, batch, tensor, context, pipeline, virtual, microbatch, zero,
         speed) in _TABLE:  # fmt: skip
        domain = scale_up_of(accelerator)
        layout = Layout(
            tensor, context, gpus // (tensor * context * pipeline), pipeline,
            sequence_parallel=tensor > 1, microbatch=microbatch, virtual_stages=virtual,
            schedule="interleaved" if virtual > 1 else "1f1b", zero=zero,
        )  # fmt: skip
        yield PublishedRun(
            f"FP8 {name}, {gpus} {accelerator}, batch {batch}", _BRIDGE,
            "fitted" if accelerator == "h100" else "held-out",
            load_transformer(name, sequence=_SEQUENCE), (layout,), batch, _SEQUENCE,
            batch * _SEQUENCE / (gpus * speed), accelerator,
            links_of(accelerator, domain.gpus, domain.nic),
            replace(MEGATRON_CORE, precision="fp8"), f"{speed} tokens a second and GPU",
        )  # fmt: skip
    yield _deepseek()


def _deepseek() -> PublishedRun:
    """DeepSeek-V3 on 2,048 H800: 2.664 million GPU hours for 14.8 T tokens."""
    batch, sequence, gpus = 15360, 4096, 2048
    model = load_transformer("deepseek-v3", sequence=sequence, mtp_layers=1)
    layout = Layout(
        data=128, pipeline=16, expert=64, sequence_parallel=False, recompute="modules",
        modules=("norms", "up-projections", "activations"),
        stage_layers=(*[4] * 7, 5, *[4] * 7, 0),  # balanced; the report does not print them
    )  # fmt: skip
    domain = scale_up_of("h800")
    return PublishedRun(
        "DeepSeek-V3, 2048 H800", DEEPSEEK, "held-out", model, (layout,), batch, sequence,
        2.664e6 * 3600 / gpus * batch * sequence / 14.8e12, "h800",
        links_of("h800", domain.gpus, domain.nic), DEEPSEEK_V3,
        "2.664 million GPU hours for 14.8 T tokens, as if every batch had 15,360 samples; 1F1B "
        "stands for DualPipe, whose bubble is smaller, with layers of the stages balanced",
    )  # fmt: skip
