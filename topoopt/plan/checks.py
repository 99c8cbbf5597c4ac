"""The checks of a plan, each over the plan and the objects rebuilt from it.

Every check raises `InputError` with one sentence on the first thing that is wrong.
"""

import json
import math
from collections import Counter
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.operator_family import OperatorFamily
from parallelism.operator_records import OperatorQuestion, StrategyRecord
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from parallelism.taskgraph import traffic_of
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.records import LayoutRecord
from topoopt.bounds.bounds import Bound
from topoopt.bounds.everything import AnyFamily, wirings_of
from topoopt.bounds.gap import how, plan_bounds
from topoopt.bounds.layouts import fitting_bounds, least_bound
from topoopt.evaluate.comparing import Took, compared_scorer, in_other_buckets
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.fabric.fluid import FABRIC_MODEL
from topoopt.fabric.simulate import score
from topoopt.fabric.tasks import link_bytes
from topoopt.fabrics.baselines import baseline_fabric
from topoopt.plan.arithmetic import SIMULATED, require_same
from topoopt.plan.packet_checks import says_packets
from topoopt.plan.plan import Parallelization, Plan, RingRecord
from topoopt.plan.rebuild import Rebuilt
from topoopt.plan.records import (
    degree_split,
    reconfiguration_record,
    ring_edges,
    ring_key,
)
from topoopt.problem.prices import PriceTable, direct_connect_cost
from topoopt.search.confirm import packet_times_on
from topoopt.search.methods import SEARCHES
from topoopt.search.starts import SLOW_START, USUAL, start_pair, starting_strategies
from topoopt.topology.totient import ring_places
from topoopt.topology.wiring import Ring, labelled


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
    _check_record(plan.parallelization, rebuilt.strategy, family)
    _check_origin(plan.origin, rebuilt.strategy, plan, rebuilt)


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


def _check_record(record: Parallelization, strategy: Any, family: AnyFamily) -> None:
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


def _named(plan: Plan, rebuilt: Rebuilt) -> dict[str, Strategy]:
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


def _check_origin(origin: str, strategy: Any, plan: Plan, rebuilt: Rebuilt) -> None:
    """A parallelization that is said to be a named one, or the plan's, is that one."""
    if origin == "search":
        return
    known = _named(plan, rebuilt) | {"plan": rebuilt.strategy}
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


def check_ports(plan: Plan, rebuilt: Rebuilt) -> None:
    """No server uses more ports than it has, and every link is what its cables make it."""
    network, cluster = rebuilt.fabric.network, rebuilt.cluster
    for what, degrees in (("sends", network.out_degree()), ("receives", network.in_degree())):
        if degrees.max(initial=0) > cluster.degree:
            server = int(degrees.argmax())
            raise InputError(
                f"server {server} {what} on {counted(degrees[server], 'port')}; it has "
                f"{cluster.degree}"
            )
    for link in plan.links:
        name = f"link {link.source}->{link.target}"
        capacity = link.cables * cluster.port_rate
        require_same(f"capacity of {name}", link.capacity_bytes_per_s, capacity)
        require_same(f"latency of {name}", link.latency_s, cluster.hop_latency)
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
    split = degree_split(plan.links, cluster.degree if cluster.servers > 1 else 0)
    if (plan.degree_allreduce, plan.degree_transfer) != split:
        raise InputError(
            f"degree_allreduce is {plan.degree_allreduce} and degree_transfer "
            f"{plan.degree_transfer}, but rings take {counted(split[0], 'port')} of {sum(split)}"
        )


