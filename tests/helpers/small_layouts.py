"""A small transformer on a few servers, and plans of it that several test modules share."""

from functools import lru_cache

from small_plans import assert_valid, planned
from small_transformers import gpt

import topoopt as to
from parallelism.transformers.enumeration import Choices
from topoopt.problem.job import nvlink_server


def layout_job(**choices):
    """Return a GPT of eight layers, servers of four H100s, and the layouts that are considered."""
    wanted = Choices(**{"context": (1, 2), "microbatch": (1, 2), **choices})
    return to.Job(
        gpt(8, 1024, 16, 5000), server=nvlink_server("h100", 4), global_batch=16, choices=wanted
    )


def _solved(job, servers=4, **asked):
    plan = planned(
        job, to.Cluster(servers, 3, "100Gbps"),
        **{"simulated": 4, "baselines": ("ideal-switch", "fat-tree"), **asked},
    )  # fmt: skip
    assert_valid(plan)
    return plan


@lru_cache(maxsize=1)
def shared_layout_plan():
    """Return a plan with a pipeline, inside servers and between, and all kinds of messages."""
    return _solved(layout_job())


@lru_cache(maxsize=1)
def shared_spanning_plan():
    """Return a plan whose tensor groups, and thus devices, each take two servers."""
    return _solved(layout_job(tensor=(8,), pipeline=(1,), across_servers=True))


@lru_cache(maxsize=1)
def lone_layout_plan():
    """Return a plan for one server."""
    return _solved(layout_job(), servers=1, simulated=1, baselines=())
