"""What most experiments on fixed strategies start from: a preset on a cluster, and its parts."""

from dataclasses import dataclass

from codesign_base import InfeasibleError, InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import ModelGraph
from parallelism.operator_family import OperatorFamily
from parallelism.search.named import named_strategies
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy
from topoopt.evaluate.pair import Pair
from topoopt.evaluate.problem import Problem
from topoopt.evaluate.rewire import Rewirer
from topoopt.problem.cluster import Cluster
from topoopt.problem.job import Job
from topoopt.problem.options import SearchOptions


@dataclass(frozen=True, eq=False)
class Setting:
    """A job on a cluster, ready to build task graphs.

    Parameters
    ----------
    cluster : Cluster
    family : OperatorFamily
        Of the job on the cluster's servers.
    space : StrategySpace
    """

    cluster: Cluster
    family: OperatorFamily
    space: StrategySpace

    @property
    def builder(self) -> TaskGraphBuilder:
        """What builds the family's task graphs."""
        return self.family.builder

    def problem(self, options: SearchOptions | None = None, seed: int = 0) -> Problem:
        """Return what strategies are scored on."""
        return Problem(self.family, self.cluster, options or SearchOptions(), seed)

    def strategies(self) -> dict[str, Strategy]:
        """Return the named strategies that fit in memory, data parallelism first."""
        found = {
            name: self.space.intern(plain) for name, plain in named_strategies(self.space).items()
        }
        problem = self.problem()
        return {name: strategy for name, strategy in found.items() if problem.fits(strategy)}

    def strategy(self, name: str, *, must_fit: bool = True) -> Strategy:
        """Return a named strategy.

        Raises
        ------
        InputError
            If this job has none of that name.
        InfeasibleError
            If it must fit in memory and does not.
        """
        known = named_strategies(self.space)
        if name not in known:
            raise InputError(f"strategy is {name!r}; choose {', '.join(known)}")
        strategy = self.space.intern(known[name])
        if must_fit and not self.problem().fits(strategy):
            needed = float(self.family.memory(strategy).max())
            raise InfeasibleError(
                f"strategy {name} needs {needed / 1e9:.4g} GB per GPU; choose another"
            )
        return strategy

    def wired(self, strategy: Strategy, name: str, seed: int = 0) -> Pair:
        """Return a strategy that fits on the best topology built for it."""
        pair = Rewirer(self.problem(seed=seed)).wire(strategy, name)
        assert pair is not None  # without a limit every pair is simulated
        return pair


def setting(
    model: ModelGraph,
    servers: int,
    degree: int,
    bandwidth_gbps: float,
    *,
    batch_per_gpu: int | None = None,
) -> Setting:
    """Return a model on the default server with the default roofline, on a cluster.

    Parameters
    ----------
    model : ModelGraph
    servers, degree : int
    bandwidth_gbps : float
        Of a port, each way.
    batch_per_gpu : int, optional
        The model's own by default.

    Returns
    -------
    Setting
    """
    job = Job(model, batch_per_gpu)
    family = job.family(servers)
    assert isinstance(family, OperatorFamily)  # the model is a graph of operators
    cluster = Cluster(servers, degree, f"{bandwidth_gbps}Gbps")
    return Setting(cluster, family, StrategySpace(model, servers, family.batch))