def check_rings(plan: Plan, rebuilt: Rebuilt) -> None:
    """Every ring is one cycle of its generator, if it has one, over cables of its own.

    All rings of a group that have generators count steps in the same places: those of its first
    such ring, in which the first server of the order is at place 0.
    """
    network = rebuilt.fabric.network
    used: Counter[tuple[int, int]] = Counter()
    places: dict[tuple[int, ...], dict[int, int]] = {}
    if plan.rings != sorted(plan.rings, key=ring_key):
        raise InputError("rings are not sorted by their servers, generator and order")
    edges = ring_edges(plan.rings)
    for link in plan.links:
        over = edges[link.source, link.target]
        if over != link.rings:
            raise InputError(
                f"link {link.source}->{link.target} has {counted(link.rings, 'ring')}, but {over} "
                "go over it"
            )
    for ring in plan.rings:
        order, size = ring.order, len(ring.order)
        if len(set(order)) != size or size < 2:
            raise InputError(f"ring +{ring.generator} visits a server twice or has one server")
        if order[0] != min(order):
            raise InputError(f"ring +{ring.generator} does not begin at its lowest server")
        if ring.generator:
            _check_steps(ring, places)
        for a, b in zip(order, [*order[1:], order[0]], strict=True):
            if not network.has_link(a, b):
                name = f"ring +{ring.generator}" if ring.generator else "a ring"
                raise InputError(f"{name} uses link {a}->{b}, which is not wired")
            used[a, b] += 1
            if used[a, b] > network.multiplicity[network.link(a, b)]:
                raise InputError(f"more rings use link {a}->{b} than it has cables")

    rings = [Ring(tuple(r.order), r.generator, tuple(sorted(r.order))) for r in plan.rings]
    for ring, again in zip(plan.rings, labelled(rings), strict=True):
        if ring.generator != again.generator:
            raise InputError(
                f"the ring {ring.order[0]}->{ring.order[1]}->... has generator 0, but is the ring "
                f"+{again.generator}"
            )


def _check_steps(ring: RingRecord, places: dict[tuple[int, ...], dict[int, int]]) -> None:
    """Each server of a ring stands its generator's places after the one before."""
    order, size = ring.order, len(ring.order)
    if not 0 < ring.generator < size:
        raise InputError(
            f"ring +{ring.generator} over {counted(size, 'server')}; give 1 to {size - 1}, or 0 "
            "for no step"
        )
    cycles = math.gcd(ring.generator, size)
    if cycles != 1:
        raise InputError(f"ring +{ring.generator} over {size} servers is {cycles} cycles, not one")
    group = tuple(sorted(order))
    if group not in places:
        seats = ring_places(order, ring.generator)
        places[group] = {server: position for position, server in enumerate(seats)}
    place = places[group]
    for a, b in zip(order, [*order[1:], order[0]], strict=True):
        if (place[b] - place[a]) % size != ring.generator:
            raise InputError(f"ring +{ring.generator} goes {a}->{b}, which is another step")


def check_times(plan: Plan, rebuilt: Rebuilt) -> None:
    """Simulation under the schedule gives the stated time, and divides it as stated."""
    simulated = rebuilt.simulate()
    require_same("iteration_time_s", plan.iteration_time_s, simulated.time, SIMULATED)
    require_same("compute_time_s", plan.compute_time_s, simulated.computing, SIMULATED)
    exposed = simulated.time - simulated.computing
    # A difference of two times, which may be nothing but their rounding.
    if abs(plan.exposed_communication_s - exposed) > SIMULATED * simulated.time:
        raise InputError(
            f"exposed_communication_s is {plan.exposed_communication_s!r} in the plan, "
            f"recomputed {exposed!r}"
        )
    _check_rates(plan, rebuilt, simulated.time)
    tasks = rebuilt.represented()
    plain = score(rebuilt.fabric, tasks)
    require_same("schedule.plain_time_s", plan.schedule.plain_time_s, plain, SIMULATED)
    traffic = traffic_of(tasks)
    useful = traffic.allreduce_sent() + traffic.transfer_sent()
    tax = float(link_bytes(rebuilt.fabric, tasks).sum() / useful) if useful else 1.0
    require_same("bandwidth_tax", plan.bandwidth_tax, tax)


def _check_rates(plan: Plan, rebuilt: Rebuilt, time: float) -> None:
    """Tokens a second and utilisation follow from the time of a transformer; others have none."""
    family = rebuilt.family
    expected: dict[str, float | None] = {"tokens_per_s": None, "model_flops_utilisation": None}
    if isinstance(family, LayoutFamily):
        expected = {
            "tokens_per_s": family.tokens_per_s(time),
            "model_flops_utilisation": family.utilisation(time),
        }
    for name, value in expected.items():
        stated = getattr(plan, name)
        if value is None or stated is None:
            if value is not stated:
                raise InputError(f"{name} is {stated!r} in the plan, expected {value!r}")
        else:
            require_same(name, stated, value, SIMULATED)


