"""Route tables, and UDP source ports against the hash model computed packet by packet."""

import binascii
import csv
import json
import struct

import numpy as np
import pytest
from clos_oracle import permutation_traffic

from codesign_base import InfeasibleError, InputError
from routing.clos.assignment import Assignment
from routing.clos.fabric import Clos
from routing.clos.flows import ClosFlows
from routing.clos.routers import route
from routing.clos.tables import TABLE_COLUMNS, hash_packet, route_table, table_csv, udp_source_ports


def modelled_spine(clos, flows, f, port):
    packet = struct.pack(
        ">IIBHH", 0x0A000000 + flows.source_nic[f], 0x0A000000 + flows.target_nic[f], 17, port, 4791
    )
    live = np.flatnonzero(clos.live(int(flows.source_tor[f]), int(flows.target_tor[f])))
    return int(live[binascii.crc32(packet) % live.size])


@pytest.mark.parametrize("failed", [0, 3])
def test_ports_make_the_hash_pick_the_spine(failed):
    clos = Clos.uniform(16, 8).with_failed_spines(range(failed)).with_share(2, 5, 0.0, "up")
    flows = permutation_traffic(16, 8, 120, 3, failed)
    assignment = route(clos, flows, "best")
    ports = udp_source_ports(clos, flows, assignment)
    for f in range(flows.count):
        assert modelled_spine(clos, flows, f, int(ports[f])) == assignment.spine[f]
        assert 49152 <= ports[f] <= 65535
        for earlier in range(49152, int(ports[f])):  # the first that does
            assert modelled_spine(clos, flows, f, earlier) != assignment.spine[f]


def test_hash_of_a_packet():
    assert hash_packet(1, 2, 3) == binascii.crc32(struct.pack(">IIBHH", 1, 2, 17, 3, 4791))


def small():
    clos = Clos.uniform(3, 2, nics_per_tor=2)
    flows = ClosFlows.of([1, 0, 0, 2], [0, 1, 2, 2], [5, 5, 6, 6], 8.0, [3, 1, 0, 4], [0, 2, 5, 5])
    return clos, flows, Assignment(np.array([1, 0, 1, -1]))


def test_tables():
    clos, flows, assignment = small()
    routes = route_table(clos, flows, assignment, ports=True)
    assert [r["flow"] for r in routes] == [2, 1, 0, 3]
    assert [r["spine"] for r in routes] == [1, 0, 1, -1]
    assert routes[-1]["udp_source_port"] is None
    assert all(r["udp_source_port"] is not None for r in routes[:-1])
    rows = json.loads(json.dumps(routes))
    assert tuple(rows[0]) == TABLE_COLUMNS
    assert rows[1]["source_nic"] == 1
    text = list(csv.DictReader(table_csv(routes).splitlines()))
    assert [int(row["spine"]) for row in text] == [1, 0, 1, -1]
    assert text[-1]["udp_source_port"] == ""


def test_tables_without_nics():
    clos, flows, assignment = small()
    bare = ClosFlows.of(flows.source_tor, flows.target_tor, flows.job)
    routes = route_table(clos, bare, assignment)
    assert {r["source_nic"] for r in routes} == {-1}
    assert routes[0]["udp_source_port"] is None
    with pytest.raises(InputError, match="no NIC numbers"):
        route_table(clos, bare, assignment, ports=True)


def test_errors():
    clos, flows, assignment = small()
    with pytest.raises(InputError, match=r"flow 0 is assigned spine 1, whose links have failed"):
        udp_source_ports(clos.with_share(1, 1, 0.0, "up"), flows, assignment)
    with pytest.raises(InfeasibleError, match="without ports"):
        # Some of 20,000 spines are reached by none of 16,384 ports.
        wide = Clos.uniform(2, 20_000)
        count = np.arange(16)
        many = ClosFlows.of(np.zeros(16, int), np.ones(16, int), count, 1.0, count, count + 16)
        udp_source_ports(wide, many, Assignment(np.arange(16)))
