"""The fabric: how long one training iteration takes over a network, flow by flow."""

from topoopt.fabric.fabric import Fabric, GroupStreams
from topoopt.fabric.rings import default_rings
from topoopt.fabric.simulate import link_bytes, score, simulate
from topoopt.fabric.timeline import (
    Timeline,
    compute_on_critical_path,
    critical_path,
    exposed_communication,
)

__all__ = [
    "Fabric",
    "GroupStreams",
    "Timeline",
    "compute_on_critical_path",
    "critical_path",
    "default_rings",
    "exposed_communication",
    "link_bytes",
    "score",
    "simulate",
]
