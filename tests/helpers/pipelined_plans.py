"""A plan by layouts of several stages, and the same with other layouts."""

import functools
from dataclasses import replace

from small_layouts import layout_job
from small_plans import planned

import topoopt as to


@functools.cache
def pipelined_plan():
    """A plan by layouts with a pipeline of two stages on servers of four GPUs."""
    job = layout_job(tensor=(2,), pipeline=(2,), context=(1,), microbatch=(1,))
    cluster = to.Cluster(4, 3, "100Gbps")
    return planned(job, cluster, simulated=2, baselines=())


def with_layout(plan, **fields):
    """The same plan with another layout, for what does not look at the rest of it."""
    record = plan.parallelization
    return replace(plan, parallelization=replace(record, layout=replace(record.layout, **fields)))
