"""Plans by layouts that several test modules share; every plan is verified."""

from functools import lru_cache

from small_plans import planned

import topoopt as to
from parallelism.transformers.architecture import Attention, Experts, Transformer
from parallelism.transformers.enumeration import Choices
from topoopt.plan.verify import verify_plan
from topoopt.problem.job import nvlink_server

SMALL_MOE = Transformer(
    "small-moe", 4, 512, Attention(8, 8, 64), 1024, 1000, 1024, gated=True,
    experts=Experts(4, 2, 1024),
)  # fmt: skip


@lru_cache(maxsize=4)
def shared_layout_plan(expert=2, zero=1):
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
    verdict = verify_plan(plan)
    assert verdict.ok, verdict.failures
    return plan
