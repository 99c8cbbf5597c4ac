"""Validation: what is compared, how errors are counted, and the accuracy that is promised."""

from dataclasses import replace
from pathlib import Path

import pytest
from fbuf_oracle import data_directory

from codesign_base import InputError
from topoopt.fabric import Transport, score
from topoopt.studies.replay import replay_fabric
from topoopt.studies.validation import validate
from topoopt.studies.validation.closed_forms import closed_forms
from topoopt.studies.validation.reference import packet_level
from topoopt.studies.validation.reference_cases import data_directory as chosen_directory
from topoopt.studies.validation.results import Case, ModelResult, summaries
from topoopt.studies.workload import load_workload

DATA = data_directory()
published = pytest.mark.skipif(DATA is None, reason="the published task graphs are not here")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("TOPOOPT_DATA", raising=False)


def test_the_table_is_carried_with_its_source():
    table = packet_level()
    assert "NSDI 2023" in table.source and "DCTCP" in table.setting and "CANDLE" in table.noise
    assert len(table.times) == 25
    assert len({time.graph for time in table.times}) == 13
    found = {(time.graph, time.fabric): time for time in table.times}
    assert len(found) == 25
    assert found["100dlrm_128", "fat-tree"].time_s == pytest.approx(0.2460935)
    assert found["400candle_16", "fat-tree"].wall_time_s == 36.8
    assert found["400vgg_16", "ideal"].bandwidth == 50e9
    assert ("400transformer_16", "fat-tree") not in found
    # Of noisy graphs the mean of runs with perturbed delays, not the run that was published.
    assert found["400candle_16", "ideal"].time_s == pytest.approx(0.181535, abs=1e-6)


def test_closed_forms_need_no_data():
    found = validate(cases="*-*-*")
    closed = found.cases
    assert [case.name for case in closed] == [form.name for form in closed_forms()]
    assert {case.family for case in closed} == {
        "ring-allreduce", "all-to-all", "incast", "parking-lot"
    }  # fmt: skip
    for case in closed:
        fluid, packet = case.results["fluid"], case.results["packet"]
        assert abs(fluid.error) <= 1e-9
        shared = {"parking-lot": 0.02, "incast": 1e-3}
        assert abs(packet.error) <= shared.get(case.family, 1e-9)
        assert fluid.tolerance is not None
    assert not any(summary.beyond_tolerance for summary in found.summaries)


