"""The reconfigurable fabrics that plans are compared with, and how fast they reconfigure."""

from topoopt.fabric.circuits import DirectCircuits
from topoopt.fabric.reconfigurable import Reconfigurable
from topoopt.fabric.windowed import WindowedCircuits
from topoopt.problem.cluster import Cluster
from topoopt.problem.reconfiguration import Reconfiguration
from topoopt.problem.units import format_time


def reconfigurable_fabric(
    name: str, cluster: Cluster, reconfiguration: Reconfiguration
) -> tuple[Reconfigurable, str]:
    """Build a fabric of `RECONFIGURABLE` for a cluster.

    Parameters
    ----------
    name : {"sip-ml", "ocs-reconfig"}
    cluster : Cluster
    reconfiguration : Reconfiguration

    Returns
    -------
    DirectCircuits or WindowedCircuits
    note : str
        What it is, in a few words.

    Raises
    ------
    InfeasibleError
        If the degree cannot join the servers.
    """
    n, d, rate, latency = (
        cluster.servers, cluster.degree, cluster.port_rate, cluster.hop_latency,
    )  # fmt: skip
    delay = reconfiguration.delay_of(name)
    dark = f"ports that move are dark for {format_time(delay)}"
    if name == "sip-ml":
        note = f"one-way circuits set up on demand, no forwarding; {dark}; priced as OCS ports"
        return DirectCircuits(name, n, d, rate, latency, delay), note
    window = reconfiguration.window_s
    hops = "multi-hop" if reconfiguration.forwarding else "no forwarding"
    note = f"optical switches set by demand every {format_time(window)}, {hops}; {dark}"
    return (
        WindowedCircuits(
            name, n, d, rate, latency, delay, window, reconfiguration.forwarding, cluster.ports
        ),
        note,
    )
