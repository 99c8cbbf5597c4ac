"""All methods of the search over operator strategies, by the names that options give them."""

from topoopt.evaluate.problem import Problem
from topoopt.search.faithful import ARTIFACT, PAPER
from topoopt.search.joint import JOINT_METHOD
from topoopt.search.lesser import ALTERNATING, SEQUENTIAL, STRATEGY_ONLY, TOPOLOGY_ONLY
from topoopt.search.steps import Search, SearchMethod

SEARCHES: dict[str, SearchMethod] = {
    "joint": JOINT_METHOD,
    "alternating": ALTERNATING,
    "sequential": SEQUENTIAL,
    "strategy-only": STRATEGY_ONLY,
    "topology-only": TOPOLOGY_ONLY,
    "paper": PAPER,
    "artifact": ARTIFACT,
}


def search_for(problem: Problem) -> Search:
    """Return the search that a problem's options ask for.

    Raises
    ------
    InputError
        If its method cannot serve the problem.
    """
    return Search(problem, SEARCHES[problem.options.searched])
