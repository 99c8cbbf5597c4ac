"""`topoopt route`: numbers recomputed from its files, all methods, refusals."""

import json

import numpy as np
import pytest
from flow_oracle import edge_lp
from small_networks import circulant_network
from typer.testing import CliRunner

from codesign_base import InputError
from parallelism.taskgraph import Traffic
from routing.multicommodity import min_congestion
from routing.network import Network
from routing.routed import circulant_steps, route_traffic
from topoopt.cli.app import app
from topoopt.formats.traffic import save_traffic
from topoopt.studies.demand import demand_matrix
from topoopt.topology.network_file import save_network

METHODS = ("mcf", "lp", "ecmp", "k-shortest", "shortest", "valiant", "coin-change")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("route")
    network = circulant_network(8, (1, 3), 12.5e9)
    rng = np.random.default_rng(0)
    transfers = rng.random((8, 8)) * 1e8
    np.fill_diagonal(transfers, 0.0)
    transfers[2, 5] = 0.0
    traffic = Traffic(8, transfers, ((0, 1, 2, 3, 4, 5, 6, 7), (0, 4)), np.array([1e8, 1e7]))
    save_network(network, directory / "network.json")
    save_traffic(traffic, directory / "traffic.npz")
    return directory, network, traffic


def route(directory, *options):
    arguments = [str(directory / "network.json"), str(directory / "traffic.npz"), *options]
    return CliRunner().invoke(app, ["route", *arguments])


