"""Accelerators as data: the table of the docs, and relations between published numbers."""

from pathlib import Path

import pytest

from codesign_base import InputError
from parallelism.accelerators import (
    ACCELERATORS,
    ALIASES,
    SCALE_UP,
    Accelerator,
    get_accelerator,
    scale_up_of,
)
from parallelism.transformers.gpu import rates_of
from topoopt.problem.job import nvlink_server

PAGE = Path(__file__).parents[2] / "docs" / "accelerators.md"


def test_the_table_of_the_docs_is_the_data() -> None:
    shown = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    expected = []
    for name, one in ACCELERATORS.items():
        domain = SCALE_UP[name]
        numbers = (
            one.bf16_flops / 1e12, one.fp8_flops / 1e12, one.memory_bytes / 1e9,
            one.memory_bandwidth / 1e12, domain.gpus, domain.bandwidth / 1e9, domain.nic * 8 / 1e9,
        )  # fmt: skip
        cells = " | ".join(f"{number:g}" if number else "none" for number in numbers)
        expected.append(f"| `{name}` | {cells} | {one.source}; {domain.source} |")
    assert shown == expected


@pytest.mark.parametrize("name", [*ACCELERATORS, *ALIASES])
def test_every_accelerator_has_a_server_and_rates(name) -> None:
    domain = scale_up_of(name)
    server = nvlink_server(name, domain.gpus)
    assert server.intra_bandwidth * (domain.gpus - 1) == pytest.approx(domain.bandwidth)
    assert rates_of(name).accelerator == server.accelerator


@pytest.mark.parametrize("one", ACCELERATORS.values(), ids=lambda one: one.name)
def test_published_peaks_stand_to_each_other_as_the_units_do(one) -> None:
    """Each halving of the width doubles tensor cores' rate; a TPU has no faster FP8."""
    if one.tf32_flops:
        assert one.bf16_flops == pytest.approx(2 * one.tf32_flops, rel=0.002)
    if one.fp16_flops:
        assert one.fp16_flops == one.bf16_flops
    faster = 1 if one.name.startswith("tpu") else 2
    if one.fp8_flops:
        assert one.fp8_flops == pytest.approx(faster * one.bf16_flops, rel=0.001)
    assert one.peak_flops("bf16") == one.bf16_flops


def test_nvl72_adds_up_to_the_rack() -> None:
    """The data sheet of GB200 NVL72: 360 PFLOP/s dense FP8, 576 TB/s, 13.4 TB, 130 TB/s."""
    one, domain = get_accelerator("gb200"), scale_up_of("gb200")
    assert domain.gpus * one.fp8_flops == pytest.approx(360e15)
    assert domain.gpus * one.memory_bandwidth == pytest.approx(576e12)
    assert domain.gpus * one.memory_bytes == pytest.approx(13.4e12, rel=0.002)
    assert 2 * domain.gpus * domain.bandwidth == pytest.approx(130e12, rel=0.005)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"has no fp8 peak; choose one of fp32, tf32, bf16, fp16"):
        get_accelerator("a100").peak_flops("fp8")
    with pytest.raises(InputError, match="tf32"):
        get_accelerator("mi355x").peak_flops("tf32")
    with pytest.raises(InputError, match="unknown precision"):
        get_accelerator("a100").peak_flops("int8")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="fp8_flops is -1"):
        Accelerator("x", 1, 1, 1, 1, 1, 1, "", -1.0)
    with pytest.raises(InputError, match="bf16_flops is 0"):
        Accelerator("x", 1, 1, 0, 1, 1, 1, "")
    with pytest.raises(InputError, match="known: a100-40gb"):
        scale_up_of(Accelerator("x", 1, 1, 1, 1, 1, 1, ""))
    assert scale_up_of(Accelerator("h100-special", 1, 1, 1, 1, 1, 1, "")) == scale_up_of("h100")
