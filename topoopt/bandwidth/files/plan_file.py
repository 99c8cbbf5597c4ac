"""Plan files as workloads."""

from pathlib import Path

from codesign_base import InputError
from parallelism.operator_family import OperatorFamily
from topoopt.bandwidth.model.plan_workload import PlanWorkload
from topoopt.plan.plan import Plan, load_plan
from topoopt.plan.rebuild import rebuild


def load_plan_workload(plan: Plan | str | Path) -> PlanWorkload:
    """Return the workload of a plan.

    Parameters
    ----------
    plan : Plan, str or Path
        A plan, or the name of a plan file.

    Returns
    -------
    PlanWorkload

    Raises
    ------
    InputError
        If the file is no plan, or its parts do not fit.
    """
    given = plan if isinstance(plan, Plan) else load_plan(plan)
    rebuilt = rebuild(given)
    if not isinstance(rebuilt.family, OperatorFamily):
        raise InputError(
            f"plan of {given.job.model.name} is by layouts, which are workloads of their own here; "
            "name the transformer instead"
        )
    return PlanWorkload(
        given.job.model.name,
        rebuilt.family.builder.graph,
        rebuilt.tasks(),
        (
            f"{given.job.model.name}: strategy of a plan ({given.origin}) for "
            f"{given.cluster.servers} servers, one an NPU; layers are the depths of its graph, "
            "and no layer's communication is hidden behind another's",
        ),
    )