@pytest.mark.parametrize("method", METHODS)
def test_report_and_files_agree(files, tmp_path, method):
    directory, network, traffic = files
    out = tmp_path / "routes.json"
    done = route(directory, "--method", method, "--within", "10ms", "-o", str(out), "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    demand = demand_matrix(network, traffic)
    document = json.loads(out.read_text())
    assert len(document["pairs"]) == np.count_nonzero(demand)
    load = np.zeros(network.links)
    for pair in document["pairs"]:
        amount = demand[pair["source"], pair["target"]]
        for a, b, weight in pair["links"]:
            load[network.link(a, b)] += amount * weight
        for path in pair.get("paths", []):
            assert path["nodes"][0] == pair["source"] and path["nodes"][-1] == pair["target"]
    congestion = (load / network.capacity).max()
    assert report["congestion_s"] == pytest.approx(congestion)
    assert report["max_link_utilisation"] == pytest.approx(congestion / 0.01)
    assert report["bandwidth_tax"] == pytest.approx(load.sum() / demand.sum())
    best = edge_lp(network, demand)
    assert report["lower_bound_s"] <= best * (1 + 1e-7) <= congestion * (1 + 2e-7)
    assert report["certified_gap"] == pytest.approx(congestion / report["lower_bound_s"] - 1)
    assert report["any_wiring_lower_bound_s"] <= best
    assert report["throughput_lower_bound_per_s"] == pytest.approx(1 / congestion)
    if method in ("mcf", "lp"):
        assert report["certified_gap"] <= 0.01
    assert report["diameter"] == 3 and report["worst_path_hops"] >= 3
    plain = route(directory, "--method", method)
    assert plain.exit_code == 0 and "from the best routing" in plain.output


def test_tables_and_rules(files, tmp_path):
    directory, network, _ = files
    out = tmp_path / "tables.json"
    done = route(directory, "--tables", str(out), "--json")
    report = json.loads(done.stdout)
    document = json.loads(out.read_text())
    rules = [sum(len(rule["next"]) for rule in node["rules"]) for node in document["nodes"]]
    assert report["rules_by"] == "destination"
    assert report["rules_per_host"] == max(rules) and report["rules_total"] == sum(rules)
    for node in document["nodes"]:
        for rule in node["rules"]:
            assert sum(ratio for _, ratio in rule["next"]) == pytest.approx(1.0)
            assert all(network.has_link(node["node"], v) for v, _ in rule["next"])


def test_one_path_a_pair(files):
    directory, _, _ = files
    report = json.loads(route(directory, "--unsplittable", "--json").stdout)
    split = json.loads(route(directory, "--json").stdout)
    ratio = report["congestion_s"] / split["congestion_s"]
    assert report["rounding_loss"] == pytest.approx(ratio - 1)
    assert "one path a pair costs" in route(directory, "--unsplittable").output


def test_allreduce_is_added_as_ring_edges_or_left_out(files):
    directory, network, traffic = files
    with_rings = json.loads(route(directory, "--json").stdout)
    without = json.loads(route(directory, "--allreduce", "leave-out", "--json").stdout)
    assert without["demand_bytes"] == pytest.approx(traffic.transfer_sent())
    added = with_rings["demand_bytes"] - without["demand_bytes"]
    assert added == pytest.approx(traffic.allreduce_sent())
    rings = demand_matrix(network, traffic) - traffic.transfers
    sent = 2 * 7 / 8 * 1e8 + np.isin(np.arange(8), (0, 4)) * 2 / 2 * 1e7
    np.testing.assert_allclose(rings.sum(axis=1), sent)
    np.testing.assert_allclose(rings.sum(axis=0), sent)


def test_library_functions(files):
    _, network, traffic = files
    demand = demand_matrix(network, traffic)
    routed = route_traffic(network, demand, accuracy=0.001)
    best = min_congestion(network, demand, 0.001).congestion
    assert routed.congestion() == pytest.approx(best)
    assert circulant_steps(network) == [1, 3]


def test_steps_that_do_not_join_all_hosts_are_no_way_for_coin_change():
    hosts = np.arange(8)
    # Two rings of four, joined by a ring that goes on by one here and by three there.
    ends = np.tile(hosts, 2), np.concatenate(((hosts + 2) % 8, (hosts + 1 + 2 * (hosts % 2)) % 8))
    network = Network.from_links("two rings", 8, 0, *ends, 1e9, 1e-6)
    with pytest.raises(InputError, match=r"'two rings' has no rings .* choose another method"):
        route_traffic(network, 1e6 * (1 - np.eye(8)), "coin-change")


def test_a_switched_network_has_no_wiring_bound():
    hosts = np.arange(4)
    ends = np.concatenate((hosts, np.full(4, 4))), np.concatenate((np.full(4, 4), hosts))
    star = Network.from_links("star", 4, 1, *ends, 1e9, 1e-6)
    demand = (np.ones((4, 4)) - np.eye(4)) * 1e9
    for method in ("mcf", "lp", "ecmp", "valiant"):
        routed = route_traffic(star, demand, method)
        assert routed.wiring_bound is None and routed.congestion() == pytest.approx(3.0)
        assert routed.rules()[0] == "destination" and routed.worst_hops() == 2


def test_refusals(files, tmp_path):
    directory, network, _ = files

    def refused(*options):
        result = route(directory, *options)
        assert isinstance(result.exception, InputError), result.output
        return str(result.exception)

    assert "method is 'x'" in refused("--method", "x")
    assert "accuracy is 2.0" in refused("--accuracy", "2")
    assert "allreduce is 'x'" in refused("--allreduce", "x")
    assert "needs method mcf or lp" in refused("--method", "ecmp", "--unsplittable")
    assert "does not exist" in refused("-o", str(tmp_path / "none" / "x.json"))
    assert "cannot be told by destination" in refused(
        "--method", "valiant", "--tables", str(tmp_path / "t.json")
    )
    small = Traffic(3, np.zeros((3, 3)), (), np.zeros(0))
    with pytest.raises(InputError, match="traffic of 3 servers does not fit"):
        demand_matrix(network, small)
    line = Network.from_links("line", 3, 0, [0, 1, 1, 2], [1, 0, 2, 1], 1.0, 0.0)
    with pytest.raises(InputError, match="no ring"):
        route_traffic(line, np.zeros((3, 3)), "coin-change")
