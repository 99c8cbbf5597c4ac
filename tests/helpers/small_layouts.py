"""A small transformer on a few servers, and plans of it that several test modules share."""

from functools import lru_cache

from small_plans import assert_valid, planned
from small_transformers import ONE_PART, gpt

import topoopt as to
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.choices import Choices
from parallelism.transformers.experts import Experts
from topoopt.problem.job import nvlink_server

# Fewer layouts, of which the fastest are the same.
FEW = {"zero": (1,), "microbatch": (1,)}


def layout_job(**choices):
    """Return a GPT of eight layers, servers of four H100s, and the layouts that are considered."""
    few = {"pipeline": (1, 4), "recompute": ("none",), "schedules": ("1f1b", "zero-bubble")}
    wanted = Choices(**{"context": (1, 2), "microbatch": (1, 2), **few, **choices})
    return to.Job(
        gpt(8, 1024, 16, 5000), server=nvlink_server("h100", 4), global_batch=16, choices=wanted
    )


def solved(job, servers=4, **asked):
    """Plan for servers of three ports, and check that the plan's proof holds."""
    plan = planned(
        job, to.Cluster(servers, 3, "100Gbps"),
        **{"simulated": 4, "baselines": ("ideal-switch", "fat-tree"), **asked},
    )  # fmt: skip
    assert_valid(plan)
    return plan


@lru_cache(maxsize=1)
def shared_layout_plan():
    """Return a plan with a pipeline, inside servers and between, and all kinds of messages."""
    return solved(layout_job(**FEW))


@lru_cache(maxsize=1)
def shared_spanning_plan():
    """Return a plan whose tensor groups, and thus devices, each take two servers."""
    return solved(layout_job(tensor=(8,), pipeline=(1,), across_servers=True, **FEW))


@lru_cache(maxsize=1)
def lone_layout_plan():
    """Return a plan for one server."""
    return solved(layout_job(**FEW), servers=1, simulated=1, baselines=())


@lru_cache(maxsize=1)
def shared_heads_plan():
    """Return a plan of four servers whose context groups exchange heads of Mamba-2.

    The first of two stages has attention as well, whose keys and values go round.
    """
    choices = Choices(
        tensor=(1,), pipeline=(2,), context=(4,), microbatch=(1,), zero=(1,),
        recompute=("none",), schedules=("1f1b",),
    )  # fmt: skip
    job = to.Job(ONE_PART, server=nvlink_server("h100", 2), global_batch=8, choices=choices)
    plan = planned(job, to.Cluster(4, 3, "100Gbps"), simulated=4, baselines=("ideal-switch",))
    assert_valid(plan)
    return plan


SMALL_MOE = Transformer(
    "small-moe", 4, 512, Attention(8, 8, 64), 1024, 1000, 1024, gated=True,
    experts=Experts(4, 2, 1024),
)  # fmt: skip


@lru_cache(maxsize=4)
def shared_moe_plan(expert=2, zero=1):
    """Return a plan of four servers with two ranks each, in two pipeline stages.

    Experts over 2 ranks: gradients are scattered over half of the servers, and stages send to
    each other. Over 4: tokens are exchanged between servers. ZeRO 0: AllReduces.
    """
    choices = Choices(
        tensor=(1,), pipeline=(2,), expert=(expert,), microbatch=(1,), zero=(zero,),
        recompute=("none",), schedules=("1f1b",),
    )  # fmt: skip
    job = to.Job(SMALL_MOE, server=nvlink_server("h100", 2), global_batch=8, choices=choices)
    cluster = to.Cluster(4, 3, "100Gbps")
    plan = planned(job, cluster, simulated=4, baselines=("ideal-switch",))
    assert_valid(plan)
    return plan
