"""Methods compared under the control loop: what the best one promises, on real and drawn jobs."""

import numpy as np
import pytest
from clos_data import clos_data

from codesign_base import InfeasibleError, InputError
from routing.clos.jobs import RingJob
from topoopt.clos import VARIANTS, Clos, draw_jobs, run_methods, run_variant
from topoopt.formats.clos_traffic import load_traffic_folder

CLOS = Clos.uniform(64, 32)
RIVALS = ("greedy", "edge-coloring")
DATA = clos_data()
FOLDERS = sorted(DATA.glob("*/ring_size_*"))


def check(jobs, failed, epochs=3):
    """No worse than the rivals; strictly better under failures; return the mean slowdowns."""
    fabric = CLOS.with_failed_spines(range(failed))
    results = {r.method: r for r in run_methods(fabric, jobs, [*RIVALS, "best"], epochs)}
    best = results["best"]
    for rival in RIVALS:
        assert best.mean_slowdown <= results[rival].mean_slowdown + 1e-9
        assert best.worst_slowdown <= results[rival].worst_slowdown + 1e-9
        if failed:
            assert best.mean_slowdown < results[rival].mean_slowdown
    if failed == 0:
        assert best.worst_slowdown == pytest.approx(1.0, abs=1e-9)
    # No link carries more than this many flows, and no job can be faster than the fluid bound.
    assert best.worst_slowdown <= -(-32 // (32 - failed)) + 1e-9
    return best


@pytest.mark.skipif(not FOLDERS, reason="needs the published traffic files")
@pytest.mark.parametrize(
    "failed", [*(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 4)), 8]
)
def test_best_on_the_published_job_files(failed):
    for folder in FOLDERS:
        check(load_traffic_folder(folder, CLOS), failed)


@pytest.mark.parametrize(
    "failed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4)), 8]
)
@pytest.mark.parametrize("count", [1, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_best_on_random_job_sets(count, failed):
    for ring in (2, 4, 8):
        check(draw_jobs(CLOS, count, ring, 10 * count + ring), failed, 2)


def test_a_single_job_runs_near_the_fluid_bound():
    # Full ToRs: 32 flows over 31, 28 and 24 live spines.
    jobs = draw_jobs(CLOS, 1, 8, 0)
    for failed in (1, 4, 8):
        bound = 32 / (32 - failed)
        assert bound - 1e-9 <= check(jobs, failed).mean_slowdown <= 1.03 * bound


def test_static_routes_and_rotated_ones_keep_the_loads():
    jobs = draw_jobs(CLOS, 2, 4, 1)
    fabric = CLOS.with_failed_spines([3])
    still = run_variant(fabric, jobs, "best-static", 2)
    moving = run_variant(fabric, jobs, "best", 2)
    assert still.moved_flows < moving.moved_flows
    assert moving.mean_slowdown < still.mean_slowdown <= 2 + 1e-9


@pytest.mark.parametrize("failed", [0, 1, 4, 8])
def test_spraying_full_tors_takes_flows_over_live_links(failed):
    fabric = CLOS.with_failed_spines(range(failed))
    (found,) = run_methods(fabric, draw_jobs(CLOS, 3, 4, 0), ["spray"], 2)
    expected = 32 / (32 - failed)
    assert found.mean_slowdown == pytest.approx(expected)
    assert found.worst_slowdown == pytest.approx(expected)
    assert found.moved_flows == found.decisions == 0


def test_spraying_shares_what_links_a_tor_has():
    # Six flows leave ToR 0 over four links, then over three and a half; ToR 1 receives by four.
    jobs = [RingJob("a", np.arange(12).reshape(2, 6).T, 12.5e9)]
    fabric = Clos.uniform(2, 4, nics_per_tor=6)
    for broken, expected in (
        (fabric, 6 / 4),
        (fabric.with_share(0, 1, 0.5, "up"), 6 / 3.5),
        (fabric.with_share(0, 1, 0.0, "up").with_share(1, 2, 0.0, "down"), 6 / 3),
    ):
        (found,) = run_methods(broken, jobs, ["spray"], 2)
        assert found.worst_slowdown == pytest.approx(expected)
    for spine in range(4):
        fabric = fabric.with_share(0, spine, 0.0, "up")
    with pytest.raises(InfeasibleError, match="ToR 0 has no live link up for flow 0"):
        run_methods(fabric, jobs, ["spray"], 2)


def test_prediction_is_for_best_only_unless_asked_for():
    """Static routes chosen for what is in flight change with every AllReduce; see docs/clos.md."""
    fabric = CLOS.with_failed_spines([0])
    jobs = draw_jobs(CLOS, 2, 2, 0)
    default, without, predicted = (
        run_methods(fabric, jobs, ["greedy"], 3, predict=predict)[0]
        for predict in (None, False, True)
    )
    assert default.mean_slowdown == without.mean_slowdown <= predicted.mean_slowdown
    best, kept = (run_methods(fabric, jobs, ["best"], 3, predict=p)[0] for p in (None, True))
    assert best.mean_slowdown == kept.mean_slowdown


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_all_variants_run(name):
    fabric = Clos.uniform(8, 6, nics_per_tor=30).with_failed_spines([0])
    result = run_variant(fabric, draw_jobs(fabric, 1, 2, 0), name, 2)
    assert result.method == name
    assert np.isfinite(result.mean_slowdown) and result.mean_slowdown >= 1 - 1e-9
    with pytest.raises(InputError, match="variant 'worst' is unknown"):
        run_variant(fabric, draw_jobs(fabric, 1, 2, 0), "worst")
