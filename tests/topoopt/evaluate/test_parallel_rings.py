"""Wirings of layouts whose data groups are pairs of servers, which have one ring only."""

import topoopt as to
from parallelism.transformers.choices import Choices
from parallelism.transformers.placement import Placement
from topoopt.evaluate import wirings
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer

CHOICES = Choices(
    tensor=(4,), context=(1,), pipeline=(4,), microbatch=(1,), zero=(1,),
    schedules=("interleaved",), virtual_stages=(2,),
)  # fmt: skip


def test_sums_of_pairs_get_ports_that_hidden_messages_would_get(monkeypatch) -> None:
    job = to.Job(to.load_transformer("llama3-8b"), global_batch=128, choices=CHOICES)
    problem = Problem(job.family(8), to.Cluster(8, 4, "50Gbps"), seed=0)
    layout = problem.family.layouts()[0]
    placement = Placement(layout, 8)
    best = Rewirer(problem).wire(placement, "test")
    build = wirings.built

    def without(cluster, traffic, split, surplus="matching", *args, **named):
        other = "rings" if surplus == "parallel" else surplus
        return build(cluster, traffic, split, other, *args, **named)

    monkeypatch.setattr(wirings, "built", without)
    assert Rewirer(problem).wire(placement, "test").time > 1.05 * best.time
    assert len({ring.group for ring in best.topology.rings}) == 4 < len(best.topology.rings)
