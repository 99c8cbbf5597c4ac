"""Jobs drawn from models: they fit, share no NIC and are the same for one seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from routing.clos.fabric import Clos
from topoopt.clos.presets import ClosModel, draw_jobs

MODELS = (
    ClosModel("small", 25.0, 3, 1, 1.0, "made up"),
    ClosModel("large", 175.0, 1, 5, 2.0, "made up"),
)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(2, 4))
def test_random_sets_fit_and_share_no_nic(seed, count, replicas):
    clos = Clos.uniform(12, 8)
    jobs = draw_jobs(clos, count, replicas, seed, MODELS)
    again = draw_jobs(clos, count, replicas, seed, MODELS)
    assert len(jobs) == count
    nics = np.concatenate([job.nics.ravel() for job in jobs])
    assert np.unique(nics).size == nics.size
    assert nics.max() < 12 * 8
    for job, same in zip(jobs, again, strict=True):
        assert np.array_equal(job.nics, same.nics)
        assert (job.name, job.start_time) == (same.name, same.start_time)
        assert job.replicas == replicas
        assert 0 <= job.start_time < 10


def test_sets_are_drawn_among_those_that_fit():
    clos = Clos.uniform(5, 4)  # room for three small jobs, or one large and one small
    seen = {
        tuple(sorted(job.name for job in draw_jobs(clos, 2, 2, seed, MODELS))) for seed in range(60)
    }
    assert seen == {("small", "small"), ("large", "small"), ("large", "large")}
    names = [job.name for job in draw_jobs(clos, 3, 2, 0, MODELS)]
    assert names == ["small"] * 3
    with pytest.raises(InfeasibleError, match="at least 24 NICs"):
        draw_jobs(clos, 4, 2, 0, MODELS)
    with pytest.raises(InputError, match=r"^0 random jobs are to be drawn; give at least 1$"):
        draw_jobs(clos, 0, 2, 0, MODELS)
    with pytest.raises(InputError, match="replicas is 1; a ring needs at least 2"):
        draw_jobs(clos, 9, 1, 0, MODELS)
