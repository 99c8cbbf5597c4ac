"""Plans with experts folded over tensor ranks, maps of stages, and servers of 72 GPUs."""

import json

import pytest
from small_layouts import SMALL_MOE
from small_plans import assert_valid, planned

import topoopt as to
from codesign_base import InputError
from parallelism.transformers.choices import Choices
from parallelism.transformers.implementation import get_stack
from topoopt.plan.plan import parse_plan
from topoopt.plan.verify import verify_plan
from topoopt.problem.job import nvlink_server


@pytest.mark.parametrize(
    ("servers", "gpus", "batch", "stack", "choices"),
    [
        (4, 4, 8, "deepseek-v3", {
            "tensor": (2,), "pipeline": (2,), "expert": (4,), "expert_tensor": (1,),
            "recompute": ("modules",), "stage_layers": (1, 3), "schedules": ("1f1b",),
        }),
        (2, 72, 72, "megatron-moe", {
            "tensor": (2, 4), "pipeline": (2,), "expert": (4,), "schedules": ("1f1b",),
            "recompute": ("modules",), "modules": ("norms", "experts"),
        }),
    ],
    ids=["folded", "of 72"],
)  # fmt: skip
def test_folded_experts_and_racks_of_72_are_planned_and_verified(
    servers, gpus, batch, stack, choices
) -> None:
    choices = Choices(**{"microbatch": (1,), "zero": (1,), **choices})
    job = to.Job(
        SMALL_MOE, server=nvlink_server("gb200", gpus), global_batch=batch, choices=choices,
        implementation=get_stack(stack),
    )  # fmt: skip
    plan = planned(job, to.Cluster(servers, 3, "400Gbps"), simulated=4, baselines=("ideal-switch",))
    layout = plan.parallelization.layout
    assert layout.gpus == servers * gpus
    if choices.stage_layers:
        assert (layout.expert_tensor, layout.stage_layers) == (1, (1, 3))
        assert layout.modules == ("norms", "activations")
    else:
        assert layout.modules == ("norms", "experts")
    assert_valid(plan)
    changed = json.loads(plan.to_json())
    changed["parallelization"]["layout"]["stage_layers"] = [1]
    with pytest.raises(InputError, match="lists 1 part;"):
        parse_plan(json.dumps(changed))
    changed["parallelization"]["layout"]["stage_layers"] = [2, 2]
    verdict = verify_plan(parse_plan(json.dumps(changed)))
    # The even map is the usual one of two stages; the job's choices do not hold it.
    assert not verdict.ok
