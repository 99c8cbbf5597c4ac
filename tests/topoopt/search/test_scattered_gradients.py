"""ZeRO 2 by default: without pipelines, where ZeRO 1 does not fit in memory."""

from dataclasses import replace

from small_transformers import gpt

import topoopt as to
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.choices import Choices
from topoopt.bounds.everything import everything_bound
from topoopt.evaluate.problem import Problem
from topoopt.search.survey import survey

SMALL = gpt(8, 1024, 16, 5000)
CLUSTER = to.Cluster(4, 2, "25Gbps")
FEW = to.SearchOptions(simulated=4)
JOB = to.Job(
    SMALL, global_batch=16, server=Server(get_accelerator("h100"), 1, 150e9),
    choices=Choices(microbatch=(1, 4), pipeline=(1, 2)),
)  # fmt: skip


def most(family, layout):
    return max(use.total for use in family.uses(layout))


def tight(pipeline):
    """Return a job with memory for ZeRO 2, but not 1, of the layout that needs least."""
    job = replace(JOB, choices=replace(JOB.choices, pipeline=pipeline))
    family = job.family(4)
    flat = [x for x in family.layouts() if x.zero == 1 and x.pipeline == 1]
    least = min(flat, key=lambda layout: most(family, layout))
    needs = (most(family, least) + most(family, replace(least, zero=2))) / 2
    usable = get_accelerator("h100").usable_bytes
    return replace(job, memory_reserve=1.0 - needs / usable)


def test_zero_2_takes_the_place_of_what_does_not_fit():
    family = tight((1, 2)).family(4)
    listed = family.layouts()
    second = [layout for layout in listed if layout.zero == 2]
    firsts = [x for x in listed if x.zero == 1 and x.pipeline == 1]
    lacking = [x for x in firsts if most(family, x) > family.memory_limit]
    assert second == [replace(layout, zero=2) for layout in lacking] and second
    assert {x.zero for x in listed if x.pipeline > 1} == {1}
    # Where all fits, and where stages are asked for, there is none.
    assert {x.zero for x in JOB.family(4).layouts()} == {1, 3}
    asked = replace(family, choices=replace(JOB.choices, zero=(1, 3)))
    assert set(listed) - set(second) == set(asked.layouts())


def test_plans_use_it_and_the_bound_holds_for_it(tmp_path):
    job = tight((1,))
    family = job.family(4)
    found = survey(Problem(family, CLUSTER))
    fits = sum(most(family, x) <= family.memory_limit for x in family.layouts())
    assert len(found.bounded) == fits and found.layouts == len(family.layouts())
    assert found.least.result() == everything_bound(family, CLUSTER)
    plan = to.co_optimize(job, CLUSTER, FEW)
    assert plan.parallelization.layout.zero == 2
    before = replace(job, choices=replace(job.choices, zero=(1, 3)))
    assert plan.iteration_time_s < 0.99 * to.co_optimize(before, CLUSTER, FEW).iteration_time_s
    path = tmp_path / "plan.json"
    plan.save(path)
    assert to.verify_plan(path).ok