def test_the_formulas_are_what_they_say():
    """In numbers: 100 MB over 4 servers at 100 Gbps with 1 us hops takes 12 ms and the lags."""
    by_name = {form.name: form.time_s for form in closed_forms()}
    packets = -(-25_000_000 // 8936) * 8936
    assert by_name["ring-allreduce-4-direct-ring"] == pytest.approx(6 * (packets / 12.5e9 + 2e-6))
    packets = -(-10_000_000 // 8936) * 8936
    assert by_name["incast-4-ideal-switch"] == pytest.approx(
        3 * packets / 12.5e9 + 4e-6 + 8936 / 12.5e9
    )


def test_cases_without_data_are_listed(tmp_path):
    for data, reason in ((None, "no data directory"), (tmp_path, "100vgg_16.fbuf is not in")):
        found = validate(data, cases="100vgg_16/*", models=("fluid",))
        assert [case.name for case in found.cases] == [
            "100vgg_16/ideal-switch", "100vgg_16/fat-tree"
        ]  # fmt: skip
        assert all(case.skipped and reason in case.skipped for case in found.cases)
        assert found.summaries == ()


def test_where_data_is_found(tmp_path, monkeypatch):
    assert chosen_directory() is None
    assert chosen_directory(tmp_path) == tmp_path
    (tmp_path / "taskgraphs").mkdir()
    monkeypatch.setenv("TOPOOPT_DATA", str(tmp_path))
    assert chosen_directory() == tmp_path / "taskgraphs"
    monkeypatch.setenv("TOPOOPT_DATA", "")
    assert chosen_directory() is None


def test_what_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        validate(tmp_path / "none")
    with pytest.raises(InputError, match="now called 'packet'"):
        validate(models=("train",))
    with pytest.raises(InputError, match="no simulation model"):
        validate(models=())
    with pytest.raises(InputError, match="no case is called 'none'"):
        validate(cases="none")
    (tmp_path / "100vgg_16.fbuf").write_bytes(b"torn")
    with pytest.raises(InputError, match="100vgg_16"):
        validate(tmp_path, cases="100vgg_16/*")


def test_summaries():
    def case(name, family, error, tolerance=None):
        result = ModelResult(1.0 + error, error, 1.0, 0.1, tolerance=tolerance)
        kind = "closed-form" if tolerance is not None else "packet-level"
        return Case(name, kind, family, 1.0, None, {"fluid": result})

    cases = (
        case("a", "x", -0.3), case("b", "x", 0.1), case("c", "y", 0.2),
        case("d", "z", 0.02, 0.01), case("e", "z", -0.005, 0.01),
        Case("f", "packet-level", "y", 1.0, None, {}, "no data"),
    )  # fmt: skip
    every, x, y, closed, z = summaries(cases, ("fluid",))
    assert (every.family, every.cases, every.median, every.max) == ("all", 3, 0.2, 0.3)
    assert every.mean == pytest.approx(0.2)
    assert (x.family, x.cases, x.max) == ("x", 2, 0.3)
    assert (y.family, y.cases) == ("y", 1)
    assert (closed.kind, closed.beyond_tolerance) == ("closed-form", ("d",))
    assert z.family == "z"


def test_progress_and_repeated_models():
    seen = []
    found = validate(cases="incast-*", models=("fluid", "fluid"), progress=seen.append)
    assert tuple(seen) == found.cases
    assert [summary.model for summary in found.summaries] == ["fluid", "fluid"]  # all, incast


def errors(found, model):
    return {
        family: next(
            s for s in found.summaries if s.model == model and s.family == family
        )
        for family in ("all", "vgg", "transformer", "dlrm", "candle")
    }  # fmt: skip


@published
def test_the_fluid_model_is_as_true_as_promised():
    found = validate(DATA, models=("fluid",), cases="*_*/*")
    assert all(case.skipped is None for case in found.cases) and len(found.cases) == 25
    worst = errors(found, "fluid")
    assert worst["all"].median <= 0.006
    assert max(worst[family].max for family in ("vgg", "transformer", "dlrm")) <= 0.03
    assert worst["candle"].max <= 0.13


@published
@pytest.mark.slow
def test_the_train_model_is_as_true_as_promised():
    found = validate(DATA, models=("packet",), cases="*_*/*")
    worst = errors(found, "packet")
    assert worst["all"].median <= 0.003
    # 100dlrm_32 on the ideal switch has 1.3 % in single packets.
    assert max(worst[family].max for family in ("vgg", "transformer", "dlrm")) <= 0.016
    assert worst["candle"].max <= 0.02
    for case in found.cases:
        assert case.results["packet"].copies == (5 if case.family == "candle" else 1)


@pytest.mark.slow
@published
def test_a_noisy_case_is_a_mean_of_copies():
    found = validate(DATA.parent, cases="400candle_16/ideal-switch", models=("packet",))
    result = found.cases[0].results["packet"]
    assert result.copies == 5 and result.spread_s > 0.0
    assert abs(result.error) <= 0.02
    assert result.default_time_s != result.time_s


@published
@pytest.mark.parametrize(
    ("graph", "gbps", "seconds", "without_timers"),
    [
        ("100dlrm_16", 10, 0.579826, 0.559508),
        ("100dlrm_16", 25, 0.229521, 0.225594),
        ("100dlrm_32", 25, 0.322625, 0.306003),
    ],
)
def test_first_windows_that_wait_longer_than_timers_go_twice(graph, gbps, seconds, without_timers):
    """Replays by the packet simulator on a Fat-tree, as published and with endless timers."""
    workload = load_workload(Path(DATA) / f"{graph}.fbuf")
    replay = replay_fabric(
        workload, "fat-tree", bandwidth=f"{gbps}Gbps", latency="1us", compat="htsim"
    )
    for timeout, expected in ((0.010, seconds), (0.0, without_timers)):
        transport = Transport(htsim=True, timeout=timeout)
        fabric = replace(replay.fabric, transport=transport)
        found = score(fabric, workload.tasks, model="packet")
        assert found == pytest.approx(expected, rel=0.02)
