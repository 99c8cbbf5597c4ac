"""All that an answer depends on, as plain data: files of answers are read for no other question."""

from dataclasses import asdict
from typing import Any

from topoopt.base.version import package_hash
from topoopt.problem.cluster import Cluster
from topoopt.problem.job import Job
from topoopt.problem.options import SearchOptions
from topoopt.problem.prices import PriceTable


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


def numbers_of(cluster: Cluster) -> list[float | str]:
    """Return a cluster with its port rate in bytes/s and its latency in seconds."""
    return [
        cluster.servers, cluster.degree, cluster.port_rate, cluster.ports, cluster.hop_latency,
    ]  # fmt: skip
