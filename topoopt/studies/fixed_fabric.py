"""The best strategy found on a fabric that is not rewired for it."""

import numpy as np

from parallelism.search.mcmc import Acceptance, Chain, propose
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.scoring import Scorer, search_tolerance
from topoopt.fabric.reconfigurable import AnyFabric
from topoopt.problem.budget import Budget


def best_on(
    fabric: AnyFabric,
    problem: Problem,
    space: StrategySpace,
    starts: dict[str, Strategy],
    budget: Budget,
    rng: np.random.Generator,
) -> tuple[Strategy, float, str]:
    """Find the best strategy for a fixed fabric.

    Parameters
    ----------
    fabric : Fabric, GpuPorts, DirectCircuits or WindowedCircuits
    problem : Problem
        Of its cluster only the servers count here, and devices work in order of arrival.
    space : StrategySpace
    starts : dict of str to Strategy
        Scored first; the search goes on from the best.
    budget : Budget
        Steps and work.
    rng : numpy.random.Generator

    Returns
    -------
    strategy : Strategy
    time : float
        Seconds.
    origin : str
        Name of the start, or "search".
    """
    plain = problem.plain
    quick = Scorer(plain, fabric, search_tolerance(plain.family.servers))
    origin, fastest = "", float("inf")
    for name, strategy in starts.items():
        time = quick(strategy, fastest)
        if time < fastest:
            origin, fastest = name, time
    chain = Chain.start(starts[origin], fastest)
    acceptance = Acceptance()
    quick.work = 0.0
    for step in range(budget.steps):
        if quick.work >= budget.work:
            break
        change = propose(space, chain.strategy, rng)
        chain.step(change, quick, rng, acceptance, step / budget.steps)
    # The search may have batched completions; what is reported is exact.
    exact = Scorer(plain, fabric)
    time = exact(starts[origin])
    if chain.best is not starts[origin]:
        searched = exact(chain.best, time)
        if searched < time:
            return chain.best, searched, "search"
    return starts[origin], time, origin
