"""Small jobs, and the plans that several test modules share; every plan is verified."""

import json
from dataclasses import fields, replace
from functools import lru_cache

from small_transformers import gpt

import topoopt as to
from topoopt.plan.verify import verify_plan
from topoopt.problem.options import SearchOptions


def small_dlrm(tables=4, **numbers):
    """Return a DLRM of a few operators whose tables outweigh its layers."""
    return to.models.dlrm(**{
        "tables": tables, "rows": 100_000, "dim": 64, "bag": 10, "bottom_width": 256,
        "bottom_layers": 2, "top_width": 512, "top_layers": 2, "batch_per_gpu": 64, **numbers,
    })  # fmt: skip


def small_mlp(**numbers):
    """Return two towers of dense layers, without tables."""
    return to.models.candle(**{
        "features": (512, 768), "tower_layers": 2, "width": 1024, "dense_layers": 2,
        "doses": 1, "batch_per_gpu": 32, **numbers,
    })  # fmt: skip


def solve(model, servers, degree=2, *, ports="directed", job=None, **options):
    """Co-optimize, and check that the plan's proof holds before handing it out."""
    options = {"steps": 40, "baselines": ("ideal-switch",), **options}
    plan = planned(
        to.Job(model, **(job or {})), to.Cluster(servers, degree, "100Gbps", ports), **options
    )
    assert_valid(plan)
    return plan


def planned(job, cluster, **asked):
    """Co-optimize with arguments and search options from one dictionary.

    Unless asked for, packets choose nothing: on small jobs that takes longer than the search.
    """
    asked = {"confirm": "none", **asked}
    names = {each.name for each in fields(SearchOptions)}
    options = {name: value for name, value in asked.items() if name in names}
    rest = {name: value for name, value in asked.items() if name not in names}
    return to.co_optimize(job, cluster, SearchOptions(**options), **rest)


def with_less_work(patch, share=0.01):
    """Let searches without a number of steps make fewer, in all stages that they always have."""
    from topoopt.search.operators import OperatorSearch

    whole = OperatorSearch.budget

    def part(self):
        budget = whole(self)
        return replace(budget, work=share * budget.work)

    patch.setattr(OperatorSearch, "budget", part)


# Files of plans that were verified; the verdict of the same file is the same.
_VERIFIED = set()


def assert_valid(plan):
    """Check that verification accepts a plan, also after a trip through its file format."""
    from topoopt.plan.plan import parse_plan

    text = plan.to_json()
    again = parse_plan(text)
    assert again == plan
    if text not in _VERIFIED:
        verdict = verify_plan(again)
        assert verdict.ok, verdict.failures
        _VERIFIED.add(text)
    assert plan.lower_bound_s <= plan.parallelization_lower_bound_s <= plan.iteration_time_s


@lru_cache(maxsize=1)
def shared_plan():
    """Return a plan with rings, transfers, table placements and all baselines."""
    from topoopt.baselines.baselines import BASELINES

    return solve(small_dlrm(), 4, method="alternating", baselines=BASELINES)


@lru_cache(maxsize=1)
def shared_bidirectional_plan():
    """Return a plan of five servers whose ports are bidirectional."""
    return solve(small_dlrm(3), 5, 4, ports="bidirectional", seed=3, method="alternating")


def shared_document(plan=shared_plan):
    """Return a fresh copy of a shared plan's document."""
    return json.loads(plan().to_json())


# One pipeline of two stages, so that servers send to each other beside their AllReduces.
_STAGES = {
    "pipeline": (2,), "tensor": (1,), "microbatch": (1,), "recompute": ("none",), "zero": (1,),
    "schedules": ("1f1b", "zero-bubble"),
}  # fmt: skip


def small_layout_job(**choices):
    """Return a small GPT to be planned by layouts, on servers of one GPU."""
    from parallelism.transformers.choices import Choices
    from topoopt.problem.job import nvlink_server

    server = nvlink_server("h100", 1)
    return to.Job(gpt(4, 256, 4, 512), global_batch=8, server=server, choices=Choices(**choices))


def solve_layouts(servers=4, degree=2, *, ports="directed", choices=None, **options):
    """Plan by layouts, and check that the plan's proof holds before handing it out."""
    options = {"simulated": 6, "baselines": (), **options}
    job = small_layout_job(**(_STAGES if choices is None else choices))
    plan = planned(job, to.Cluster(servers, degree, "100Gbps", ports), **options)
    assert_valid(plan)
    return plan


@lru_cache(maxsize=1)
def shared_layout_plan():
    """Return a plan by layouts, chosen among some kinds, beside several fabrics."""
    choices = {
        "pipeline": (1, 2), "tensor": (1,), "microbatch": (1,), "recompute": ("none",),
        "schedules": ("1f1b", "zero-bubble"),
    }  # fmt: skip
    baselines = ("ideal-switch", "fat-tree", "expander", "ocs-reconfig")
    return solve_layouts(choices=choices, baselines=baselines)


@lru_cache(maxsize=1)
def shared_bidirectional_layout_plan():
    """Return a plan by layouts with rings and transfers on bidirectional ports."""
    return solve_layouts(degree=3, ports="bidirectional", baselines=("ideal-switch",))


@lru_cache(maxsize=1)
def shared_confirmed_layout_plan():
    """Return a plan by layouts that packets chose."""
    return solve_layouts(confirm="packet")
