"""Published numbers that tables show beside ours, with their source; none is tuned to match."""

import os
from pathlib import Path

from codesign_base import InputError
from codesign_base.counted import counted

FAT_TREE_TREND = 3.4
FAT_TREE_TREND_SOURCE = (
    "TopoOpt (NSDI 2023), abstract: up to 3.4x shorter training time than a similar-cost Fat-tree"
)

SIXTEEN_SERVERS_SOURCE = (
    "TopoOpt's published simulator data, packet level, 16 servers, 100 Gbps, measured profiles"
)
# Iteration times of the published searches in milliseconds, by model and degree.
_SIXTEEN_SERVERS_MS: dict[tuple[str, int], tuple[float, ...]] = {
    ("dlrm-16", 4): (23.16, 23.64, 24.44, 25.15, 33.58),
    ("dlrm-16", 8): (15.19, 19.38, 19.61, 19.93, 20.92),
    ("bert-16", 4): (62.815,),
    ("bert-16", 8): (62.644,),
    ("vgg16-16", 4): (100.559,),
    ("vgg16-16", 8): (100.559,),
    ("candle-16", 4): (225.222,),
    ("candle-16", 8): (131.546,),
}


PROFILES = {
    "dlrm-16": "dlrm16.json",
    "candle-16": "candle16.json",
    "bert-16": "transformer16.json",
    "vgg16-16": "vgg16.json",
}
"""Published files of measured operator times by preset, see `measured_profile`."""


def measured_profile(model: str) -> Path:
    """Return where a preset's profile is, if it is there: beside data that TOPOOPT_DATA names."""
    return Path(os.environ.get("TOPOOPT_DATA", ".")) / "measured" / PROFILES.get(model, "none")


def operator_times() -> list[str]:
    """Return what operator times can be had here: of the roofline, and measured ones."""
    found = "TOPOOPT_DATA" in os.environ and measured_profile("dlrm-16").parent.is_dir()
    return ["roofline", "measured"] if found else ["roofline"]


def sixteen_servers_s(model: str, degree: int) -> tuple[float, float]:
    """Return the best and worst published iteration time of TopoOpt on 16 servers.

    Parameters
    ----------
    model : str
        A preset of the shared-cluster experiment.
    degree : {4, 8}

    Returns
    -------
    best, worst : float
        Seconds.

    Raises
    ------
    InputError
        If none is published.
    """
    found = _SIXTEEN_SERVERS_MS.get((model, degree))
    if found is None:
        known = ", ".join(sorted({name for name, _ in _SIXTEEN_SERVERS_MS}))
        raise InputError(
            f"no time of {model} with {counted(degree, 'port')} is published; choose {known} with "
            "4 or 8"
        )
    return min(found) / 1e3, max(found) / 1e3
