"""Check a transformer's plan: every invariant recomputed, every time simulated again."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from codesign_base import InputError
from parallelism.taskgraph import TaskGraph, traffic_of
from parallelism.transformers.costs import check_layout, model_flops
from parallelism.transformers.memory import memory_use
from parallelism.transformers.placement import Placement
from routing.network import Network
from routing.paths import ecmp_routes, k_shortest_routes
from topoopt.bounds.gap import gap_parts
from topoopt.evaluate.scoring import allreduce_routes
from topoopt.fabric.fabric import Fabric
from topoopt.fabric.simulate import simulate
from topoopt.fabric.timeline import compute_on_critical_path
from topoopt.fabrics.baselines import baseline_fabric
from topoopt.plan.arithmetic import SIMULATED, require_same
from topoopt.plan.plan import BoundRecord
from topoopt.plan.verify import Verification
from topoopt.problem.job import Cluster
from topoopt.problem.prices import PriceTable, direct_connect_cost
from topoopt.problem.routing import Routing
from topoopt.transformers.candidates import layout_bound, survey
from topoopt.transformers.job import TransformerJob
from topoopt.transformers.plan import TransformerPlan, load_transformer_plan
from topoopt.transformers.play import played, tasks_of
from topoopt.transformers.solve import levels


class _Checker:
    """The objects that a plan describes, and checks over them."""

    def __init__(self, plan: TransformerPlan) -> None:
        self.plan = plan
        record = plan.cluster
        self.cluster = Cluster(
            record.servers, record.degree, record.bandwidth_bytes_per_s, record.ports,
            record.latency_s,
        )  # fmt: skip
        self.job = TransformerJob(
            plan.model, plan.global_batch, plan.server, plan.sequence, plan.implementation,
            plan.choices, plan.rates, plan.memory_reserve,
        )  # fmt: skip
        self.prices = PriceTable.from_dict(plan.prices)

    def layout(self) -> None:
        """The layout is legal, fills the cluster, and needs the stated memory, which is there."""
        plan = self.plan
        check_layout(plan.model, plan.layout)
        gpus = self.job.gpus(self.cluster)
        if plan.layout.gpus != gpus:
            raise InputError(f"layout is for {plan.layout.gpus} GPUs; the cluster has {gpus}")
        uses = memory_use(
            plan.model, plan.layout, plan.global_batch, plan.implementation, sequence=plan.sequence
        )
        if len(uses) != len(plan.stages):
            raise InputError(f"stages lists {len(plan.stages)} stages; the layout has {len(uses)}")
        for stage, (stated, use) in enumerate(zip(plan.stages, uses, strict=True)):
            for name, value in asdict(use).items():
                require_same(f"stages[{stage}].{name}", getattr(stated, name), value)
        most = max(use.total for use in uses)
        require_same("memory_per_gpu_bytes", plan.memory_per_gpu_bytes, most)
        if most > self.job.memory_limit:
            raise InputError(
                f"layout needs {most / 1e9:.4g} GB a GPU; "
                f"{self.job.memory_limit / 1e9:.4g} GB may be used"
            )

    def ports(self) -> None:
        """No server uses more ports than it has; links are what their cables make them."""
        network, degree = self.network(), self.cluster.degree
        for what, used in (("sends", network.out_degree()), ("receives", network.in_degree())):
            if used.max(initial=0) > degree:
                server = int(used.argmax())
                raise InputError(f"server {server} {what} on {used[server]} ports; it has {degree}")
        for link in self.plan.links:
            name = f"link {link.source}->{link.target}"
            require_same(
                f"capacity of {name}", link.capacity_bytes_per_s,
                link.cables * self.cluster.port_rate,
            )  # fmt: skip
            require_same(f"latency of {name}", link.latency_s, self.cluster.hop_latency)

    def rings(self) -> None:
        """Every ring visits its servers once, over links that are there."""
        network = self.network()
        for ring in self.plan.rings:
            order = ring.order
            if len(set(order)) != len(order) or len(order) < 2:
                raise InputError(f"ring {order} visits a server twice or has one server")
            for a, b in zip(order, [*order[1:], order[0]], strict=True):
                if not network.has_link(a, b):
                    raise InputError(f"a ring uses link {a}->{b}, which is not wired")

    def times(self) -> None:
        """Simulation gives the stated time, and divides it as stated."""
        plan, tasks = self.plan, self.tasks()
        timeline = simulate(self.fabric(), tasks)
        total = timeline.makespan
        require_same("iteration_time_s", plan.iteration_time_s, total, SIMULATED)
        computing = compute_on_critical_path(tasks, timeline)
        require_same("compute_time_s", plan.compute_time_s, computing, SIMULATED)
        require_same(
            "exposed_communication_s", plan.exposed_communication_s, total - computing, SIMULATED
        )
        require_same(
            "tokens_per_s", plan.tokens_per_s, plan.global_batch * plan.sequence / total, SIMULATED
        )
        peak = self.job.gpus(self.cluster) * plan.server.accelerator.bf16_flops
        flops = model_flops(plan.model, plan.global_batch, sequence=plan.sequence)
        require_same(
            "model_flops_utilisation", plan.model_flops_utilisation, flops / total / peak, SIMULATED
        )
        traffic = traffic_of(tasks)
        require_same("allreduce_bytes", plan.allreduce_bytes, traffic.allreduce_sent())
        require_same("transfer_bytes", plan.transfer_bytes, traffic.transfer_sent())
        useful = traffic.allreduce_sent() + traffic.transfer_sent()
        tax = float(timeline.link_bytes.sum() / useful) if useful else 1.0
        require_same("bandwidth_tax", plan.bandwidth_tax, tax)

    def bounds(self) -> None:
        """All bounds, over every layout again, and the gap's parts."""
        plan = self.plan
        everything = survey(self.job, self.cluster).bound
        own = layout_bound(self.job, self.cluster, plan.layout)
        placed, wiring, routes = levels(self.cluster, self.fabric(), self.tasks(), own)
        for name, stated, bound in (
            ("bound", plan.bound, everything), ("layout_bound", plan.layout_bound, placed),
            ("topology_bound", plan.topology_bound, wiring),
            ("routes_bound", plan.routes_bound, routes),
        ):  # fmt: skip
            _same_bound(name, stated, bound.seconds, bound.terms)
        require_same("lower_bound_s", plan.lower_bound_s, everything.seconds)
        require_same("gap", plan.gap, plan.iteration_time_s / everything.seconds - 1.0, SIMULATED)
        parts = gap_parts(everything, placed, wiring, routes, plan.iteration_time_s)
        if len(parts) != len(plan.gap_parts):
            raise InputError(f"gap_parts lists {len(plan.gap_parts)} parts; expected {len(parts)}")
        for stated_part, part in zip(plan.gap_parts, parts, strict=True):
            require_same(
                f"gap part {stated_part.name}", stated_part.seconds, part.seconds, SIMULATED
            )

    def costs(self) -> None:
        """The direct-connect fabric costs what its parts cost."""
        cluster = self.cluster
        cost = direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, self.prices)
        if cluster.servers > 1 and self.plan.cost_usd is not None:
            require_same("cost_usd", self.plan.cost_usd, cost)

    def baselines(self) -> None:
        """Each layout takes the stated time on the fabric that it is compared on."""
        for name, stated in self.plan.baselines.items():
            base = baseline_fabric(name, self.cluster, self.prices, self.plan.seed)
            check_layout(self.plan.model, stated.layout)
            placement = Placement(stated.layout, self.plan.server.gpus, stated.order)
            time = played(base.fabric, tasks_of(self.job, placement))
            require_same(f"baselines.{name}", stated.iteration_time_s, time, SIMULATED)
            if base.cost is not None and stated.cost_usd is not None:
                require_same(f"cost of {name}", stated.cost_usd, base.cost)

    def tasks(self) -> TaskGraph:
        """Return the task graph of the placed layout."""
        placement = Placement(self.plan.layout, self.plan.server.gpus, self.plan.order)
        return tasks_of(self.job, placement)

    def network(self) -> Network:
        """Return the network of the plan's links."""
        links = self.plan.links
        return Network(
            name="topoopt",
            hosts=self.cluster.servers,
            switches=0,
            source=np.array([link.source for link in links], dtype=np.int64),
            target=np.array([link.target for link in links], dtype=np.int64),
            capacity=np.array([link.capacity_bytes_per_s for link in links], dtype=np.float64),
            latency=np.array([link.latency_s for link in links], dtype=np.float64),
            multiplicity=np.array([link.cables for link in links], dtype=np.int64),
        )

    def fabric(self) -> Fabric:
        """Return the fabric: routes follow from links and routing."""
        network, plan = self.network(), self.plan
        routing = Routing(plan.routing)
        if routing is Routing.ECMP:
            routes = ecmp_routes(network)
        else:
            routes = k_shortest_routes(network, 8, slack=1)
        rings: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for ring in plan.rings:
            rings.setdefault(tuple(sorted(ring.order)), []).append(tuple(ring.order))
        whole = [(r.order, r.generator) for r in plan.rings if len(r.order) == network.hosts]
        return Fabric(
            "topoopt",
            network,
            routes,
            {group: tuple(orders) for group, orders in rings.items()},
            allreduce_routes(network, whole, routing),
        )


