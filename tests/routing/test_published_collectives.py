"""Best rates on the servers of a paper, against those that its authors' program prints.

Topologies and rates are of Zhao et al., "ForestColl", 2024, and its public program, as of its
commit 3c13aee: bytes of an AllGather's result per second, over servers of 8 A100 and 16 MI250.
"""

import pytest

from routing.collectives.forest import gather_forest
from routing.collectives.rate import gather_rate
from routing.network import Network

GIGA = 1e9
# Cables of 50 GB/s between GPUs of an MI250 server.
XGMI = {
    (0, 1): 4, (0, 4): 2, (0, 8): 1, (1, 5): 1, (1, 9): 1, (1, 10): 1, (2, 3): 4, (2, 6): 1,
    (2, 9): 1, (2, 10): 1, (3, 7): 2, (3, 11): 1, (4, 5): 4, (4, 6): 1, (5, 6): 1, (5, 7): 1,
    (6, 7): 4, (8, 9): 4, (8, 12): 2, (9, 13): 1, (10, 11): 4, (10, 14): 1, (11, 15): 2,
    (12, 13): 4, (12, 14): 1, (13, 14): 1, (13, 15): 1, (14, 15): 4,
}  # fmt: skip


def joined(hosts, switches, cables):
    """Cables of both directions, their speed in GB/s."""
    ends = [(a, b, speed) for a, b, speed in cables] + [(b, a, speed) for a, b, speed in cables]
    source, target, speed = zip(*ends, strict=True)
    return Network.from_links(
        "published", hosts, switches, source, target, [s * GIGA for s in speed], 1e-6
    )


def a100(servers):
    """NVSwitch at 300 GB/s a GPU; a card of 25 GB/s each, odd and even ones on a switch each."""
    hosts = 8 * servers
    fabric = hosts + servers
    cables = [(gpu, hosts + gpu // 8, 300) for gpu in range(hosts)]
    if servers == 1:
        return joined(hosts, 1, cables)
    cables += [(gpu, fabric + gpu % 2, 25) for gpu in range(hosts)]
    return joined(hosts, servers + 2, cables)


def mi250(servers):
    hosts = 16 * servers
    cables = [
        (16 * server + a, 16 * server + b, 50 * count)
        for server in range(servers)
        for (a, b), count in XGMI.items()
    ]
    if servers == 1:
        return joined(hosts, 0, cables)
    return joined(hosts, 1, cables + [(gpu, hosts, 16) for gpu in range(hosts)])


def gathered(forest):
    return forest.bytes_per_s * len(forest.members) / GIGA


@pytest.mark.parametrize(
    ("network", "members", "rate"),
    [
        (a100(1), range(8), 342.8571),
        (a100(2), range(16), 346.6667),
        (a100(4), range(32), 266.6667),
        (a100(8), range(64), 228.5714),
        (mi250(1), range(16), 342.8571),
        (mi250(2), range(32), 354.1333),
        (mi250(4), range(64), 341.3333),
        # Eight GPUs of each server; the others forward.
        (mi250(2), [*range(8), *range(16, 24)], 379.4286),
    ],
)
def test_rates_are_the_published_ones(network, members, rate) -> None:
    assert gathered(gather_rate(network, list(members))) == pytest.approx(rate, abs=1e-4)
    if len(members) <= 16:
        assert gathered(gather_forest(network, list(members))) == pytest.approx(rate, abs=1e-4)
