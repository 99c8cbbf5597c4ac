"""The fabric: how long one training iteration takes over a network, flow by flow."""

from topoopt.fabric.circuits import DirectCircuits
from topoopt.fabric.fabric import Fabric, GroupStreams
from topoopt.fabric.jitter import Jitter, jittered
from topoopt.fabric.loads import link_bytes
from topoopt.fabric.reconfigurable import run_circuits
from topoopt.fabric.rings import default_rings
from topoopt.fabric.simulation import MODELS, score, simulate
from topoopt.fabric.timeline import (
    Timeline,
    compute_on_critical_path,
    critical_path,
    exposed_communication,
)
from topoopt.fabric.transport import IDEAL, PACKETS, Transport
from topoopt.fabric.varying import VaryingRun
from topoopt.fabric.windowed import WindowedCircuits

__all__ = [
    "IDEAL",
    "MODELS",
    "PACKETS",
    "DirectCircuits",
    "Fabric",
    "GroupStreams",
    "Jitter",
    "Timeline",
    "Transport",
    "VaryingRun",
    "WindowedCircuits",
    "compute_on_critical_path",
    "critical_path",
    "default_rings",
    "exposed_communication",
    "jittered",
    "link_bytes",
    "run_circuits",
    "score",
    "simulate",
]