def check_bounds(plan: Plan, rebuilt: Rebuilt) -> None:
    """The lower bounds are those of the job and the strategy, and lie below the time."""
    tasks = rebuilt.simulate().tasks
    whole: Bound | None = None
    if isinstance(rebuilt.family, LayoutFamily):
        bounded = fitting_bounds(rebuilt.family)
        _check_counts(plan, rebuilt.family, len(bounded))
        whole = least_bound(rebuilt.family, wirings_of(rebuilt.family, rebuilt.cluster), bounded)
    # The weights were found by a search whose end another machine's arithmetic may move; with
    # any weights the bound holds, and theirs is recomputed.
    again = plan_bounds(
        rebuilt.family, rebuilt.cluster, rebuilt.strategy, rebuilt.fabric, tasks,
        plan.iteration_time_s, weights=plan.bound.weights, schedule=rebuilt.schedule,
        everything=whole,
    )  # fmt: skip
    everything, own = again.everything, again.parallelization
    for name, stored, bound in (
        ("bound", plan.bound, everything),
        ("parallelization_bound", plan.parallelization_bound, own),
        ("topology_bound", plan.topology_bound, again.topology),
        ("routes_bound", plan.routes_bound, again.routes),
        ("collective_bound", plan.collective_bound, again.collective),
    ):
        require_same(f"{name}.seconds", stored.seconds, bound.seconds)
        if set(stored.terms_s) != set(bound.terms):
            raise InputError(f"{name} has terms {sorted(stored.terms_s)}")
        for term, value in bound.terms.items():
            require_same(f"{name} term {term}", stored.terms_s[term], value)
        if set(stored.weights) != set(bound.weights):
            raise InputError(f"{name} has weights of {sorted(stored.weights)}")
        for term, value in bound.weights.items():
            require_same(f"{name} weight of {term}", stored.weights[term], value)
        if stored.binding != bound.binding:
            raise InputError(f"{name}.binding is {stored.binding!r}, not {bound.binding!r}")
    require_same("lower_bound_s", plan.lower_bound_s, everything.seconds)
    tightest = max(own.seconds, everything.seconds)
    require_same("parallelization_lower_bound_s", plan.parallelization_lower_bound_s, tightest)
    require_same("gap", plan.gap, plan.iteration_time_s / plan.lower_bound_s - 1.0, SIMULATED)
    if plan.parallelization_lower_bound_s > plan.iteration_time_s:
        raise InputError("a lower bound exceeds the iteration time")
    names = [part.name for part in again.parts]
    if [part.name for part in plan.gap_parts] != names:
        raise InputError(f"gap_parts are not {', '.join(names)}")
    for part, computed in zip(plan.gap_parts, again.parts, strict=True):
        # Differences of times, each of which may be rounded.
        if abs(part.seconds - computed.seconds) > SIMULATED * plan.iteration_time_s:
            raise InputError(
                f"gap_parts: {part.name} is {part.seconds!r} in the plan, recomputed "
                f"{computed.seconds!r}"
            )
        if (part.binding, part.how) != (computed.binding, how(part.name, rebuilt.family.noun)):
            raise InputError(f"gap_parts: {part.name} has another binding or method")


def _check_counts(plan: Plan, family: LayoutFamily, fitting: int) -> None:
    """As many layouts are considered, and fit, as stated."""
    for name, number in (("layouts", len(family.layouts())), ("fitting", fitting)):
        if plan.search.counts[name] != number:
            raise InputError(
                f"search.counts.{name} is {plan.search.counts[name]}, recomputed {number}"
            )


def check_costs(plan: Plan, rebuilt: Rebuilt) -> None:
    """The network costs what the price table says."""
    cluster = rebuilt.cluster
    prices = PriceTable.from_dict(plan.prices)
    cost = direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices)
    require_same("cost_usd", plan.cost_usd, cost)


