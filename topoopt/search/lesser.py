"""Methods that the joint search is compared with: each leaves something out."""

from topoopt.evaluate.pair import Pair
from topoopt.problem.routing import Routing
from topoopt.search.joint import relieved, scored_crosswise
from topoopt.search.on_switch import best_streams, seeds, starts_of, widening
from topoopt.search.population import best_starts
from topoopt.search.search_state import SearchState
from topoopt.search.starts import USUAL
from topoopt.search.steps import Deadline, Round, Search, SearchMethod, rewired


def rewired_if_changed(search: Search, state: SearchState, r: Round, changed: bool) -> None:
    """Build topologies for a strategy that the round has found."""
    if changed:
        rewired(search, state, r, changed)


def best_for_worst(search: Search, state: SearchState, current: list[Pair]) -> list[Pair]:
    """Let the worst chain go on from the best pair of all."""
    worst = max(range(len(current)), key=lambda c: (current[c].time, c))
    return [state.result.best if c == worst else pair for c, pair in enumerate(current)]


def on_ideal_switch(
    search: Search, state: SearchState, pairs: list[Pair], deadline: Deadline
) -> list[Pair]:
    """Start every chain from the strategy that is fastest on the ideal switch, unwired."""
    score = search.scorer(search.ideal)
    known = [pair.strategy for pair in pairs]
    widened = widening(search, score, known)
    own = seeds(search, score, known)
    time, strategy = starts_of(own, best_streams(search, score), widened)[0]
    best = Pair(strategy, None, Routing.ECMP, search.ideal, time, "search")
    return [best] * search.options.chains


def wired_at_last(search: Search, state: SearchState) -> None:
    """Wire the strategy that is best on the ideal switch; the starts do not compete."""
    chosen = min(state.current, key=lambda pair: pair.time)
    pair = search.rewirer().wire(chosen.strategy, "search", weighted=True)
    assert pair is not None  # without a limit every pair is simulated
    state.result.best, state.result.others = pair, [pair]


def from_usual(
    search: Search, state: SearchState, pairs: list[Pair], deadline: Deadline
) -> list[Pair]:
    """Start every chain from the usual pair."""
    usual = usual_pair(pairs)
    state.result.best, state.result.others = usual, [usual]
    return [usual] * search.options.chains


def rewired_usual(
    search: Search, state: SearchState, pairs: list[Pair], deadline: Deadline
) -> list[Pair]:
    """Wire the usual strategy; there is nothing else to search."""
    usual = usual_pair(pairs)
    found = search.rewirer().wire(usual.strategy, usual.origin, limit=usual.time, weighted=True)
    best = usual if found is None else min(found, usual, key=lambda p: p.time)
    state.result.best, state.result.others = best, [best]
    return []


def usual_pair(pairs: list[Pair]) -> Pair:
    """Return the pair of the hybrid, else of data parallelism, else the fastest."""
    for name in reversed(USUAL):
        for pair in pairs:
            if pair.origin == name:
                return pair
    return pairs[0]


# Each chain alternates between strategies on its topology and topologies for its strategy.
ALTERNATING = SearchMethod(best_starts, rewired_if_changed, mix=(best_for_worst,))
# Strategies for an ideal switch with all the budget; then a topology for the best.
SEQUENTIAL = SearchMethod(
    on_ideal_switch, mix=(scored_crosswise, relieved), conclude=wired_at_last, compared=True
)
# Strategies on the topology that was built for the usual strategy.
STRATEGY_ONLY = SearchMethod(from_usual, mix=(best_for_worst,), compared=True)
# Topologies and routings for the usual strategy.
TOPOLOGY_ONLY = SearchMethod(rewired_usual, compared=True)
