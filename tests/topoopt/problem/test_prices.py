"""Prices and fabric costs against sums worked out by hand."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesign_base import InputError
from topoopt.problem.prices import (
    COMPONENTS,
    PriceTable,
    default_prices,
    direct_connect_cost,
    equal_cost_fat_tree_bandwidth,
    fat_tree_cost,
    load_prices,
)

G = 1e9 / 8  # bytes/s of one Gbps


def test_known_rates_cost_what_the_table_says() -> None:
    prices = default_prices()
    known = {
        "transceiver": (99, 239),
        "nic": (659, 1079),
        "switch-port": (187, 374),
        "ocs-port": (520, 520),
        "patch-panel-port": (100, 100),
    }
    assert set(known) == set(COMPONENTS)
    for component, (at_100, at_200) in known.items():
        assert prices.price(component, 100 * G) == at_100
        assert prices.price(component, 200 * G) == at_200
        assert prices.price(component, 150 * G) == pytest.approx((at_100 + at_200) / 2)
        assert prices.price(component, 25 * G) == pytest.approx(at_100 / 4)
        assert prices.price(component, 800 * G) == pytest.approx(4 * at_200)


def test_extrapolation_is_flagged() -> None:
    prices = default_prices()
    assert prices.note(100 * G) == prices.note(140 * G) == prices.note(200 * G) == ""
    assert "400 Gbps are extrapolated" in prices.note(400 * G)
    assert prices.note(1600 * G, 150 * G, 400 * G, 718.7 * G, 400 * G).startswith(
        "prices at 400, 718.7 and 1600 Gbps are extrapolated"
    )
    assert "known: 100 to 200 Gbps" in prices.note(40 * G)


@pytest.mark.parametrize("point", [(100 * G, 1e300), (1e-300 * G, 1.0)])
def test_prices_that_would_add_up_to_infinity_are_refused(point) -> None:
    usd = dict.fromkeys(COMPONENTS, ((100 * G, 1.0),))
    with pytest.raises(InputError, match=r"price table: nic costs .* give prices of at most 1e"):
        PriceTable("made up", usd | {"nic": (point,)})


def test_direct_connect_by_hand() -> None:
    prices = default_prices()
    # A port: NIC 659 + transceiver 99 + patch panel 100 = 858, or with an OCS port 1278.
    assert direct_connect_cost(128, 4, 100 * G, prices) == pytest.approx(128 * 4 * 858)
    assert direct_connect_cost(16, 8, 100 * G, prices, "ocs") == pytest.approx(16 * 8 * 1278)
    # One server has no network.
    assert direct_connect_cost(1, 4, 100 * G, prices) == 0.0


def test_fat_tree_by_hand() -> None:
    prices = default_prices()
    # A full fat-tree has three cables a host: six transceivers and five switch ports.
    a_host = 659 + 6 * 99 + 5 * 187
    for hosts in (16, 128, 432):
        assert fat_tree_cost(hosts, 100 * G, prices) == pytest.approx(hosts * a_host)
    # 2:1 above the racks halves the two upper tiers: four transceivers, three ports.
    a_host = 659 + 4 * 99 + 3 * 187
    assert fat_tree_cost(128, 100 * G, prices, 2) == pytest.approx(128 * a_host)
    # Two hosts share one rack switch: no tier above it.
    assert fat_tree_cost(2, 100 * G, prices) != pytest.approx(2 * (659 + 2 * 99 + 187))
    assert fat_tree_cost(1, 100 * G, prices) == pytest.approx(659 + 2 * 99 + 187)
    # Three hosts, k = 4: two racks of one pod, two uplinks each.
    expected = 3 * 659 + 2 * (3 + 4) * 99 + (3 + 8) * 187
    assert fat_tree_cost(3, 100 * G, prices) == pytest.approx(expected)


def test_equal_cost_bandwidth_by_hand() -> None:
    prices = default_prices()
    # 128 servers, four ports of 100 Gbps: 3432 USD a server. A fat-tree costs 2188 a host at
    # 100 Gbps and 1079 + 6 * 239 + 5 * 374 = 4383 at 200.
    target = direct_connect_cost(128, 4, 100 * G, prices)
    expected = 100 + 100 * (3432 - 2188) / (4383 - 2188)
    got = equal_cost_fat_tree_bandwidth(target, 128, prices)
    assert got / G == pytest.approx(expected)
    assert fat_tree_cost(128, got, prices) == pytest.approx(target)


@given(st.floats(1.0, 1e9), st.integers(1, 500), st.sampled_from([1, 2, 4]))
def test_equal_cost_is_the_inverse_of_cost(target: float, hosts: int, ratio: int) -> None:
    prices = default_prices()
    bandwidth = equal_cost_fat_tree_bandwidth(target, hosts, prices, ratio)
    assert fat_tree_cost(hosts, bandwidth, prices, ratio) == pytest.approx(target)


def test_prices_that_do_not_grow_take_the_largest_bandwidth() -> None:
    flat = dict.fromkeys(COMPONENTS, ((100 * G, 10.0), (200 * G, 10.0)))
    prices = PriceTable("flat", flat)
    cost = fat_tree_cost(16, 100 * G, prices)
    assert equal_cost_fat_tree_bandwidth(cost, 16, prices) == pytest.approx(200 * G)


def test_tables_survive_a_round_trip(tmp_path: Path) -> None:
    prices = default_prices()
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(prices.to_dict()))
    assert load_prices(path) == prices == PriceTable.from_dict(prices.to_dict())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"currency": "EUR"}, "currency"),
        ({"source": None}, "source"),
        ({"usd_per_port_by_gbps": {"nic": {"100": 1}}}, "ocs-port"),
        ({"usd_per_port_by_gbps": {"nic": {"fast": 1}}}, "rates fast"),
        ({"usd_per_port_by_gbps": {"nic": {"100": "cheap"}}}, "nic"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(default_prices().to_dict() | change))
    with pytest.raises(InputError, match=message):
        load_prices(path)


@pytest.mark.parametrize(
    "points", [{}, {"0": 1}, {"100": -1}, {"100": 5, "200": 4}, {"100": 1, "100.0": 1}]
)
def test_bad_prices_are_refused(points: dict[str, float]) -> None:
    data = default_prices().to_dict()
    data["usd_per_port_by_gbps"]["nic"] = points
    with pytest.raises(InputError, match="nic"):
        PriceTable.from_dict(data)


def test_bad_input_is_named(tmp_path: Path) -> None:
    prices = default_prices()
    with pytest.raises(InputError, match="component 'fibre'"):
        prices.price("fibre", G)
    with pytest.raises(InputError, match="bandwidth is 0"):
        prices.price("nic", 0.0)
    with pytest.raises(InputError, match="choose patch-panel or ocs"):
        direct_connect_cost(4, 2, G, prices, "glue")
    with pytest.raises(InputError, match="0 servers"):
        direct_connect_cost(0, 2, G, prices)
    with pytest.raises(InputError, match="target cost is 0"):
        equal_cost_fat_tree_bandwidth(0.0, 4, prices)
    with pytest.raises(InputError, match="oversubscription"):
        fat_tree_cost(4, G, prices, 0)
    with pytest.raises(InputError, match="price file"):
        load_prices(tmp_path / "absent.json")
    broken = tmp_path / "broken.json"
    broken.write_text("[1, 2")
    with pytest.raises(InputError, match="price file"):
        load_prices(broken)
    free = PriceTable("free", dict.fromkeys(COMPONENTS, ((G, 0.0),)))
    with pytest.raises(InputError, match="costs nothing"):
        equal_cost_fat_tree_bandwidth(1.0, 4, free)
