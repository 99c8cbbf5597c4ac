"""Throughput bounds, spectra, the bound on any wiring, and `topoopt topology`."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from codesign_base import InputError
from parallelism.taskgraph import Traffic
from routing import routes as routes_module
from routing.congestion_lp import min_congestion_lp
from routing.network import Network
from routing.paths import ecmp_routes
from routing.throughput_bounds import host_seconds, network_bound
from topoopt.cli.app import app
from topoopt.fabric.fabric import Fabric
from topoopt.formats.traffic import save_traffic
from topoopt.problem.ports import PortModel
from topoopt.problem.prices import default_prices
from topoopt.studies.demand import total_demand
from topoopt.studies.topology_report import report_text, topology_report
from topoopt.topology.finder import find_topology
from topoopt.topology.network_file import load_network
from topoopt.topology.spectrum import spectral_gap
from topoopt.topology.throughput import best_wiring_seconds, routed_rate
from topoopt.topology.zoo.registry import build_fabric

B = 12.5e9
NAMES = ("expander", "de-bruijn", "kautz", "leaf-spine", "rail", "fat-tree", "dragonfly")


def best_rate(network: Network, demand: np.ndarray) -> float:
    """The maximum concurrent flow, by an LP over flows from each source."""
    from scipy.optimize import linprog

    n, links = network.hosts, network.links
    columns = n * links + 1
    rows, right = [], []
    for s in range(n):
        for v in range(network.nodes):
            if v == s:
                continue
            row = np.zeros(columns)
            row[s * links + np.flatnonzero(network.target == v)] += 1
            row[s * links + np.flatnonzero(network.source == v)] -= 1
            if v < n:
                row[-1] = -demand[s, v]
            rows.append(row)
            right.append(0.0)
    limit = np.zeros((links, columns))
    for s in range(n):
        limit[np.arange(links), s * links + np.arange(links)] = 1
    objective = np.zeros(columns)
    objective[-1] = -1
    unit = network.capacity.max()
    done = linprog(objective, limit, network.capacity / unit, np.array(rows), right)
    assert done.status == 0
    return float(-done.fun * unit)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 8), st.sampled_from(NAMES))
def test_bounds_hold_the_best_rate_between_them(seed: int, servers: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    network = build_fabric(name, servers, 2, B, seed=seed % 100).network
    demand = rng.random((servers, servers)) * (rng.random((servers, servers)) < 0.6)
    np.fill_diagonal(demand, 0.0)
    demand[0, 1] = 1.0
    optimum = best_rate(network, demand)
    bound = network_bound(network, demand)
    carried = routed_rate(network, ecmp_routes(network).link_bytes(network, demand))
    assert carried <= optimum * (1 + 1e-6)
    assert optimum <= bound.throughput * (1 + 1e-6)
    assert bound.throughput <= 1 / host_seconds(network, demand) * (1 + 1e-11)


@pytest.mark.parametrize("n", [5, 8, 40])
def test_spectral_gap_of_known_graphs(n: int) -> None:
    assert spectral_gap(build_fabric("full-mesh", n, None, B).network) == pytest.approx(n / (n - 1))
    ring = build_fabric("torus", None, None, B, dims=str(n)).network
    assert spectral_gap(ring) == pytest.approx(1 - np.cos(2 * np.pi / n))


def test_spectral_gap_of_a_large_network_is_that_of_the_dense_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = build_fabric("expander", 150, 4, B, ports="bidirectional", seed=3).network
    dense = spectral_gap(network)
    monkeypatch.setattr("topoopt.topology.spectrum._DENSE", 10)
    assert spectral_gap(network) == pytest.approx(dense)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 16), st.integers(1, 5), st.sampled_from(PortModel))
def test_no_wiring_beats_the_bound(seed: int, n: int, degree: int, ports: PortModel) -> None:
    rng = np.random.default_rng(seed)
    demand = rng.random((n, n)) * (rng.random((n, n)) < 0.5)
    np.fill_diagonal(demand, 0.0)
    groups = (tuple(range(n)), tuple(range(0, n, 2)))
    traffic = Traffic(n, demand, groups, rng.random(2))
    both_ways = ports is PortModel.BIDIRECTIONAL
    degree = max(degree, 2) if both_ways else degree
    bound = best_wiring_seconds(traffic, degree, B, both_ways)
    assert bound > 0
    topology = find_topology(traffic, degree, B, ports=ports, selection="traffic", placement=True)
    built = build_fabric(
        "totient", n, degree, B, ports=ports, traffic=traffic, selection="traffic", placement=True
    )
    routes = ecmp_routes(topology.network)
    sent = total_demand(Fabric("any", topology.network, routes), traffic)
    assert bound <= 1 / routed_rate(topology.network, routes.link_bytes(topology.network, sent)) * (
        1 + 1e-9
    )
    report = topology_report(built, B, default_prices(), traffic)
    measures = report.measures
    assert measures.wiring_gap is not None
    assert measures.wiring_gap >= -1e-9


def test_best_wiring_of_known_traffic() -> None:
    none = Traffic(4, np.zeros((4, 4)), (), np.zeros(0))
    assert best_wiring_seconds(none, 2, B) == 0.0
    # All-to-all over a Kautz network of degree 2: two at one hop, the other three at two.
    uniform = Traffic(6, np.ones((6, 6)) - np.eye(6), (), np.zeros(0))
    assert best_wiring_seconds(uniform, 2, 1.0) == pytest.approx((2 + 3 * 2) / 2)
    ring = Traffic(4, np.zeros((4, 4)), ((0, 1, 2, 3),), np.array([1.0]))
    assert best_wiring_seconds(ring, 2, 1.0) == pytest.approx(2 * 3 / 4 / 2)
    with pytest.raises(InputError, match="positive"):
        best_wiring_seconds(ring, 0, 1.0)


def test_reports() -> None:
    mesh = build_fabric("full-mesh", 6, None, B)
    measures = topology_report(mesh, B, default_prices()).measures
    assert (measures.diameter, measures.mean_distance, measures.bandwidth_tax) == (1, 1.0, 1.0)
    assert measures.throughput_lower == pytest.approx(1.0)
    assert measures.certified_gap == pytest.approx(0.0, abs=1e-9)
    assert measures.mean_distance_excess == 0.0
    assert measures.best_wiring_s is None
    for name in ("leaf-spine", "ideal-switch"):
        report = topology_report(build_fabric(name, 9, 2, B), B, default_prices())
        switched = report.measures
        assert switched.moore_diameter is None
        assert switched.throughput_lower <= switched.throughput_upper <= 1.0 + 1e-11
        assert "throughput" in report_text(report)
    with pytest.raises(InputError, match="has 6"):
        topology_report(mesh, B, default_prices(), Traffic(5, np.zeros((5, 5)), (), np.zeros(0)))
    for name in ("ideal-switch", "fat-tree"):
        with pytest.raises(InputError, match="a network of 1 server; give at least 2"):
            topology_report(build_fabric(name, 1, 1, B), B, default_prices())
    with pytest.raises(InputError, match="no bytes"):
        topology_report(mesh, B, default_prices(), Traffic(6, np.zeros((6, 6)), (), np.zeros(0)))


def test_command(tmp_path) -> None:
    run = CliRunner()
    listed = run.invoke(app, ["topology", "list"])
    assert listed.exit_code == 0
    assert "de-bruijn" in listed.output
    assert "totient" in json.loads(run.invoke(app, ["topology", "list", "--json"]).output)
    demand = np.roll(np.eye(12), 5, axis=1) * 1e9
    traffic = Traffic(12, demand, (tuple(range(12)),), np.array([1e9]))
    save_traffic(traffic, tmp_path / "traffic.npz")
    given_ = ["--traffic", str(tmp_path / "traffic.npz"), "--selection", "traffic", "--placement"]
    written = tmp_path / "network.json"
    done = run.invoke(
        app, ["topology", "totient", "--degree", "3", *given_, "-o", str(written), "--json"]
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    for key in ("diameter", "mean_distance", "max_link_utilisation", "certified_gap", "cost_usd"):
        assert report[key] >= 0
    assert report["transfer_path_hops"] == 1.0
    assert load_network(written).hosts == 12
    text = run.invoke(app, ["topology", "torus", "--dims", "3x4", "-o", str(written)])
    assert text.exit_code == 0
    assert "Moore bound" in text.output
    assert "written to" in text.output
    with pytest.raises(InputError, match="give --degree"):
        run.invoke(app, ["topology", "kautz", "--servers", "5"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("name", "options"),
    [("cayley", {"servers": 16, "degree": 3}), ("expander", {"servers": 11, "degree": 4}),
     ("torus", {"dims": "3x4"}), ("leaf-spine", {"servers": 12})],
)  # fmt: skip
def test_gaps_are_proven(name: str, options: dict[str, object]) -> None:
    """The LP's optimum lies between what was found and what was proven."""
    built = build_fabric(name, options.get("servers"), options.get("degree"), B,
                         dims=options.get("dims"))  # fmt: skip
    n = built.network.hosts
    demand = np.random.default_rng(1).random((n, n))
    np.fill_diagonal(demand, 0.0)
    traffic = Traffic(n, demand, (), np.zeros(0))
    report = topology_report(built, B, default_prices(), traffic)
    measures = report.measures
    full = 1 / host_seconds(built.network, demand)
    best = 1.0 / min_congestion_lp(built.network, demand).congestion / full
    assert measures.throughput_lower <= measures.throughput_best * (1 + 1e-9)
    assert measures.throughput_best <= best * (1 + 1e-6)
    assert best <= measures.throughput_upper * (1 + 1e-6)
    # The multicommodity flow is within 1 %.
    assert measures.throughput_upper <= 1.011 * measures.throughput_best
    assert measures.certified_gap >= best / measures.throughput_lower - 1.0 - 1e-6
    if measures.wiring_gap is not None:
        least = best_wiring_seconds(traffic, built.degree, B, built.bidirectional)
        assert measures.best_wiring_s == least
        assert measures.wiring_gap == pytest.approx(
            1.0 / (measures.throughput_best * full) / least - 1.0
        )
        assert "at most, from the best wiring" in report_text(report)
    assert "routing gap" in report_text(report)
    assert (measures.wiring_gap is None) == bool(built.network.switches)


def test_large_demand_is_bounded_without_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    built = build_fabric("expander", 11, 4, B)
    full = topology_report(built, B, default_prices()).measures
    monkeypatch.setattr("topoopt.topology.measures._MOST_PAIRS", 10)
    quick = topology_report(built, B, default_prices()).measures
    assert quick.throughput_best == quick.throughput_lower == full.throughput_lower
    assert quick.throughput_upper >= full.throughput_upper
    assert quick.throughput_limit != "dual"


def test_figures_of_many_servers_need_no_table_of_routes(monkeypatch) -> None:
    built = build_fabric("totient", 12, 3, B)
    few = topology_report(built, B, default_prices()).to_dict()
    monkeypatch.setattr(routes_module, "EVERY_PAIR_UP_TO", 3)
    many = topology_report(built, B, default_prices()).to_dict()
    for name, value in few.items():
        if isinstance(value, float):
            assert many[name] == pytest.approx(value, rel=1e-12), name
        else:
            assert many[name] == value, name
