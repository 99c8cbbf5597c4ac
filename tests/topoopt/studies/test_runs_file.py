"""Published runs from a file: what is read, what is refused, and what the model says of them."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from codesign_base import InputError
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import FSDP2, MEGATRON_CORE, STACKS, get_stack
from parallelism.transformers.iteration import exposed_seconds, iteration_time
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import links_of
from parallelism.transformers.memory import memory_use
from parallelism.transformers.presets import get_transformer
from topoopt.cli.app import app
from topoopt.studies.validation.calibration import errors, fit, leave_one_model_out
from topoopt.studies.validation.runs_file import published_run, read_runs, validate_runs

RUN = {
    "name": "small", "hidden": 4096, "ffn": 14336, "gated": True, "layers": 32, "heads": 32,
    "qw": 4096, "kvw": 1024, "seq": 8192, "batch": 128, "seconds": 12.78, "accel": "h100",
    "vocab": 128256, "moe": False, "source": "somebody", "software": "megatron-core", "gpus": 8,
    "layouts": [{"tensor": 1, "pipeline": 1, "data": 4, "context": 2, "expert": 1,
                 "microbatch": 1, "virtual": 1, "recompute": "none", "zero": 1}],
}  # fmt: skip


def written(tmp_path, **changes):
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"runs": [{**RUN, **changes}]}))
    return path


def test_a_run_is_compared_as_the_model_times_it(tmp_path) -> None:
    found = validate_runs(written(tmp_path))
    model = get_transformer("llama3-8b")
    seconds = iteration_time(
        model, Layout(data=4, context=2), 128, rates_of("h100"), links_of("h100", 8, 50e9),
        MEGATRON_CORE, sequence=8192,
    ).seconds  # fmt: skip
    (run,) = found.runs
    assert run.model_s == pytest.approx(seconds)
    assert run.error == pytest.approx(seconds / 12.78 - 1)
    assert not run.fitted
    assert {s.group: s.runs for s in found.summaries} == {
        "all": 1, "stack megatron-core": 1, "accelerator h100": 1, "held out": 1,
    }  # fmt: skip


def test_a_run_may_be_in_fp8_and_fold_its_experts(tmp_path) -> None:
    low, high = (
        validate_runs(written(tmp_path, precision=precision)).runs[0].model_s
        for precision in ("fp8", "bf16")
    )
    assert low < 0.8 * high
    assert validate_runs(written(tmp_path)).runs[0].model_s == high
    moe = {
        "moe": True, "hidden": 7168, "layers": 61, "heads": 128, "qw": 16384, "kvw": 16384,
        "gpus": 1024, "batch": 8192, "seq": 4096, "vocab": 129280, "seconds": 25.0,
        "layouts": [{**RUN["layouts"][0], "tensor": 2, "pipeline": 8, "data": 64, "context": 1,
                     "expert": 99, "virtual": 4, "recompute": "modules", "expert_tensor": 1}],
    }  # fmt: skip
    (run,) = validate_runs(written(tmp_path, **moe, software="megatron-moe")).runs
    layout = Layout(
        2, 1, 64, 8, expert=128, expert_tensor=1, schedule="interleaved", virtual_stages=4,
        recompute="modules", modules=("norms", "up-projections", "activations"),
    )  # fmt: skip
    seconds = iteration_time(
        get_transformer("deepseek-v3"), layout, 8192, rates_of("h100"), links_of("h100", 8, 50e9),
        get_stack("megatron-moe"), sequence=4096,
    ).seconds  # fmt: skip
    assert run.model_s == pytest.approx(seconds)


def test_a_run_is_of_the_gpu_that_its_source_prints(tmp_path) -> None:
    """torchtitan's H100 have less memory bandwidth and power than those of a DGX."""
    dgx, printed = (
        validate_runs(written(tmp_path, software="fsdp2", source=source)).runs[0]
        for source in ("somebody", "pytorch/torchtitan, benchmarks/llama3_h100_202412")
    )
    assert (dgx.accelerator, printed.accelerator) == ("h100", "h100-96gb")
    assert 1.1 < printed.model_s / dgx.model_s < 3.35 / 2.4


def test_a_model_left_out_is_of_all_its_runs(tmp_path) -> None:
    entry = read_runs(written(tmp_path, software="fsdp1"))[0]
    first = published_run(entry)
    other = replace(first, name="other", model=replace(first.model, layers=16), seconds=6.5)
    both = [first, replace(first, seconds=13.0)]
    apart = leave_one_model_out([*both, other], "fsdp1")
    assert {name: len(found) for name, found in apart.items()} == {"small": 2, "other": 1}
    alone = fit([other], "fsdp1")
    assert apart["small"] == pytest.approx(
        errors([first, replace(first, seconds=13.0)], "fsdp1", alone)
    )


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"unknown": 1}, "unknown"),
        ({"software": "megatron-cor"}, "did you mean"),
        ({"gpus": 16}, "gpus"),
        ({"seconds": -1.0}, "seconds"),
        ({"accel": "abacus"}, "accelerator"),
        ({"layouts": []}, "layouts"),
        ({"moe": True, "layers": 31}, "experts"),
        ({"heads": 33}, "heads"),
    ],
)
def test_a_wrong_run_is_refused_in_a_sentence(tmp_path, changes, word) -> None:
    with pytest.raises(InputError, match=word) as caught:
        validate_runs(written(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_the_command_prints_runs_and_summaries(tmp_path) -> None:
    path = written(tmp_path)
    shown = CliRunner().invoke(app, ["validate", "llm", "--runs", str(path)])
    assert shown.exit_code == 0
    assert "small" in shown.stdout and "held out" in shown.stdout
    document = json.loads(
        CliRunner().invoke(app, ["validate", "llm", "--runs", str(path), "--json"]).stdout
    )
    assert document["runs"][0]["stack"] == "megatron-core"
    refused = CliRunner().invoke(app, ["validate", "--runs", str(path)])
    assert isinstance(refused.exception, InputError)


def test_exposed_communication_by_hand() -> None:
    """10 s sent: at most 8 hide at 0.8, at most 3 behind 3 s of work, none at 0."""
    assert exposed_seconds(10.0, 0.8, 100.0) == pytest.approx(2.0)
    assert exposed_seconds(10.0, 0.8, 3.0) == 7.0
    assert exposed_seconds(10.0, 0.0, 100.0) == 10.0
    assert exposed_seconds(10.0, 1.0, 100.0) == 0.0


@pytest.mark.parametrize("group", ["tensor", "data", "pipeline"])
def test_more_overlap_is_never_slower(group) -> None:
    layout = Layout(tensor=4, context=2, pipeline=2, data=4)
    times = []
    for share in (0.0, 0.3, 0.7, 1.0):
        stack = {**{f: getattr(FSDP2, f) for f in FSDP2.__dataclass_fields__},
                 f"overlap_{group}": share}  # fmt: skip
        times.append(
            iteration_time(
                get_transformer("llama3-8b"),
                layout,
                32,
                rates_of("h100"),
                links_of("h100", 8, 50e9),
                type(FSDP2)(**stack),
            ).seconds
        )
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


@pytest.mark.parametrize("name", STACKS)
def test_memory_is_never_below_weights_and_optimizer(name) -> None:
    model, stack = get_transformer("llama3-8b"), get_stack(name)
    (use,) = memory_use(model, Layout(data=8, zero=3), 8, stack)
    least = model.parameters / 8 * (2 + stack.gradient_bytes + stack.optimizer_bytes)
    assert use.states == pytest.approx(least)
    assert use.total >= least + stack.runtime_bytes + use.activations
