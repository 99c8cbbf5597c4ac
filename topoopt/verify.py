"""Check a plan file: every invariant recomputed, every time simulated again."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parallelism.strategy import check_legal
from parallelism.taskgraph import traffic_of
from routing.network import Network
from topoopt.baselines import baseline_fabric
from topoopt.bounds import space_bound, strategy_bound
from topoopt.fabric.simulate import simulate
from topoopt.fabric.timeline import compute_on_critical_path
from topoopt.plan import Plan, load_plan
from topoopt.prices import PriceTable, direct_connect_cost
from topoopt.rebuild import Rebuilt, rebuild, rebuild_strategy
from topoopt.scoring import Scorer
from topoopt_base import InputError

# Relative; sums may be taken in another order on another machine.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Verification:
    """What was checked, and what failed.

    Parameters
    ----------
    ok : bool
    checks : tuple of str
        Names of all checks made.
    failures : tuple of str
        One sentence for each that failed.
    """

    ok: bool
    checks: tuple[str, ...]
    failures: tuple[str, ...]


def verify_plan(plan: Plan | str | Path) -> Verification:
    """Recompute every invariant of a plan and simulate it again.

    Parameters
    ----------
    plan : Plan, str or Path
        A plan, or the name of a plan file.

    Returns
    -------
    Verification

    Raises
    ------
    InputError
        If the file cannot be read or does not follow the schema. A plan that follows the
        schema but is wrong is reported, not raised.
    """
    if not isinstance(plan, Plan):
        plan = load_plan(plan)
    checks: list[str] = []
    failures: list[str] = []
    try:
        rebuilt = rebuild(plan)
    except InputError as error:
        return Verification(False, ("structure",), (f"structure: {error}",))
    checks.append("structure")
    steps = (
        ("strategy", _check_strategy),
        ("ports", _check_ports),
        ("rings", _check_rings),
        ("routes", _check_routes),
        ("times", _check_times),
        ("bounds", _check_bounds),
        ("costs", _check_costs),
        ("baselines", _check_baselines),
    )
    for name, step in steps:
        checks.append(name)
        try:
            step(plan, rebuilt)
        except InputError as error:
            failures.append(f"{name}: {error}")
    return Verification(not failures, tuple(checks), tuple(failures))


def _same(name: str, stored: float, computed: float) -> None:
    if not math.isclose(stored, computed, rel_tol=_TOLERANCE, abs_tol=1e-15):
        raise InputError(f"{name} is {stored!r} in the plan, recomputed {computed!r}")


def _check_strategy(plan: Plan, rebuilt: Rebuilt) -> None:
    builder = rebuilt.builder
    batch = plan.cluster.servers * builder.server.gpus * plan.batch_per_gpu
    if plan.global_batch != batch:
        raise InputError(f"global_batch is {plan.global_batch}, servers x GPUs x batch is {batch}")
    check_legal(builder.graph, rebuilt.strategy, plan.cluster.servers, plan.global_batch)
    needed = float(builder.memory(rebuilt.strategy).max())
    limit = float(plan.server["accelerator"]["memory_bytes"])
    if needed > limit:
        raise InputError(f"needs {needed:.4g} bytes on a GPU that has {limit:.4g}")
    _same("memory_per_gpu_bytes", plan.memory_per_gpu_bytes, needed)
    for index, (record, config) in enumerate(
        zip(plan.strategy, rebuilt.strategy.configs, strict=True)
    ):
        time = builder.part_time(index, config.sample, config.parameter, config.mode)
        _same(f"forward_s of {record.operator}", record.forward_s, time.forward)
        _same(f"backward_s of {record.operator}", record.backward_s, time.backward)
        _same(f"update_s of {record.operator}", record.update_s, time.update)


def _check_ports(plan: Plan, rebuilt: Rebuilt) -> None:
    network, cluster = rebuilt.fabric.network, rebuilt.cluster
    for what, degrees in (("sends", network.out_degree()), ("receives", network.in_degree())):
        if degrees.max(initial=0) > cluster.degree:
            server = int(degrees.argmax())
            raise InputError(
                f"server {server} {what} on {degrees[server]} ports; it has {cluster.degree}"
            )
    for link in plan.links:
        _same(
            f"capacity of link {link.source}->{link.target}",
            link.capacity_bytes_per_s,
            link.cables * cluster.port_rate,
        )
        _same(f"latency of link {link.source}->{link.target}", link.latency_s, cluster.hop_latency)
    if cluster.ports == "bidirectional":
        for link in plan.links:
            back = (link.target, link.source)
            if (
                not network.has_link(*back)
                or network.multiplicity[network.link(*back)] != link.cables
            ):
                raise InputError(
                    f"link {link.source}->{link.target} has no equal link back, "
                    "but ports are bidirectional"
                )


def _check_rings(plan: Plan, rebuilt: Rebuilt) -> None:
    network = rebuilt.fabric.network
    for ring in plan.rings:
        order = ring.order
        members = sorted(order)
        if len(set(order)) != len(order) or len(order) < 2:
            raise InputError(f"ring +{ring.generator} visits a server twice or has one server")
        step = ring.generator % len(order)
        if math.gcd(step, len(order)) != 1:
            raise InputError(
                f"ring +{ring.generator} over {len(order)} servers is "
                f"{math.gcd(step, len(order))} cycles, not one"
            )
        place = {server: position for position, server in enumerate(members)}
        for a, b in zip(order, [*order[1:], order[0]], strict=True):
            if (place[b] - place[a]) % len(order) != step:
                raise InputError(f"ring +{ring.generator} goes {a}->{b}, which is another step")
            if not network.has_link(a, b):
                raise InputError(f"ring +{ring.generator} uses link {a}->{b}, which is not wired")


def _check_routes(plan: Plan, rebuilt: Rebuilt) -> None:
    check_routes(rebuilt)
    traffic = traffic_of(rebuilt.builder.build(rebuilt.strategy))
    _same("allreduce_bytes", plan.allreduce_bytes, traffic.allreduce_sent())
    _same("transfer_bytes", plan.transfer_bytes, traffic.transfer_sent())


def check_routes(rebuilt: Rebuilt) -> None:
    """Check that each pair's weights are a unit flow from source to target.

    Parameters
    ----------
    rebuilt : Rebuilt

    Raises
    ------
    InputError
        Naming the first pair whose flow is not conserved, whose weights are out of range, or
        whose latency no path explains.
    """
    network, routes = rebuilt.fabric.network, rebuilt.fabric.routes
    hosts = network.hosts
    if routes.links.size == 0 and hosts == 1:
        return
    counts = np.diff(routes.offsets)
    pair = np.repeat(np.arange(hosts * hosts), counts)
    if np.any((routes.weights <= 0) | (routes.weights > 1 + 1e-9)):
        raise InputError("a route weight lies outside (0, 1]")
    balance = np.zeros((hosts * hosts, network.nodes))
    np.add.at(balance, (pair, network.source[routes.links]), routes.weights)
    np.add.at(balance, (pair, network.target[routes.links]), -routes.weights)
    source, target = np.divmod(np.arange(hosts * hosts), hosts)
    wanted = np.zeros_like(balance)
    np.add.at(wanted, (np.arange(hosts * hosts), source), 1.0)
    np.add.at(wanted, (np.arange(hosts * hosts), target), -1.0)
    bad = np.flatnonzero(np.abs(balance - wanted).max(axis=1) > 1e-9)
    if bad.size:
        a, b = divmod(int(bad[0]), hosts)
        raise InputError(f"the route {a}->{b} is not a unit flow from {a} to {b}")
    _check_latency(network, rebuilt, pair)


def _check_latency(network: Network, rebuilt: Rebuilt, pair: np.ndarray) -> None:  # type: ignore[type-arg]
    """The slowest used path lies between the mean path and all of the pair's links in a row."""
    routes = rebuilt.fabric.routes
    each = network.latency[routes.links]
    pairs = routes.latency.size
    mean = np.bincount(pair, weights=each * routes.weights, minlength=pairs)
    whole = np.bincount(pair, weights=each, minlength=pairs)
    slack = 1e-9 * np.maximum(whole, 1e-9)
    bad = np.flatnonzero((routes.latency < mean - slack) | (routes.latency > whole + slack))
    if bad.size:
        a, b = divmod(int(bad[0]), routes.hosts)
        raise InputError(f"the latency of route {a}->{b}, {routes.latency[bad[0]]} s, fits no path")


