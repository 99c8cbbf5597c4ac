"""The checks of what a plan is compared with: costs, starting strategies, other fabrics."""

import math
from typing import Any

from codesign_base import InputError
from parallelism.operator_family import OperatorFamily
from parallelism.strategy import Strategy
from topoopt.baselines.baselines import baseline_fabric, file_fabric, is_network_file
from topoopt.evaluate.baseline_scores import Took, baseline_scorer, in_other_buckets
from topoopt.evaluate.rewire import Rewirer
from topoopt.plan.arithmetic import SIMULATED, require_same
from topoopt.plan.parallelization_checks import check_origin, check_record, named_of
from topoopt.plan.plan import Plan
from topoopt.plan.rebuild import Rebuilt, problem_of
from topoopt.plan.recorded import reconfiguration_record
from topoopt.problem.prices import PriceTable, direct_connect_cost
from topoopt.search.confirm import packet_times_on, states_packets
from topoopt.search.methods import SEARCHES, search_for
from topoopt.search.starts import SLOW_START, USUAL, start_pair
from topoopt.search.steps import Search


def check_costs(plan: Plan, rebuilt: Rebuilt) -> None:
    """The network costs what the price table says."""
    cluster = rebuilt.cluster
    prices = PriceTable.from_dict(plan.prices)
    cost = direct_connect_cost(cluster.servers, cluster.degree, cluster.port_rate, prices)
    require_same("cost_usd", plan.cost_usd, cost)


def check_starts(plan: Plan, rebuilt: Rebuilt) -> None:
    """The starting strategies take the stated times on topologies of their own."""
    named = named_of(plan, rebuilt)
    family = rebuilt.family
    if not isinstance(family, OperatorFamily):
        return
    problem = problem_of(plan, rebuilt).fused
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
        if pair is None:
            raise InputError(f"named_strategies_s: {name} cannot be wired")
        require_same(f"named_strategies_s of {name}", stored, pair.time, SIMULATED)
        # The methods that exist for comparison do not go back to where they started. Buckets of
        # the plan are filled in another order than those of the starts, which may be slower, too.
        compared = SEARCHES[plan.search.options.searched].compared
        if (
            not compared
            and not _chosen_by_packets(plan)
            and plan.search.options.schedule != "fused"
            and plan.iteration_time_s > pair.time * (1 + (near or SIMULATED))
        ):
            raise InputError(f"the plan is slower than the starting strategy {name}")
    if not plan.search.interrupted:
        _check_left_out(plan, family, named, rewirer, search_for(problem))


def _chosen_by_packets(plan: Plan) -> bool:
    """Whether packet trains may have preferred what is slower in the fluid model.

    They do among what a search found if that is asked, and whenever a plan has a packet time
    between it and what was found for other fabrics (`topoopt.codesign.from_others`).
    """
    options = plan.search.options
    others = options.schedule == "plain" and options.faithful is None and bool(plan.baselines)
    return options.confirm == "packet" or (others and plan.packet_time_s is not None)


def _check_left_out(
    plan: Plan,
    family: OperatorFamily,
    named: dict[str, Strategy],
    rewirer: Rewirer,
    search: Search,
) -> None:
    """Starting strategies without a time fit, are not the usual ones, and are slow.

    Or nothing could be faster than one that has a time by as much as counts.
    """
    options = plan.search.options
    times = sorted(time for time in plan.named_strategies_s.values() if time is not None)
    # Searches give the times of as many as they have chains, unless those are slow.
    limit = SLOW_START * min(times, default=math.inf)
    if len(times) >= options.chains:
        limit = min(limit, times[options.chains - 1])
    limit *= 1.0 - 2.0 * rewirer.tolerance  # of their scores
    enough = search.exhausted(min(times, default=math.inf))
    for name, strategy in named.items():
        if name in plan.named_strategies_s or (options.faithful and name not in USUAL):
            continue
        if name not in USUAL and bool(family.memory(strategy).max() <= family.memory_limit):
            pair = None if enough else start_pair(rewirer, strategy, name, limit)
            if pair is None or pair.time >= limit:
                continue
        raise InputError(f"named_strategies_s lacks {name}")


def check_baselines(plan: Plan, rebuilt: Rebuilt) -> None:
    """The fabrics compared with cost and take what is stated, with legal parallelizations."""
    prices = PriceTable.from_dict(plan.prices)
    family: Any = rebuilt.family
    asked = plan.search.options.reconfiguration
    problem = problem_of(plan, rebuilt).fused
    packet_stated = states_packets(problem)
    for name, record in plan.baselines.items():
        base = (
            file_fabric(name, rebuilt.cluster, plan.seed)
            if is_network_file(name)
            else baseline_fabric(name, rebuilt.cluster, prices, plan.seed, asked)
        )
        if record.reconfiguration != reconfiguration_record(base.fabric):
            raise InputError(f"reconfiguration of {name} is not what search.options asked for")
        if record.parallelization.kind != family.kind:
            raise InputError(f"parallelization of {name} is of {record.parallelization.kind}")
        try:
            strategy = family.read(record.parallelization)
        except InputError as error:
            raise InputError(f"the {family.noun} of {name}: {error}") from None
        check_record(record.parallelization, strategy, family)
        check_origin(record.origin, strategy, plan, rebuilt)
        scorer = baseline_scorer(problem.plain, base.fabric, strategy)
        took = Took(scorer(strategy), scorer.bounded, False)
        time, bounded, _ = in_other_buckets(problem.plain, base.fabric, strategy, took)
        if bounded != record.bounded:
            raise InputError(f"bounded of {name} is {record.bounded}, expected {bounded}")
        require_same(f"iteration_time_s of {name}", record.iteration_time_s, time, SIMULATED)
        packets = None
        if packet_stated and (record.packet_time_s is not None or not plan.search.interrupted):
            packets = packet_times_on(base, family.build(strategy))
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