def check_starts(plan: Plan, rebuilt: Rebuilt) -> None:
    """The starting strategies take the stated times on topologies of their own."""
    named = _named(plan, rebuilt)
    family = rebuilt.family
    if not isinstance(family, OperatorFamily):
        return
    problem = Problem(family, rebuilt.cluster, plan.search.options, plan.seed).fused
    rewirer = Rewirer(problem)
    near = rewirer.tolerance
    for name, stored in plan.named_strategies_s.items():
        if name not in named:
            raise InputError(f"named_strategies_s has {name!r}, which this job does not have")
        strategy = named[name]
        fits = problem.fits(strategy)
        if fits != (stored is not None):
            raise InputError(f"named_strategies_s: {name} {'fits' if fits else 'does not fit'}")
        if not fits:
            continue
        pair = start_pair(rewirer, strategy, name)
        if pair is not None and name not in USUAL:
            pair = rewirer.exactly(pair)
        if pair is None:
            raise InputError(f"named_strategies_s: {name} cannot be wired")
        require_same(f"named_strategies_s of {name}", stored, pair.time, SIMULATED)
        # The methods that exist for comparison do not go back to where they started, and packet
        # trains may prefer what is slower in the fluid model. Buckets of the plan are filled in
        # another order than those of the starts, which may be slower, too.
        compared = SEARCHES[plan.search.options.searched].compared
        if (
            not compared
            and plan.search.options.confirm != "packet"
            and plan.search.options.schedule != "fused"
            and plan.iteration_time_s > pair.time * (1 + (near if problem.spares else SIMULATED))
        ):
            raise InputError(f"the plan is slower than the starting strategy {name}")
    if not plan.search.interrupted:
        _check_left_out(plan, family, named, rewirer)


def _check_left_out(
    plan: Plan, family: OperatorFamily, named: dict[str, Strategy], rewirer: Rewirer
) -> None:
    """Starting strategies without a time fit, are not the usual ones, and are slow."""
    options = plan.search.options
    times = sorted(time for time in plan.named_strategies_s.values() if time is not None)
    # Searches give the times of as many as they have chains, unless those are slow.
    limit = SLOW_START * min(times, default=math.inf)
    if len(times) >= options.chains:
        limit = min(limit, times[options.chains - 1])
    limit *= 1.0 - 2.0 * rewirer.tolerance  # of their scores
    for name, strategy in named.items():
        if name in plan.named_strategies_s or (options.faithful and name not in USUAL):
            continue
        if name not in USUAL and bool(family.memory(strategy).max() <= family.memory_limit):
            pair = start_pair(rewirer, strategy, name, limit)
            if pair is None or pair.time >= limit:
                continue
        raise InputError(f"named_strategies_s lacks {name}")


def check_baselines(plan: Plan, rebuilt: Rebuilt) -> None:
    """The fabrics compared with cost and take what is stated, with legal parallelizations."""
    prices = PriceTable.from_dict(plan.prices)
    family: Any = rebuilt.family
    asked = plan.search.options.reconfiguration
    problem: Problem[Any] = Problem(family, rebuilt.cluster, plan.search.options, plan.seed).fused
    packet_stated = says_packets(plan, rebuilt)
    for name, record in plan.baselines.items():
        base = baseline_fabric(name, rebuilt.cluster, prices, plan.seed, asked)
        if record.reconfiguration != reconfiguration_record(base.fabric):
            raise InputError(f"reconfiguration of {name} is not what search.options asked for")
        if record.parallelization.kind != family.kind:
            raise InputError(f"parallelization of {name} is of {record.parallelization.kind}")
        try:
            strategy = family.read(record.parallelization)
        except InputError as error:
            raise InputError(f"the {family.noun} of {name}: {error}") from None
        _check_record(record.parallelization, strategy, family)
        _check_origin(record.origin, strategy, plan, rebuilt)
        scorer = compared_scorer(problem.plain, base.fabric, strategy)
        took = Took(scorer(strategy), scorer.bounded, False)
        time, bounded, _ = in_other_buckets(problem.plain, base.fabric, strategy, took)
        if bounded != record.bounded:
            raise InputError(f"bounded of {name} is {record.bounded}, expected {bounded}")
        require_same(f"iteration_time_s of {name}", record.iteration_time_s, time, SIMULATED)
        packets = None
        if packet_stated and (record.packet_time_s is not None or not plan.search.interrupted):
            packets = packet_times_on(base.fabric, family.build(strategy), base.real)
        if packets is not None and record.packet_time_s is not None:
            stated = f"packet_time_s of {name}"
            require_same(stated, record.packet_time_s, packets.mean, SIMULATED)
        elif packets is not None or record.packet_time_s is not None:
            raise InputError(f"packet_time_s of {name} is {record.packet_time_s!r}")
        if base.cost != record.cost_usd and (base.cost is None or record.cost_usd is None):
            raise InputError(f"cost_usd of {name} is {record.cost_usd!r}, expected {base.cost!r}")
        if base.cost is not None:
            require_same(f"cost_usd of {name}", record.cost_usd, base.cost)
        require_same(f"bandwidth of {name}", record.bandwidth_bytes_per_s, base.bandwidth)
