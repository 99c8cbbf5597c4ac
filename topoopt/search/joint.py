"""The joint search: a population of strategies and topologies that take from each other.

Alternation keeps what suits the present topology, and so finds neither a strategy that would
need another topology nor the topology that it would need. Here strategies are first sought on
an ideal switch (`topoopt.search.population`); the most promising are wired, refined on their
fabrics, and every strategy is scored on every fabric. What is stuck tries neighbours that are
wired for themselves, and gives way to another pair in the end.
"""

from dataclasses import replace

from parallelism.search.local import LARGE
from parallelism.strategy import Strategy
from topoopt.evaluate.pair import Pair
from topoopt.search.joint_moves import JointMoves, best_wired
from topoopt.search.population import wired_population
from topoopt.search.search_state import SearchState
from topoopt.search.steps import Round, Search, SearchMethod, rewired

# Rounds without progress after which a pair gives way to one in reserve, else to the best.
_IDLE = 4
# Neighbours looked at for a stuck pair, a proposal of its round.
_LEAPS = 4
# Children are wired for no more than this share of the work so far.
_CROSSED = 0.25
# Progress is a gain of this share.
_PROGRESS = 1e-3


def rewired_or_escaped(search: Search, state: SearchState, r: Round, changed: bool) -> None:
    """Build topologies for a new strategy; try neighbours of an old one, each wired for itself."""
    if changed:
        rewired(search, state, r, changed)
        return
    if r.moves is None:
        r.moves = moves_of(search, state, r.pair)
    score = search.quick_scorer(search.ideal)
    wirer = search.wirer()
    # Wiring some on many servers would cost many times all that came before.
    most_work = state.result.work
    found = r.moves.step(score, wirer, r.rng, _LEAPS * r.steps, most_work)
    r.work += score.work + wirer.work
    if found is not None:
        r.pair, r.searcher, r.moves = found, None, None


def moves_of(search: Search, state: SearchState, pair: Pair) -> JointMoves:
    """Return the neighbours of a pair; chains at one pair share them between them."""
    if search.threaded:
        return JointMoves(search.space, search.regions, pair)
    for moves in state.shared:
        if moves.pair.time == pair.time and moves.pair.strategy == pair.strategy:
            return moves
    found = JointMoves(search.space, search.regions, pair)
    state.shared = [found, *state.shared][: search.options.chains]
    return found


def scored_crosswise(search: Search, state: SearchState, current: list[Pair]) -> list[Pair]:
    """Score every strategy on every other fabric; each fabric takes the fastest."""
    scored = list(current)
    for place, host in enumerate(current):
        score = search.scorer(host.fabric)
        for guest in current:
            if guest.strategy == host.strategy or host.wired_like(guest):
                continue  # on equal fabrics the pairs would become one
            time = score(guest.strategy, scored[place].time)
            if time < scored[place].time:
                scored[place] = replace(
                    host, strategy=guest.strategy, time=time, origin=guest.origin
                )
        state.result.work += score.work
    search.keep(state.result, scored)
    return scored


def crossover(search: Search, state: SearchState, current: list[Pair]) -> list[Pair]:
    """Give each pair large regions of the others' strategies; wire the most promising.

    Wiring ends where it costs a share of all that came before: many children of a large job
    would cost ten times its budget. (Not by what is left of the budget, so that the steps
    alone reproduce a search.)
    """
    result, current = state.result, list(current)
    score = search.quick_scorer(search.ideal)
    wirer = search.wirer()
    most_work = _CROSSED * result.work
    for place, host in enumerate(current):
        children: dict[Strategy, None] = {}
        for guest in current:
            if (host.strategy, guest.strategy) in state.crossed:
                continue
            state.crossed.add((host.strategy, guest.strategy))
            for region in search.regions.fixed:
                if len(region) >= LARGE:
                    change = [(i, guest.strategy.configs[i]) for i in region]
                    children[host.strategy.replace(change)] = None
        current[place] = best_wired(host, children, score, wirer, most_work) or host
    result.work += score.work + wirer.work
    search.keep(result, current)
    return current


def relieved(search: Search, state: SearchState, current: list[Pair]) -> list[Pair]:
    """Let what is stuck for long give way to a pair in reserve, else to the best."""
    current = list(current)
    for c, pair in enumerate(current):
        slow = pair.time > state.times[c] * (1.0 - _PROGRESS)
        state.idle[c] = state.idle[c] + 1 if slow else 0
        if state.idle[c] >= _IDLE:
            # Not at once: pairs that begin slower may have further to go.
            current[c] = state.reserve.pop(0) if state.reserve else state.result.best
            state.idle[c] = 0
        state.times[c] = current[c].time
    return current


JOINT_METHOD = SearchMethod(
    wired_population, rewired_or_escaped, mix=(scored_crosswise, crossover, relieved)
)
