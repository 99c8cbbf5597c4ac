"""Published runs from a file: what is read, what is refused, and what the model says of them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from codesign_base import InputError
from parallelism.transformers.collectives import layer_communications
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.end_costs import head_costs
from parallelism.transformers.exposure import communication_seconds, exposed_seconds
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import (
    FSDP1,
    FSDP2,
    MEGATRON_CORE,
    STACKS,
    get_stack,
)
from parallelism.transformers.iteration import iteration_time
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import links_of
from parallelism.transformers.memory import memory_use
from parallelism.transformers.pass_seconds import part_seconds
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.work import Work
from tests.helpers.trainings import training_of
from topoopt.cli.app import app
from topoopt.studies.validation.calibration import errors, fit, leave_one_model_out
from topoopt.studies.validation.runs_file import read_runs, validate_runs
from topoopt.studies.validation.told_alike import Floor, least_errors

PUBLISHED = read_runs("published")
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
    layout = Layout(data=4, context=2)
    training = training_of(model, layout, MEGATRON_CORE, sequence=8192)
    rates, links = rates_of("h100"), links_of("h100", 8, 50e9)
    seconds = iteration_time(training, schedule_of(layout, 128), rates, links)
    (run,) = found.runs
    assert run.model_s == pytest.approx(seconds)
    assert run.error == pytest.approx(seconds / 12.78 - 1)
    assert not run.fitted
    assert {s.group: s.runs for s in found.summaries} == {
        "all": 1, "stack megatron-core": 1, "accelerator h100": 1, "held out": 1,
        "held out: dense, bf16": 1,
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
    stack = get_stack("megatron-moe")
    training = training_of(get_transformer("deepseek-v3"), layout, stack, sequence=4096)
    rates, links = rates_of("h100"), links_of("h100", 8, 50e9)
    seconds = iteration_time(training, schedule_of(layout, 8192), rates, links)
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
    (first,) = read_runs(written(tmp_path, software="fsdp1"))
    other = replace(first, name="other", model=replace(first.model, layers=16), seconds=6.5)
    both = [first, replace(first, seconds=13.0)]
    apart = leave_one_model_out([*both, other], "fsdp1")
    assert {name: len(found) for name, found in apart.items()} == {"small": 2, "other": 1}
    assert leave_one_model_out(both, "fsdp1", [other])["small"] == apart["small"]
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
        ({"moe": True, "layers": 31, "ffn": 14000}, "experts"),
        ({"heads": 33}, "heads"),
        ({"heads": 0}, "heads"),
        ({"qw": 0}, "qw"),
        ({"hidden": None}, "hidden"),
        ({"model": "llama3-8b"}, "leave one out"),
        ({"mfu": 0.4}, "seconds, mfu"),
        ({"seconds": None}, "no measured time"),
        ({"seconds": None, "mfu": 40.0}, "share of the peak"),
        ({"attention": "flash-9"}, "attention"),
        ({"precision": "fp8", "accel": "a100"}, "fp8"),
    ],
)
def test_a_wrong_run_is_refused_in_a_sentence(tmp_path, changes, word) -> None:
    with pytest.raises(InputError, match=word) as caught:
        validate_runs(written(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_every_measured_quantity_is_the_same_run(tmp_path) -> None:
    """12.78 s of 128 samples of 8,192 tokens on 8 GPUs, by every name that tables give it."""
    tokens = 128 * 8192 / 12.78
    # Products of 8.03e9 parameters less the embedding, by hand, and all scores.
    products = 6 * 128 * 8192 * (32 * (4096 * (6144 + 4096) + 3 * 4096 * 14336) + 4096 * 128256)
    scores = 12 * 128 * 8192**2 * 32 * 4096
    rate = (products + scores) / 12.78 / 8
    quantities: list[dict[str, object]] = [
        {"tokens_per_second": tokens},
        {"tokens_per_second_gpu": tokens / 8},
        {"tflops_gpu": rate / 1e12},
        {"mfu": rate / 989.5e12},
        {"mfu": (products + scores / 2) / 12.78 / 8 / 989.5e12, "scores": "causal"},
        {"tflops_gpu": products / 12.78 / 8e12, "scores": "none"},
    ]
    for said in quantities:
        (run,) = read_runs(written(tmp_path, seconds=None, **said))
        assert run.seconds == pytest.approx(12.78)


def test_scores_left_out_of_a_figure_are_those_of_layers_with_attention(tmp_path) -> None:
    """Nemotron-H 8B has four such layers of 52, of 32 heads of 128 elements."""
    path = tmp_path / "runs.json"
    shape = ("hidden", "ffn", "gated", "layers", "heads", "qw", "kvw", "vocab", "moe", "seconds")
    rest = {key: value for key, value in RUN.items() if key not in shape}
    seconds = {}
    for scores in ("all", "none"):
        run = {**rest, "model": "nemotron-h-8b", "tflops_gpu": 400.0, "scores": scores}
        path.write_text(json.dumps({"runs": [run]}))
        (read,) = read_runs(path)
        seconds[scores] = read.seconds
    left_out = (seconds["all"] - seconds["none"]) * 400e12 * 8
    assert left_out == pytest.approx(12 * 128 * 8192**2 * 4 * 4096)


def test_products_alone_do_not_depend_on_how_long_sequences_are(tmp_path) -> None:
    """Twice the sequence and half the batch: windows and further predicted tokens, too."""
    path = tmp_path / "runs.json"
    shape = ("hidden", "ffn", "gated", "layers", "heads", "qw", "kvw", "vocab", "moe", "seconds")
    rest = {key: value for key, value in RUN.items() if key not in shape}
    for more in ({"model": "gpt-oss-20b"}, {"model": "deepseek-v3", "mtp_layers": 1}):
        seconds = []
        for sequence, batch in ((8192, 64), (131072, 4)):
            run = {**rest, **more, "tflops_gpu": 400.0, "scores": "none", "seq": sequence}
            path.write_text(json.dumps({"runs": [{**run, "batch": batch}]}))
            seconds.append(read_runs(path)[0].seconds)
        assert seconds[1] == pytest.approx(seconds[0])


def test_scores_of_chosen_keys_cannot_be_left_out(tmp_path) -> None:
    path = tmp_path / "runs.json"
    shape = ("hidden", "ffn", "gated", "layers", "heads", "qw", "kvw", "vocab", "moe", "seconds")
    rest = {key: value for key, value in RUN.items() if key not in shape}
    run = {**rest, "model": "deepseek-v3.2", "tflops_gpu": 400.0, "scores": "causal"}
    path.write_text(json.dumps({"runs": [run]}))
    with pytest.raises(InputError, match="leave scores out"):
        read_runs(path)


def test_a_run_may_bring_its_model_and_its_accelerator(tmp_path) -> None:
    sheet = {"name": "other", "bf16_tflops": 989.5, "fp8_tflops": 1979.0, "memory_gb": 80.0,
             "memory_gb_s": 3350.0, "link_gb_s": 450.0}  # fmt: skip
    latent = {"kv_rank": 512, "query_rank": 1536, "rope_width": 64, "value_width": 128}
    known, described = (
        validate_runs(written(tmp_path, accel=accel)).runs[0] for accel in ("h100", sheet)
    )
    assert described.accelerator == "other"
    assert described.model_s == pytest.approx(known.model_s)
    (slow,) = validate_runs(written(tmp_path, nic_gbps=1.0)).runs
    assert slow.model_s == known.model_s  # nothing leaves the server
    (run,) = read_runs(written(tmp_path, latent=latent, layouts=[
        {**RUN["layouts"][0], "expert_tensor": 1, "virtual": 3}
    ]))  # fmt: skip
    assert run.model.attention.latent is not None
    assert run.layouts[0].expert_tensor is None
    path = tmp_path / "named.json"
    shape = {key: RUN[key] for key in ("hidden", "ffn", "gated", "layers", "heads", "kvw", "vocab")}
    rest = {key: value for key, value in RUN.items() if key not in (*shape, "qw", "moe")}
    for model in ("mine", "llama3-8b"):
        path.write_text(json.dumps({"models": {"mine": shape}, "runs": [{**rest, "model": model}]}))
        assert validate_runs(path).runs[0].model_s == pytest.approx(known.model_s)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "ffn", "experts", "per_token"),
    [(64, 6144, 48, 32768, 8, 2), (8, 6144, 48, 32768, 8, 2), (28, 6144, 48, 16384, 8, 2),
     (40, 6144, 48, 10752, 16, 4), (24, 2880, 64, 2880, 32, 4), (94, 4096, 64, 12288, 128, 8),
     (61, 7168, 64, 18432, 384, 8)],
)  # fmt: skip
def test_experts_that_a_run_does_not_print_are_those_of_the_released_model(
    tmp_path, layers, hidden, heads, ffn, experts, per_token
) -> None:
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "ffn": ffn, "moe": True,
             "qw": hidden, "kvw": hidden}  # fmt: skip
    (run,) = read_runs(written(tmp_path, **shape))
    assert run.model.experts is not None
    assert run.model.layers == layers
    assert (run.model.experts.count, run.model.experts.per_token) == (experts, per_token)


def test_the_published_runs_are_true_where_nothing_was_fitted() -> None:
    """docs/llm.md prints these; the rows are named so that a lost one is seen."""
    found = {one.group: one for one in validate_runs("published").summaries}
    assert found["all"].runs == 190
    assert found["held out"].runs == 146
    assert found["held out"].mean < 0.07
    assert found["held out: dense, bf16"].runs == 36
    assert found["held out: dense, bf16"].mean < 0.035
    assert found["held out: dense, bf16"].max < 0.12
    assert found["held out: dense, fp8"].mean < 0.05
    assert found["held out: experts, bf16"].mean < 0.04
    assert found["held out: experts, fp8"].mean < 0.1
    assert found["held out: hybrid, bf16"].runs == 7
    assert found["held out: hybrid, bf16"].mean < 0.21
    assert found["held out: hybrid, fp8"].runs == 17
    assert found["held out: hybrid, fp8"].mean < 0.18
    hybrids = {run.name for run in read_runs("published") if run.model.linear}
    runs = validate_runs("published").runs
    assert (
        max(abs(run.error) for run in runs if run.stack == "nemo" and run.name not in hybrids)
        < 0.12
    )
    assert [run.name for run in runs if not run.fits and run.name not in hybrids] == []
    assert sum(not run.fits for run in runs) == 5


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=6), st.floats(0.2, 3.0))
def test_no_time_for_rows_told_alike_is_below_their_floor(times, guess) -> None:
    base = PUBLISHED[0]
    runs = [replace(base, name=str(i), seconds=time) for i, time in enumerate(times)]
    floor = least_errors([*runs, replace(base, batch=base.batch * 2)])
    errors = [abs(guess / time - 1.0) for time in times]
    assert floor.mean <= sum(errors) / (len(times) + 1) + 1e-12
    assert floor.max <= max(errors) + 1e-12
    if len(times) > 1:
        # Both are reached: by one of the times, and where the ends are equally far.
        reached = (sum(abs(one / time - 1.0) for time in times) for one in times)
        assert floor.mean == pytest.approx(min(reached) / (len(times) + 1))
        ends = (min(times), max(times))
        middle = 2.0 / sum(1.0 / end for end in ends)
        assert floor.max == pytest.approx(max(abs(middle / end - 1.0) for end in ends), abs=1e-9)
        assert (floor.runs, floor.jobs) == (len(times), 1)
    else:
        assert floor == Floor(0, 0, 0.0, 0.0)


def test_what_attention_costs_depends_on_its_kernel() -> None:
    """0.64 of the rate by FlashAttention 2 on H100, all of it on A100."""
    work = Work(attention_flops=1e15)
    for name, share in (("h100", 0.64), ("a100", 1.0)):
        rates = rates_of(name)
        fast, slow = (rates.attention_seconds(work, kernel) for kernel in ("cudnn", "flash-2"))
        assert slow == pytest.approx(fast / share)


def test_nothing_hides_what_tensor_ranks_gather_for_an_expert() -> None:
    model = get_transformer("mixtral-8x7b")
    layout = Layout(tensor=4, data=8, expert=8)
    costs = layer_costs(training_of(model, layout, MEGATRON_CORE), 0)
    messages = layer_communications(training_of(model, layout, MEGATRON_CORE), 0)
    rates, links = rates_of("h100"), links_of("h100", 8, 50e9)
    gathered = [m for m in messages if m.exposed and m.when == "forward"]
    assert {(m.kind, m.ranks) for m in gathered} == {("allgather", 4), ("reducescatter", 4)}
    sent = sum(communication_seconds(m, layout, links) for m in gathered)
    whole = replace(MEGATRON_CORE, overlap_tensor=1.0, overlap_expert=1.0)
    alone = [m for m in messages if not m.exposed]
    times = [
        part_seconds(training_of(model, layout, whole), costs, some, rates, links).forward
        for some in (messages, alone)
    ]
    assert times[0] - times[1] == pytest.approx(sent)


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


def test_what_hides_costs_its_share_of_sending() -> None:
    """Sums of gradients, messages of a tensor group, and inputs that are gathered again."""
    model, layout = get_transformer("llama3-8b"), Layout(tensor=4, data=4)
    rates, links = rates_of("h100"), links_of("h100", 8, 50e9)
    free = replace(MEGATRON_CORE, overlap_tensor=1.0)
    costs = layer_costs(training_of(model, layout, free), 0)
    messages = layer_communications(training_of(model, layout, free), 0)
    apart, beside = (
        part_seconds(
            training_of(model, layout, replace(free, sending=share)), costs, messages, rates, links
        )
        for share in (0.0, 0.25)
    )
    for when, whole in (("forward", 1), ("backward", 1), ("weight", 1)):
        sent = whole * sum(
            m.count * communication_seconds(m, layout, links) for m in messages if m.when == when
        )
        assert sent > 0.0
        assert getattr(beside, when) - getattr(apart, when) == pytest.approx(sent / 4)
    assert beside.communication - apart.communication == pytest.approx(
        sum(m.count * communication_seconds(m, layout, links) for m in messages) / 4
    )
    alone = Layout(data=8)
    hidden, lost, exposed = (
        iteration_time(
            training_of(model, alone, replace(free, sending=s, overlap_data=d)),
            schedule_of(alone, 64),
            rates,
            links,
        )
        for s, d in ((0.0, 1.0), (0.25, 1.0), (0.0, 0.75))
    )
    assert lost > hidden
    assert lost - hidden == pytest.approx(exposed - hidden)
    with pytest.raises(InputError, match="sending"):
        replace(free, sending=1.5)


def test_a_fused_loss_keeps_and_moves_logits_as_they_are() -> None:
    model, layout = get_transformer("llama3-8b"), Layout(data=8, zero=3)
    plain = replace(FSDP1, logit_bytes=8.0)
    logits = model.sequence * model.vocabulary
    heads = [head_costs(training_of(model, layout, stack)) for stack in (plain, FSDP1)]
    traffic = [each.forward.traffic + each.backward_input.traffic for each in heads]
    assert traffic[0] - traffic[1] == pytest.approx((18 + 10 - 2 - 4) * logits)
    uses = [
        memory_use(training_of(model, layout, stack), schedule_of(layout, 8))[0]
        for stack in (plain, FSDP1)
    ]
    assert uses[0].activations - uses[1].activations == pytest.approx(2 * logits)
    assert uses[0].buffers - uses[1].buffers == pytest.approx(4 * logits)
    with pytest.raises(InputError, match="logit_bytes"):
        replace(FSDP1, logit_bytes=3.0)


def test_a_run_says_the_width_of_its_sums_and_whether_it_fits(tmp_path) -> None:
    wide, narrow = (
        read_runs(written(tmp_path, software="nemo", gradient_bytes=width))[0] for width in (4, 2)
    )
    assert wide.implementation == replace(STACKS["nemo"], gradient_bytes=4)
    assert narrow.implementation == STACKS["nemo"]
    found = [
        validate_runs(written(tmp_path, software="nemo", gradient_bytes=w)).runs[0] for w in (4, 2)
    ]
    assert [run.fits for run in found] == [False, True]
    shown = CliRunner().invoke(app, ["validate", "llm", "--runs", str(written(tmp_path))]).stdout
    assert "Of 1 run 1 do not fit into memory by the model: small." in shown


def test_a_run_says_what_its_recipe_hides_and_sends_in_fp8(tmp_path) -> None:
    said = {"overlap_tensor": 0.0, "fp8_scatter": True}
    (run,) = read_runs(written(tmp_path, software="nemo", **said))
    assert run.implementation == replace(STACKS["nemo"], **said)
    with pytest.raises(InputError, match="overlap_tensor"):
        read_runs(written(tmp_path, software="nemo", overlap_tensor=2.0))


@pytest.mark.parametrize("group", ["tensor", "data", "pipeline"])
def test_more_overlap_is_never_slower(group) -> None:
    layout = Layout(tensor=4, context=2, pipeline=2, data=4)
    times = []
    for share in (0.0, 0.3, 0.7, 1.0):
        stack = {**{f: getattr(FSDP2, f) for f in FSDP2.__dataclass_fields__},
                 f"overlap_{group}": share}  # fmt: skip
        times.append(
            iteration_time(
                training_of(get_transformer("llama3-8b"), layout, type(FSDP2)(**stack)),
                schedule_of(layout, 32),
                rates_of("h100"),
                links_of("h100", 8, 50e9),
            )
        )
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


@pytest.mark.parametrize("name", STACKS)
def test_memory_is_never_below_weights_and_optimizer(name) -> None:
    model, stack = get_transformer("llama3-8b"), get_stack(name)
    (use,) = memory_use(
        training_of(model, Layout(data=8, zero=3), stack), schedule_of(Layout(data=8, zero=3), 8)
    )
    least = model.parameters / 8 * (2 + stack.gradient_bytes + stack.optimizer_bytes)
    assert use.states == pytest.approx(least)
    assert use.total >= least + stack.runtime_bytes + use.activations
