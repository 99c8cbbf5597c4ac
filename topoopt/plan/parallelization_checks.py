"""The checks of the job and its parallelization: what was asked, and what is said of it."""

import json
from typing import Any

from codesign_base import InputError
from parallelism.operator_family import OperatorFamily
from parallelism.operator_records import OperatorQuestion, StrategyRecord
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.records import LayoutRecord
from topoopt.bounds.everything import AnyFamily
from topoopt.fabric.fluid import FABRIC_MODEL
from topoopt.plan.arithmetic import require_same
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt
from topoopt.plan.records import Parallelization
from topoopt.search.methods import SEARCHES
from topoopt.search.starts import starting_strategies


def check_parallelization(plan: Plan, rebuilt: Rebuilt) -> None:
    """The parallelization needs the stated memory, and is what it is said to be.

    That it is legal and fits was found when it was read; its parts take the stated times.
    """
    family = rebuilt.family
    if plan.fabric_model != FABRIC_MODEL:
        raise InputError(
            f"fabric_model is {plan.fabric_model!r}; this version has {FABRIC_MODEL!r}"
        )
    needed = float(family.memory(rebuilt.strategy).max())
    require_same("memory_per_gpu_bytes", plan.memory_per_gpu_bytes, needed)
    if isinstance(family, OperatorFamily):
        _check_parameter_splits(plan)
    check_record(plan.parallelization, rebuilt.strategy, family)
    if plan.origin == "plan":
        raise InputError("origin is 'plan', which only what the plan is compared with can have")
    check_origin(plan.origin, rebuilt.strategy, plan, rebuilt)


def _check_parameter_splits(plan: Plan) -> None:
    assert isinstance(plan.parallelization, StrategyRecord)
    if plan.search.options.parameter_splits:
        return
    for record in plan.parallelization.operators:
        if record.parameter > 1:
            raise InputError(
                f"operator {record.operator} has {record.parameter} parameter shards, but "
                "search.options.parameter_splits is false"
            )


def check_record(record: Parallelization, strategy: Any, family: AnyFamily) -> None:
    """What a record says beside the parallelization itself is what follows from it."""
    again = family.record(strategy)
    if isinstance(record, LayoutRecord) or isinstance(again, LayoutRecord):
        # Its stages were compared when it was read.
        if isinstance(family, LayoutFamily) and strategy.layout not in family.layouts():
            raise InputError("the layout is none of those that job.choices allow")
        return
    for given, own in zip(record.operators, again.operators, strict=True):
        if given.mode != own.mode:
            raise InputError(f"mode of {own.operator} is {given.mode!r}, but it is not split")
        for name in ("forward_s", "backward_s", "update_s"):
            require_same(f"{name} of {own.operator}", getattr(given, name), getattr(own, name))


def named_of(plan: Plan, rebuilt: Rebuilt) -> dict[str, Strategy]:
    """Return the starting strategies of a job by operators."""
    family = rebuilt.family
    if not isinstance(family, OperatorFamily):
        return {}
    space = StrategySpace(
        family.builder.graph,
        plan.cluster.servers,
        plan.global_batch,
        sample_only=SEARCHES[plan.search.options.searched].sample_only,
        parameter_splits=plan.search.options.parameter_splits,
    )
    # A baseline may start from what a faithful search does not.
    return starting_strategies(space, family)


def check_origin(origin: str, strategy: Any, plan: Plan, rebuilt: Rebuilt) -> None:
    """A parallelization that is said to be a named one, or the plan's, is that one."""
    if origin == "search":
        return
    known = named_of(plan, rebuilt) | {"plan": rebuilt.strategy}
    if origin not in known:
        raise InputError(f"origin is {origin!r}; expected search, {', '.join(known)}")
    if _placed(strategy) != _placed(known[origin]):
        raise InputError(f"origin is {origin!r}, but the {rebuilt.family.noun} is another one")


def _placed(strategy: Any) -> object:
    if not isinstance(strategy, Strategy):
        return strategy
    # The mode says nothing where the parameter dimension is whole.
    return [
        (c.sample, c.parameter, c.mode if c.parameter > 1 else 0, c.servers)
        for c in strategy.configs
    ]


def check_question(plan: Plan, rebuilt: Rebuilt) -> None:
    """The record of the job says what the rebuilt family says of itself."""
    if not isinstance(plan.job, OperatorQuestion):
        return
    assert isinstance(rebuilt.family, OperatorFamily)
    described = json.loads(json.dumps(rebuilt.family.compute.describe()))
    for key in sorted(set(described) | set(plan.job.compute)):
        given = key in described and key in plan.job.compute
        if not given or described[key] != plan.job.compute[key]:
            shown = repr(plan.job.compute.get(key))[:60]
            raise InputError(f"job.compute.{key} is {shown}, which does not fit the other fields")