def _check_times(plan: Plan, rebuilt: Rebuilt) -> None:
    tasks = rebuilt.builder.build(rebuilt.strategy)
    timeline = simulate(rebuilt.fabric, tasks)
    _same("iteration_time_s", plan.iteration_time_s, timeline.makespan)
    computing = compute_on_critical_path(tasks, timeline)
    _same("compute_time_s", plan.compute_time_s, computing)
    _same("exposed_communication_s", plan.exposed_communication_s, timeline.makespan - computing)
    useful = plan.allreduce_bytes + plan.transfer_bytes
    if useful > 0:
        _same("bandwidth_tax", plan.bandwidth_tax, float(timeline.link_bytes.sum() / useful))


def _check_bounds(plan: Plan, rebuilt: Rebuilt) -> None:
    everything = space_bound(rebuilt.builder)
    tasks = rebuilt.builder.build(rebuilt.strategy)
    strategy = strategy_bound(tasks, rebuilt.cluster.degree, rebuilt.cluster.port_rate)
    _same("lower_bound_s", plan.lower_bound_s, everything.seconds)
    _same("bound.seconds", plan.bound.seconds, everything.seconds)
    _same("strategy_bound.seconds", plan.strategy_bound.seconds, strategy.seconds)
    _same(
        "strategy_lower_bound_s",
        plan.strategy_lower_bound_s,
        max(strategy.seconds, everything.seconds),
    )
    for stored, computed in ((plan.bound, everything), (plan.strategy_bound, strategy)):
        if set(stored.terms_s) != set(computed.terms):
            raise InputError(f"bound terms are {sorted(stored.terms_s)}")
        for name, value in computed.terms.items():
            _same(f"bound term {name}", stored.terms_s[name], value)
    _same("gap", plan.gap, plan.iteration_time_s / plan.lower_bound_s - 1.0)
    if plan.lower_bound_s > plan.iteration_time_s:
        raise InputError("the lower bound exceeds the iteration time")


def _check_costs(plan: Plan, rebuilt: Rebuilt) -> None:
    cluster = rebuilt.cluster
    if cluster.servers == 1 or plan.cost_usd is None:
        return
    prices = PriceTable.from_dict(plan.prices)
    _same(
        "cost_usd",
        plan.cost_usd,
        direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices),
    )


def _check_baselines(plan: Plan, rebuilt: Rebuilt) -> None:
    prices = PriceTable.from_dict(plan.prices)
    builder = rebuilt.builder
    limit = float(plan.server["accelerator"]["memory_bytes"])
    for name, record in plan.baselines.items():
        base = baseline_fabric(name, rebuilt.cluster, prices, plan.seed)
        strategy = rebuild_strategy(builder.graph, record.strategy)
        check_legal(builder.graph, strategy, plan.cluster.servers, plan.global_batch)
        time = Scorer(builder, base.fabric, limit)(strategy)
        _same(f"iteration_time_s of {name}", record.iteration_time_s, time)
        if record.cost_usd is not None:
            _same(f"cost_usd of {name}", record.cost_usd, base.cost)
        _same(f"bandwidth of {name}", record.bandwidth_bytes_per_s, base.bandwidth)
