"""The best strategy on a fixed fabric is no slower than any start, and takes the time given."""

import numpy as np
import pytest
from small_plans import small_dlrm

from topoopt.evaluate.scoring import Scorer
from topoopt.fabric.fabric import Fabric
from topoopt.problem.budget import Budget
from topoopt.studies.fixed_fabric import best_on
from topoopt.studies.setting import setting
from topoopt.topology.fabrics import ideal_switch


@pytest.mark.parametrize("steps", [0, 30])
def test_the_best_is_no_slower_than_any_start(steps):
    given = setting(small_dlrm(2), 4, 2, 25.0)
    fabric = Fabric("switch", *ideal_switch(4, 6.25e9, 1e-6), {})
    starts = given.strategies()
    found, time, origin = best_on(
        fabric, given.problem(), given.space, starts, Budget(steps=steps), np.random.default_rng(0)
    )
    exact = Scorer(given.problem().plain, fabric)
    assert time == exact(found) <= min(exact(start) for start in starts.values())
    assert origin == "search" or starts[origin] == found
    assert steps or origin != "search"
