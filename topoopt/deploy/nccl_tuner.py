"""The table that NCCL's example tuner plugin reads: rings, channels and protocols by size.

The format is that of NVIDIA/nccl, plugins/tuner/example: ``collective_type,min_bytes,max_bytes,
algorithm,protocol,channels,nNodes,nRanks``, of which the first row that fits counts. What no row
fits the plugin limits to one channel, so the last rows fit everything.
"""

from math import ceil

from topoopt.base.text import ended
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.msccl_files import (
    channels_by_servers,
    next_hosts,
    reducing_groups,
)
from topoopt.plan.rank_groups import servers_of
from topoopt.plan.ranks import Rank
from topoopt.topology.ring_links import ring_links

TUNED = ("allreduce", "reducescatter", "allgather")
_ANY = 2**64 - 1
_CHANNEL = 20e9
"""Bytes per second of a channel of a ring (perChMaxRingLL128Bws in src/graph/tuning.cc)."""
_SAVED = 14.0e-6 - 2.7e-6
"""Seconds that protocol ll saves a step over simple (hwLatencies of rings over a network there)."""
_IN_SERVER = 16
"""Channels of collectives inside a server."""


def nccl_tuner(made: Deployment, ranks: list[Rank]) -> str:
    """Return the table.

    Groups that reduce over rings of the plan take rings, with as many channels as fill the cables
    of those that NCCL has, too, or if it has none of them all. The protocol ``ll`` sends twice the
    bytes, and is taken for buffers so small that this takes less than what it saves.

    Parameters
    ----------
    made : Deployment
    ranks : list of Rank
    """
    rate = float((made.network.capacity / made.network.multiplicity).max(initial=0.0))
    each = max(1, ceil(rate / _CHANNEL))  # a server alone has no cables
    orders = channels_by_servers(made)
    sizes: dict[tuple[int, int], int] = {}
    for group in reducing_groups(made.plan, ranks).values():
        servers = servers_of(group)
        if len(servers) > 1 and servers in orders:
            key, steps = (len(servers), len(group)), next_hosts(group)
            own = sum(set(ring_links(order)) == steps for order in orders[servers])
            rings = own or len(orders[servers])
            sizes[key] = min(rings, sizes.get(key, rings))
    lines = ["# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks"]
    for (nodes, number), rings in sorted(sizes.items()):
        short = int(number * rings * rate * _SAVED)
        for kind in TUNED:
            where = f"{rings * each},{nodes},{number}"
            lines.append(f"{kind},0,{short},ring,ll,{where}")
            lines.append(f"{kind},{short + 1},{_ANY},ring,simple,{where}")
    for kind in TUNED:
        # Where NCCL has no NVLS the plugin goes on to the next row.
        lines.append(f"{kind},0,{_ANY},nvls,simple,{_IN_SERVER},1,-1")
        lines.append(f"{kind},0,{_ANY},ring,simple,{_IN_SERVER},1,-1")
    for kind in (*TUNED, "broadcast", "reduce"):
        lines.append(f"{kind},0,{_ANY},ring,simple,{made.degree * each},-1,-1")
    return ended(lines)