def plan_parts(plan: TransformerPlan) -> tuple[Fabric, TaskGraph]:
    """Return the fabric that a plan describes, and the task graph of its iteration.

    Raises
    ------
    InputError
        If its layout is none.
    """
    checker = _Checker(plan)
    return checker.fabric(), checker.tasks()


def _same_bound(name: str, stated: BoundRecord, seconds: float, terms: dict[str, float]) -> None:
    require_same(name, stated.seconds, seconds)
    for term in sorted(set(terms) | set(stated.terms_s)):
        if term not in terms or term not in stated.terms_s:
            raise InputError(f"{name}: term {term!r} is missing or unknown")
        require_same(f"{name}.{term}", stated.terms_s[term], terms[term])


_CHECKS = (
    (_Checker.layout, _Checker.ports, _Checker.rings),
    (_Checker.times, _Checker.bounds, _Checker.costs, _Checker.baselines),
)


def verify_transformer_plan(plan: TransformerPlan | str | Path) -> Verification:
    """Recompute a transformer's plan.

    Parameters
    ----------
    plan : TransformerPlan, or path of a plan file

    Returns
    -------
    Verification

    Raises
    ------
    InputError
        If the file cannot be read or is no such plan.
    """
    loaded = plan if isinstance(plan, TransformerPlan) else load_transformer_plan(plan)
    checker = _Checker(loaded)
    made: list[str] = []
    failures: list[str] = []
    skipped: list[str] = []
    for stage in _CHECKS:
        if failures:
            skipped += [check.__name__ for check in stage]
            continue
        for check in stage:
            made.append(check.__name__)
            try:
                check(checker)
            except InputError as error:
                failures.append(f"{check.__name__}: {error}")
    return Verification(not failures, tuple(made), tuple(failures), tuple(skipped))


__all__ = ["plan_parts", "verify_transformer_plan"]
