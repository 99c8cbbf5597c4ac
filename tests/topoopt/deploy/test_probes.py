"""Probes are heard wherever they come by, whatever takes them from there."""

import os
import subprocess
from contextlib import closing

import pytest
from small_plans import shared_plan

from topoopt.deploy import trial
from topoopt.deploy.deployment import deployment
from topoopt.deploy.namespaces import why_not
from topoopt.deploy.probes import FIRST_TTL, Prober, ProbeTrace

needs_root = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

MAC = "02:00:00:00:00:01"


def ip(words):
    subprocess.run(["ip", *words.split()], check=True)


@needs_root
def test_a_packet_is_heard_before_a_filter_redirects_it():
    # Host 1 leads what comes by in0 out of out0 as rdma.sh does; its neighbour has the same
    # MAC address, since not every kernel has pedit.
    spaces = {server: f"probes-{os.getpid()}-{server}" for server in range(3)}
    try:
        for space in spaces.values():
            ip(f"netns add {space}")
        ip(f"link add fab0 netns {spaces[0]} type veth peer name in0 netns {spaces[1]}")
        ip(f"link add out0 netns {spaces[1]} type veth peer name fab0 netns {spaces[2]}")
        for server, port in ((1, "in0"), (2, "fab0")):
            ip(f"-n {spaces[server]} link set {port} address {MAC}")
        for server, port in ((0, "fab0"), (1, "in0"), (1, "out0"), (2, "fab0")):
            ip(f"-n {spaces[server]} link set {port} up")
        ip(f"-n {spaces[0]} address add 10.0.0.1/24 dev fab0")
        ip(f"-n {spaces[2]} address add 10.0.0.2/24 dev fab0")
        ip(f"-n {spaces[0]} neigh replace 10.0.0.2 lladdr {MAC} dev fab0 nud permanent")
        for words in (
            "qdisc add dev in0 clsact",
            "filter add dev in0 ingress protocol ip pref 84 u32 match ip dst 10.0.0.2/32 "
            "action mirred egress redirect dev out0",
        ):
            subprocess.run(["tc", "-n", spaces[1], *words.split()], check=True)
        with closing(Prober(spaces, {0: "10.0.0.1", 2: "10.0.0.2"})) as prober:
            trace = prober.port(0, "fab0", "10.0.0.1", "10.0.0.2")
        assert trace.taken == 2
        assert sorted(trace.stops) == [(1, "in0", FIRST_TTL), (2, "fab0", FIRST_TTL)]
    finally:
        for space in spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False)


@pytest.mark.parametrize("seeded", [True, False])
def test_shares_of_a_second_division_count_where_hosts_divide_differently(seeded, monkeypatch):
    monkeypatch.setattr(trial, "has_seed", lambda: seeded)
    made = deployment(shared_plan())
    # Half of the packets go straight to server 2; of the rest, server 1 sends all the short way.
    planned = {(0, 2): 0.5, (0, 1): 0.5, (1, 2): 0.25, (1, 3): 0.25, (3, 2): 0.25}
    arrivals = {(a, b): {f"from{a}"} for a, b in planned}
    straight = ProbeTrace(((2, "from0", 64),), 2)
    other = ProbeTrace(((1, "from0", 64), (2, "from1", 63)), 2)
    found = trial._compare(made, 0, 2, [straight, other] * 32, planned, arrivals)
    assert (found is None) == (not seeded)
    assert trial._compare(made, 0, 2, [straight] * 64, planned, arrivals), "the first division"
    stray = ProbeTrace(((3, "from0", 64), (2, "from3", 63)), 2)
    arrivals[0, 3] = {"from0"}
    assert trial._compare(made, 0, 2, [straight, other] * 31 + [stray] * 2, planned, arrivals)
