"""All that an answer depends on, as plain data: files of answers are read for no other question."""

from dataclasses import asdict, dataclass
from typing import Any

from topoopt.base.version import package_hash
from topoopt.baselines.baseline import BaselineFabric
from topoopt.problem.cluster import Cluster
from topoopt.problem.job import Job
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import PriceTable
from topoopt.topology.finder import Topology


@dataclass(frozen=True)
class PlanQuestion:
    """A job to plan on a cluster: all that its plan depends on, each argument checked.

    Parameters
    ----------
    job : Job
    cluster : Cluster
    options : SearchOptions
    seed : int
    baselines : tuple of (str or BaselineFabric)
        What the plan is compared with.
    prices : PriceTable or None
        None: the default prices.
    wiring : Topology, optional
        How the servers are wired already.
    """

    job: Job
    cluster: Cluster
    options: SearchOptions
    seed: int
    baselines: tuple[str | BaselineFabric, ...]
    prices: PriceTable | None
    wiring: Topology | None = None

    def record(self) -> dict[str, Any]:
        """Return the question as data that JSON can hold, if all baselines are names."""
        return question_of(
            self.job, self.options, self.seed, self.prices, cluster=numbers_of(self.cluster),
            baselines=list(self.baselines), wiring=_cables_of(self.wiring),
        )  # fmt: skip


def question_of(
    job: Job, options: SearchOptions, seed: int, prices: PriceTable | None, **more: Any
) -> dict[str, Any]:
    """Return what is asked of a search, and the source code that answers.

    Parameters
    ----------
    job : Job
    options : SearchOptions
    seed : int
    prices : PriceTable, optional
    **more : JSON data
        What else is asked, such as a cluster (`numbers_of`).

    Returns
    -------
    dict
        Data that JSON can hold.
    """
    from pydantic import TypeAdapter

    asked = job.family(1).question()
    return {
        "job": TypeAdapter(type(asked)).dump_python(asked, mode="json"),
        "options": asdict(options),
        "seed": seed,
        "prices": None if prices is None else prices.to_dict(),
        "code": package_hash(),
        **more,
    }


def _cables_of(wiring: Topology | None) -> Any:
    """Return the cables from server to server, and the rings, of what is wired already."""
    if wiring is None:
        return None
    network = wiring.network
    links = (network.source.tolist(), network.target.tolist(), network.multiplicity.tolist())
    return [links, [ring.members for ring in wiring.rings]]


def numbers_of(cluster: Cluster) -> list[float | str]:
    """Return a cluster with its port rate in bytes/s and its latency in seconds."""
    return [
        cluster.servers, cluster.degree, cluster.port_rate, cluster.ports, cluster.hop_latency,
    ]  # fmt: skip
