"""Published iteration times, carried in a data file with their source."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import mean

from topoopt.problem.units import parse_bandwidth


@dataclass(frozen=True, slots=True)
class ReferenceTime:
    """One iteration of a published task graph in a packet simulator.

    Parameters
    ----------
    graph : str
        Name of the task-graph file, without its ending.
    fabric : {"ideal", "fat-tree"}
    bandwidth : float
        Bytes/s of every link.
    time_s : float
        Iteration time: the mean of the runs with perturbed delays, where there are any.
    wall_time_s : float
        What that simulator took on one core.
    """

    graph: str
    fabric: str
    bandwidth: float
    time_s: float
    wall_time_s: float


@dataclass(frozen=True, slots=True)
class ReferenceTable:
    """A table of reference times.

    Parameters
    ----------
    source, setting, noise : str
        Where the times come from, how they were made, and how far they depend on chance.
    latency_s : float
        Of a hop.
    times : tuple of ReferenceTime
    """

    source: str
    setting: str
    noise: str
    latency_s: float
    times: tuple[ReferenceTime, ...]


@cache
def packet_level() -> ReferenceTable:
    """Return the packet-level times of the task graphs published with TopoOpt (NSDI 2023)."""
    text = (
        files("topoopt.studies.validation")
        .joinpath("packet_level.json")
        .read_text(encoding="utf-8")
    )
    document = json.loads(text)
    return ReferenceTable(
        source=document["source"],
        setting=document["setting"],
        noise=document["noise"],
        latency_s=document["latency_ns"] / 1e9,
        times=tuple(
            ReferenceTime(
                graph=case["graph"],
                fabric=case["fabric"],
                bandwidth=parse_bandwidth(f"{case['link_gbps']}Gbps"),
                time_s=mean(case.get("perturbed_ms", [case["iteration_time_ms"]])) / 1e3,
                wall_time_s=case["wall_time_s"],
            )
            for case in document["cases"]
        ),
    )
