"""Transformers and their placed layouts as plan files hold them."""

from typing import Literal

from pydantic.dataclasses import dataclass as checked

from parallelism.device import Server
from parallelism.record_fields import STRICT, Amount, Whole
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.choices import Choices
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.memory import MemoryUse
from parallelism.transformers.placement import AxisOrder


@checked(frozen=True, config=STRICT)
class LayoutRecord:
    """A placed layout: degrees, schedule, order of axes, and the memory of each stage's GPUs."""

    layout: Layout
    order: AxisOrder
    stages: list[MemoryUse]
    kind: Literal["layouts"] = "layouts"


@checked(frozen=True, config=STRICT)
class LayoutQuestion:
    """A transformer to train, and which of its layouts are considered."""

    model: Transformer
    server: Server
    sequence: Whole
    rates: GpuRates
    implementation: Implementation
    choices: Choices
    memory_reserve: Amount
    kind: Literal["layouts"] = "layouts"
