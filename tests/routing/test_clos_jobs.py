"""Jobs, their placement and the flows that they cause."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from routing.clos.fabric import Clos
from routing.clos.jobs import RingJob, flows_of, place_rings, ring_flow_bytes


def test_flows_go_round_each_ring():
    clos = Clos.uniform(4, 2)
    job = RingJob("job", np.array([[0, 2, 4], [1, 3, 5]]), 7.0, 1.0)
    flows = flows_of(clos, [job])
    assert flows.source_nic.tolist() == [0, 2, 4, 1, 3, 5]
    assert flows.target_nic.tolist() == [2, 4, 0, 3, 5, 1]
    assert flows.source_tor.tolist() == [0, 1, 2, 0, 1, 2]
    assert flows.target_tor.tolist() == [1, 2, 0, 1, 2, 0]
    assert flows.bytes_.tolist() == [7.0] * 6
    assert flows.weight.tolist() == [1.0] * 6
    assert (job.rings, job.replicas, job.flows, job.steps) == (2, 3, 6, 4)
    assert job.floor(2.0) == 4 * 7.0 / 2.0


def test_jobs_are_numbered_by_their_positions():
    clos = Clos.uniform(4, 2)
    jobs = [RingJob("a", np.array([[0, 2]]), 1.0), RingJob("b", np.array([[1, 3]]), 2.0)]
    assert flows_of(clos, jobs).job.tolist() == [0, 0, 1, 1]
    assert flows_of(clos, []).count == 0


@pytest.mark.parametrize(
    ("billions", "group", "sizes"),
    [
        (176, 48, (7333333334, 3666666667, 1833333334)),
        (175, 64, (5468750000, 2734375000, 1367187500)),
        (70, 128, (1093750000, 546875000, 273437500)),
    ],
)
def test_flow_sizes_of_the_published_job_files(billions, group, sizes):
    found = tuple(ring_flow_bytes(4e9 * billions, group, replicas) for replicas in (2, 4, 8))
    assert found == sizes


@given(st.integers(1, 10**13), st.integers(1, 5000), st.integers(2, 64))
def test_flow_sizes_round_up_in_whole_numbers(copy, group, replicas):
    shard = (copy + group - 1) // group
    assert ring_flow_bytes(float(copy), group, replicas) == (shard + replicas - 1) // replicas


def test_random_replicas_fill_tor_after_tor():
    clos = Clos.uniform(64, 32)
    nics = place_rings(clos, 48, 4, "random", rng=np.random.default_rng(3))
    for replica in nics.T:
        _, counts = np.unique(replica // 32, return_counts=True)
        assert sorted(counts.tolist()) == [16, 32]
    # No ToR serves two replicas while untouched ones remain.
    assert np.unique(nics // 32).size == 8


def test_the_last_nics_are_found():
    clos = Clos.uniform(4, 3)
    first = RingJob("a", place_rings(clos, 3, 2, "random", rng=np.random.default_rng(0)), 1.0)
    rest = place_rings(clos, 3, 2, "random", [first], np.random.default_rng(1))
    assert sorted([*first.nics.ravel(), *rest.ravel()]) == list(range(12))
    with pytest.raises(InfeasibleError, match="do not fit on the 6 free of 12"):
        place_rings(clos, 2, 4, "packed", [first])


def test_packed_replicas_are_neighbours():
    clos = Clos.uniform(4, 3)
    first = RingJob("a", place_rings(clos, 2, 2, "packed"), 1.0)
    assert first.nics.tolist() == [[0, 2], [1, 3]]
    assert place_rings(clos, 2, 2, "packed", [first]).tolist() == [[4, 6], [5, 7]]


def test_wrong_input_is_named():
    clos = Clos.uniform(2, 2)
    with pytest.raises(InputError, match="NIC 1 occurs 2 times"):
        RingJob("a", np.array([[0, 1], [1, 2]]), 1.0)
    with pytest.raises(InputError, match="shape"):
        RingJob("a", np.array([[0]]), 1.0)
    with pytest.raises(InputError, match="NIC -1 is negative"):
        RingJob("a", np.array([[0, -1]]), 1.0)
    with pytest.raises(InputError, match="flow_bytes is 0"):
        RingJob("a", np.array([[0, 1]]), 0.0)
    with pytest.raises(InputError, match="compute_time is nan"):
        RingJob("a", np.array([[0, 1]]), 1.0, float("nan"))
    with pytest.raises(InputError, match="uses NIC 9"):
        flows_of(clos, [RingJob("a", np.array([[0, 9]]), 1.0)])
    with pytest.raises(InputError, match="placement is 'tight'"):
        place_rings(clos, 1, 2, "tight")
    with pytest.raises(InputError, match="random generator"):
        place_rings(clos, 1, 2, "random")
    with pytest.raises(InputError, match="give at least 1"):
        place_rings(clos, 0, 2, "packed")
    with pytest.raises(InputError, match="replicas"):
        ring_flow_bytes(1.0, 1, 1)
