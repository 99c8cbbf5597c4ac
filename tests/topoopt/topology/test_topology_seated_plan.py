"""Plans whose rings seat servers otherwise: verified as they are, refused when broken."""

from dataclasses import replace

import numpy as np
import pytest
from small_plans import small_dlrm, solve

from topoopt.evaluate import rewire
from topoopt.evaluate.problem import Problem
from topoopt.plan.recorded import ring_key
from topoopt.plan.records import RingRecord
from topoopt.plan.summary import plan_summary
from topoopt.plan.verify import verify_plan
from topoopt.problem.options import SearchOptions
from topoopt.problem.routing import Routing
from topoopt.topology.choosing import RingChooser
from topoopt.topology.finder import find_topology

some_of_both = pytest.mark.parametrize(
    ("ports", "routing"),
    [
        ("directed", Routing.ECMP),
        pytest.param("directed", Routing.K_SHORTEST, marks=pytest.mark.slow),
        pytest.param("bidirectional", Routing.ECMP, marks=pytest.mark.slow),
        ("bidirectional", Routing.K_SHORTEST),
    ],
)


@some_of_both
def test_a_seated_plan_verifies(
    ports: str, routing: Routing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shuffled(_: RingChooser, group: tuple[int, ...], __: int) -> tuple[int, ...]:
        order = np.random.default_rng(len(group)).permutation(group).tolist()
        return tuple(order)

    def only_seated(problem: Problem, traffic, formula_only: bool, *, grids: bool):
        yield find_topology(
            traffic, problem.cluster.degree, problem.cluster.port_rate, placement=True,
            latency=problem.cluster.hop_latency, ports=problem.cluster.port_model,
        )  # fmt: skip

    monkeypatch.setattr(RingChooser, "arrange", shuffled)
    monkeypatch.setattr(rewire, "wirings", only_seated)
    monkeypatch.setattr(rewire, "other_rings", lambda *_: ())
    monkeypatch.setattr(SearchOptions, "routings", lambda *_: (routing,))
    # `solve` verifies the plan, also after a trip through its file format.
    plan = solve(small_dlrm(), 8, 4, ports=ports, steps=20, baselines=())
    whole = [ring for ring in plan.rings if len(ring.order) == 8]
    steps = {ring.generator for ring in whole}
    assert len(steps) > 1
    assert any((ring.order[1] - ring.order[0]) % 8 != ring.generator for ring in whole)
    # A ring that steps otherwise in the places of the first one, over the same links.
    at = plan.rings.index(whole[1])
    other = min({1, 3, 5, 7} - {whole[1].generator})
    rings = list(plan.rings)
    rings[at] = RingRecord(generator=other, order=whole[1].order)
    broken = verify_plan(replace(plan, rings=sorted(rings, key=ring_key)))
    assert not broken.ok
    if routing is Routing.ECMP:  # other routings need the rings to rebuild the fabric
        assert any("another step" in failure for failure in broken.failures)


@some_of_both
def test_a_plan_of_cayley_rings_verifies(
    ports: str, routing: Routing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_cayley(problem: Problem, traffic, formula_only: bool, *, grids: bool):
        yield find_topology(
            traffic, 4, problem.cluster.port_rate, selection="cayley", degree_allreduce=4,
            latency=problem.cluster.hop_latency, ports=problem.cluster.port_model,
        )  # fmt: skip

    monkeypatch.setattr(rewire, "wirings", only_cayley)
    monkeypatch.setattr(rewire, "other_rings", lambda *_: ())
    monkeypatch.setattr(SearchOptions, "routings", lambda *_: (routing,))
    # `solve` verifies the plan, also after a trip through its file format.
    plan = solve(small_dlrm(), 16, 4, ports=ports, steps=10, baselines=())
    whole = [at for at, ring in enumerate(plan.rings) if len(ring.order) == 16]
    assert {plan.rings[at].generator for at in whole} == {0}
    assert "Hamiltonian cycles" in plan_summary(plan)
    order = plan.rings[whole[0]].order

    def broken(generator: int, servers: list[int]) -> str:
        rings = list(plan.rings)
        rings[whole[0]] = RingRecord(generator=generator, order=servers)
        verified = verify_plan(replace(plan, rings=sorted(rings, key=ring_key)))
        assert not verified.ok
        return " ".join(verified.failures)

    swapped = [order[0], order[2], order[1], *order[3:]]
    failures = broken(0, swapped)
    assert "go over it" in failures or "not wired" in failures or "more rings use" in failures
    assert "is 2 cycles" in broken(2, order)
