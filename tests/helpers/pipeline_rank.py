"""One rank of a pipeline that PyTorch runs from a file of passes, by gloo."""

import copy

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH, SAMPLES = 4, 2


def loss(made, wanted):
    return ((made - wanted) ** 2).mean()


def run_rank(rank, parts, microbatches, order, rendezvous):
    """Train one step, and hold the gradients of this rank's parts against the whole model's."""
    dist.init_process_group(
        "gloo", rank=rank, world_size=len(parts), init_method=f"file://{rendezvous}"
    )
    torch.manual_seed(0)
    count = len(parts) * len(parts[0])
    model = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(count)
    ]
    alone = copy.deepcopy(model)
    given, wanted = torch.randn(2, microbatches * SAMPLES, WIDTH)
    stages = [PipelineStage(model[i], i, count, torch.device("cpu")) for i in parts[rank]]
    schedule = _PipelineScheduleRuntime(stages, microbatches, loss_fn=loss, scale_grads=False)
    schedule._load_csv(order)
    inputs = (given,) if any(stage.is_first for stage in stages) else ()
    targets = {"target": wanted} if any(stage.is_last for stage in stages) else {}
    schedule.step(*inputs, **targets)
    for x, y in zip(given.chunk(microbatches), wanted.chunk(microbatches), strict=True):
        for part in alone:
            x = part(x)
        loss(x, y).backward()
    for i in parts[rank]:
        for ours, theirs in zip(model[i].parameters(), alone[i].parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)
    dist.barrier()
    dist.destroy_process_group()
