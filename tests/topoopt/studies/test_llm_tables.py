"""The tables of docs/llm.md hold what the program says."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from published_data import published_data

from parallelism.transformers.implementation import STACKS
from topoopt.studies.validation import calibration
from topoopt.studies.validation.llm import run_case, validate_llm
from topoopt.studies.validation.runs_file import read_runs, validate_runs
from topoopt.studies.validation.sweep import validate_sweep

PAGE = (Path(__file__).parents[3] / "docs" / "llm.md").read_text()
RUNS, SWEEP = published_data("llm") / "runs.json", published_data("llm") / "sweep"


def table(first: str) -> list[list[str]]:
    """Return the cells of the rows of the table whose head begins so."""
    lines = PAGE.splitlines()
    begin = lines.index(next(line for line in lines if line.startswith(f"| {first} |"))) + 2
    rows = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def as_printed(shown: str, value: float) -> bool:
    """Whether a number stands for a value, to the last digit that it has."""
    number = shown.removesuffix("%").strip()
    digits = len(number.partition(".")[2])
    return abs(float(number) - value) <= 0.5001 * 10.0**-digits


# Rows are of parts of the same runs.
@cache
def runs_of_the_file():
    return validate_runs(RUNS).runs


@cache
def runs_of_the_program():
    return [(run, run_case(run)) for run in read_runs("published")]


@cache
def cases():
    return validate_llm().cases


def of_file(stack: str | None = None):
    if not RUNS.is_file():
        pytest.skip("the file of 31 runs is not here")
    return [abs(run.error) for run in runs_of_the_file() if stack is None or run.stack == stack]


def of_program(keep, *, hybrid=False):
    return [
        abs(case.error)
        for run, case in runs_of_the_program()
        if (run.model.linear is not None) == hybrid
        and keep(run, run.role == "fitted", run.implementation.precision == "fp8",
                run.model.experts is not None)
    ]  # fmt: skip


def of_cases(quantity, *roles, name=""):
    return [
        abs(case.error)
        for case in cases()
        if case.quantity == quantity and case.role in roles and re.match(name, case.name)
    ]


def left_out():
    if not RUNS.is_file():
        pytest.skip("the file of 31 runs is not here")
    every = read_runs(RUNS)
    others = [run for run in read_runs("published") if run.role == "fitted"]
    found: list[float] = []
    for stack in {run.implementation.stack for run in every}:
        apart = calibration.leave_one_model_out(
            [run for run in every if run.implementation.stack == stack], stack,
            [run for run in others if run.implementation.stack == stack],
        )  # fmt: skip
        found += [abs(error) for errors in apart.values() for error in errors]
    return found


def ring(run) -> bool:
    return run.name.startswith("torchtitan Llama 3 8B at ")


KORTHIKANTI = "(22B|175B|530B|1T) (full|selective)$"
ROWS = {
    "31 published runs of a file, 30 of them fitted": of_file,
    "of these, Megatron-LM's own table on H100": lambda: of_file("megatron-core"),
    "NeMo on H100": lambda: of_file("nemo"),
    "FSDP2, dense": lambda: of_file("fsdp2"),
    "FSDP2, experts, held out": lambda: of_file("fsdp2-moe"),
    "FSDP1": lambda: of_file("fsdp1"),
    "`--runs published` but for hybrid models, held out": lambda: of_program(
        lambda run, fitted, low, moe: not fitted
    ),
    "of these without the five not understood": lambda: of_program(
        lambda run, fitted, low, moe: (
            not (fitted or ring(run) or (run.model.name == "qwen3-30b" and low))
        )
    ),
    "of these dense, BF16": lambda: of_program(
        lambda run, fitted, low, moe: not (fitted or low or moe)
    ),
    "of these dense, FP8": lambda: of_program(
        lambda run, fitted, low, moe: low and not (fitted or moe)
    ),
    "the dense of these without torchtitan's four of 32K to 256K": lambda: of_program(
        lambda run, fitted, low, moe: not (fitted or moe or ring(run))
    ),
    "of these experts, BF16": lambda: of_program(
        lambda run, fitted, low, moe: moe and not (fitted or low)
    ),
    "of these experts, FP8": lambda: of_program(
        lambda run, fitted, low, moe: moe and low and not fitted
    ),
    "`--runs published`, hybrid models, held out": lambda: of_program(
        lambda run, fitted, low, moe: not fitted, hybrid=True
    ),
    "of the hybrid ones dense, FP8": lambda: of_program(
        lambda run, fitted, low, moe: low and not (fitted or moe), hybrid=True
    ),
    "of the hybrid ones with experts, FP8": lambda: of_program(
        lambda run, fitted, low, moe: low and moe and not fitted, hybrid=True
    ),
    "of the hybrid ones with experts, BF16": lambda: of_program(
        lambda run, fitted, low, moe: moe and not (low or fitted), hybrid=True
    ),
    "of all dense, BF16, fitted": lambda: of_program(
        lambda run, fitted, low, moe: fitted and not (low or moe)
    ),
    "of all dense, FP8, fitted": lambda: of_program(
        lambda run, fitted, low, moe: fitted and low and not moe
    ),
    "iteration time, all": lambda: of_cases("iteration time", "fitted", "held-out"),
    "iteration time, fitted": lambda: of_cases("iteration time", "fitted"),
    "iteration time, held out": lambda: of_cases("iteration time", "held-out"),
    "iteration time in FP8, fitted: H100": lambda: of_cases("iteration time, FP8", "fitted"),
    "iteration time in FP8, held out: B200, GB200, GB300, H800": lambda: of_cases(
        "iteration time, FP8", "held-out"
    ),
    "the eight of Korthikanti et al. (2022), table 5, two of them fitted": lambda: of_cases(
        "iteration time", "fitted", "held-out", name=KORTHIKANTI
    ),
    "time of a 22B layer, all fitted": lambda: of_cases("layer time", "fitted"),
    "activations": lambda: of_cases("activations", "held-out"),
    "weights, gradients, optimizer": lambda: of_cases("states", "held-out"),
    "MT-NLG on DeepSpeed, whose rate of products is fitted on them": lambda: of_cases(
        "iteration time", "other-software"
    ),
}
LEFT_OUT = "the same, each model left out of its stack's fit"


def stands_as(label, errors) -> None:
    ((count, mean, most),) = [cells[1:] for cells in table("quantity") if cells[0] == label]
    assert int(count) == len(errors)
    assert as_printed(mean, 100 * float(np.mean(errors)))
    assert as_printed(most, 100 * max(errors))


def test_every_row_is_held() -> None:
    assert [cells[0] for cells in table("quantity")] == [
        *list(ROWS)[:1], LEFT_OUT, *list(ROWS)[1:]
    ]  # fmt: skip


@pytest.mark.parametrize("label", ROWS)
def test_errors_are_those_that_the_page_prints(label) -> None:
    stands_as(label, ROWS[label]())


@pytest.mark.slow
def test_errors_of_models_left_out_are_those_that_the_page_prints() -> None:
    stands_as(LEFT_OUT, left_out())


@pytest.mark.parametrize(
    ("stack", "steps"),
    [
        ("nemo", [{"sending": 0.02}, {"casts": 0.2}]),
        ("fsdp2", [{"elementwise": 0.05, "norms": 0.05}]),
        ("fsdp2-eager", [{"elementwise": 0.1, "norms": 0.1}]),
        ("fsdp1", [{"overlap_data": 0.02}]),
    ],
)
def test_what_stacks_have_fitted_is_a_least_squares_fit_of_the_rows_marked(stack, steps) -> None:
    if not RUNS.is_file():
        pytest.skip("the file of 31 runs is not here")
    runs = [
        run
        for run in (*read_runs(RUNS), *read_runs("published"))
        if run.role == "fitted" and run.implementation.stack == stack
    ]

    def squares(changes) -> float:
        moved = [replace(run.implementation, **changes) for run in runs]
        return sum(
            run_case(replace(run, implementation=one)).error ** 2
            for run, one in zip(runs, moved, strict=True)
        )

    least = squares({})
    for step in steps:
        for way in (-1, 1):
            changes = {name: getattr(STACKS[stack], name) + way * by for name, by in step.items()}
            assert least < squares(changes)
    if stack == "nemo":  # whose overlap of tensor groups is at its end
        assert least < squares({"overlap_tensor": 0.98})


def test_stacks_overlap_what_the_page_says() -> None:
    told = set()
    for names, tensor, data, pipeline, words in table("stack"):
        for name in re.findall(r"`([\w-]+)`", names):
            stack = STACKS[name]
            told.add(name)
            assert (float(tensor), float(data), float(pipeline)) == (
                stack.overlap_tensor, stack.overlap_data, stack.overlap_pipeline,
            )  # fmt: skip
            for word, value in re.findall(r"`(sending|casts)` ([\d.]+\d)", words):
                assert float(value) == getattr(stack, word)
            if "gradients of 2 bytes" in words:
                assert stack.gradient_bytes == 2
    assert told == set(STACKS)


def test_the_sweep_is_ranked_as_the_page_prints() -> None:
    if not SWEEP.is_dir():
        pytest.skip("the public sweep of layouts is not here")
    found = validate_sweep(SWEEP)
    rows = table("file")
    assert len(rows) == len(found) == 10
    for cells, one in zip(rows, found, strict=True):
        size, *rest = (word.strip() for word in cells[0].split(","))
        assert f"_{size}_" in one.name
        assert ("8K" in rest) == ("8k" in one.name)
        assert ("sequence" in rest) == ("sequence_parallelism" in one.name)
        assert cells[1:3] == [str(one.ran), str(one.failed)]
        assert as_printed(cells[3], one.spearman)
        assert as_printed(cells[4], 100 * one.regret)
    ran, failed = sum(one.ran for one in found), sum(one.failed for one in found)
    sentence = re.search(
        r"Of (\d+) layouts that ran ([\d.]+) % do not fit by the model, of (\d+) that ran out of "
        r"memory ([\d.]+) % do", PAGE.replace("\n", " "),
    )  # fmt: skip
    assert sentence is not None
    assert [int(sentence[1]), int(sentence[3])] == [ran, failed]
    assert as_printed(sentence[2], 100 * sum(one.rejected for one in found) / ran)
    assert as_printed(sentence[4], 100 * sum(one.accepted for one in found) / failed)


def test_the_runs_that_come_with_the_program_are_counted() -> None:
    runs = read_runs("published")
    assert f"# {len(runs)} more that come with the program" in PAGE
    plain = sum(run.model.linear is None for run in runs)
    assert f"of the {31 + plain} runs below that are not of hybrid models" in PAGE
