"""Parameters in the names of fabrics to compare with: what they change, and which are refused."""

import json
from contextlib import suppress

import pytest
from small_plans import planned
from small_transformers import gpt
from tampering import changes, nodes, replaced

import topoopt as to
from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.choices import Choices
from topoopt.baselines.baselines import baseline_fabric, baseline_fabrics
from topoopt.evaluate.least_times import busiest
from topoopt.fabric import Fabric
from topoopt.fabric.gpu_ports import GpuPorts
from topoopt.plan.plan import parse_plan
from topoopt.plan.rebuild import rebuild
from topoopt.plan.verify import verify_plan
from topoopt.problem.prices import default_prices, direct_connect_cost
from topoopt.topology.fabrics import ideal_switch

PRICES = default_prices()
CLUSTER = to.Cluster(16, 8, "200Gbps")
COST = direct_connect_cost(16, 8, 25e9, PRICES)


def built(name, cluster=CLUSTER):
    return baseline_fabric(name, cluster, PRICES, 0)


@pytest.mark.parametrize(
    "name",
    ["rail-only", "rail:ports=gpus", "rail:group=8:oversubscription=2", "leaf-spine:group=8",
     "leaf-spine:oversubscription=3", "twisted-torus", "twisted-torus:2x4x2:layer=ocs", "ub-mesh",
     "hamming-mesh", "hamming-mesh:1x2x2x4", "torus:4x4:layer=none", "torus2d:layer=ocs"],
)  # fmt: skip
def test_they_cost_what_the_direct_connect_fabric_costs(name):
    base = built(name)
    assert base.cost == pytest.approx(COST, rel=1e-9)
    assert base.fabric.name == name
    assert base.fabric.network.hosts == 16


def test_rates_of_equal_cost_by_hand():
    """At 200 Gbps and above prices are proportional to the rate."""
    nic, transceiver, switch, panel, ocs = 1079, 239, 374, 100, 520
    direct = nic + transceiver + panel
    # One cable a port, and none between rails.
    port = nic + 2 * transceiver + switch
    # Slower than 200 Gbps: linear in between 100 and 200.
    slow = 659 + 2 * 99 + 187
    share = (direct - slow) / (port - slow)
    assert built("rail-only").bandwidth == pytest.approx((1 + share) * 12.5e9)
    # Four cables a server, of which none goes to a panel; two through one; two through a switch.
    for name, ports, each in (
        ("torus:4x4:layer=none", 4, nic + transceiver),
        ("torus:4x4", 4, nic + transceiver + panel),
        ("torus:4x4:layer=ocs", 4, nic + transceiver + ocs),
        ("ub-mesh", 6, nic + transceiver),
        ("twisted-torus", 6, nic + transceiver + panel),
    ):
        assert built(name).bandwidth == pytest.approx(25e9 * 8 * direct / (ports * each))
    # On a 2 x 2 board two cables of each server end on it, two in switches.
    half = nic + transceiver + (transceiver + switch) / 2
    assert built("hamming-mesh").bandwidth == pytest.approx(25e9 * 8 * direct / (4 * half))


def test_a_ratio_thins_the_uplinks():
    for ratio in (1.0, 3.0):
        network = built(f"leaf-spine:oversubscription={ratio:g}:group=4").real().network
        up = (network.source >= 16) & (network.source < 20) & (network.target >= 20)
        down = network.source < 16
        assert network.capacity[down].sum() == pytest.approx(ratio * network.capacity[up].sum())
    even = built("leaf-spine:oversubscription=2")
    assert even.bandwidth == built("oversubscribed-leaf-spine").bandwidth


def test_the_owner_of_ports_costs_nothing():
    pooled, own = built("rail"), built("rail:ports=gpus")
    assert isinstance(pooled.fabric, Fabric) and isinstance(own.fabric, GpuPorts)
    assert (pooled.cost, pooled.bandwidth) == (own.cost, own.bandwidth)
    assert "ports belong to GPUs" in own.note and own.real is None
    assert built("rail:ports=servers").note == pooled.note


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rail:ports=nics", "choose gpus, servers"),
        (
            "rail:4",
            "'4' does not apply to rail; it takes, each once: group, oversubscription, ports",
        ),
        ("rail:group", "group has no value; write group=8"),
        ("rail-only:group=0", "give at least 1 server"),
        ("rail-only:group=2.5", "give at least 1 server"),
        ("leaf-spine:oversubscription=0.5", "such as 3 for 3:1"),
        ("leaf-spine:oversubscription=nan", "such as 3 for 3:1"),
        ("leaf-spine:oversubscription=3:1", "'1' does not apply"),
        ("leaf-spine:ports=gpus", "'ports' does not apply"),
        ("leaf-spine:group=4:group=8", "is given twice"),
        ("torus:4x4:layer=air", "choose patch-panel, ocs, none"),
        ("torus:layer=ocs", "needs its dimensions"),
        ("hypercube:layer=ocs", "it takes nothing"),
        ("twisted-torus:4x4", "give sizes of k and 2 k"),
        ("twisted-torus:4x8", "has 32 servers, not 16"),
        ("hamming-mesh:4x2x2", "rows and columns of a board"),
        ("fat-tree:oversubscription=2", "fabric is"),
        ("torus:", "joined by x"),
    ],
)
def test_wrong_parameters_are_refused_in_a_sentence(name, message):
    with pytest.raises(InputError, match=message) as caught:
        baseline_fabrics([name], CLUSTER, PRICES, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "servers", "degree", "message"),
    [
        ("twisted-torus", 18, 3, "no twisted torus; give"),
        ("twisted-torus", 12, 8, "no twisted torus; give"),
        ("hamming-mesh", 12, 8, "give a multiple of 4"),
        ("hamming-mesh", 18, 8, "give a multiple of 4"),
        ("hamming-mesh", 16, 3, "degree is 3; give at least 4"),
        ("ub-mesh", 13, 8, "no full meshes"),
        ("ub-mesh", 16, 3, "no full meshes"),
    ],
)
def test_servers_and_ports_that_do_not_suit(name, servers, degree, message):
    with pytest.raises(InputError, match=message):
        built(name, to.Cluster(servers, degree, "100Gbps"))


@pytest.mark.parametrize(
    ("servers", "degree", "name", "said"),
    [
        (8, 4, "twisted-torus", "4 ports"), (16, 6, "twisted-torus", "6 ports"),
        (32, 8, "twisted-torus", "6 ports"), (32, 4, "twisted-torus", "4 ports"),
        (16, 4, "ub-mesh", "4 ports"), (16, 6, "ub-mesh", "6 ports"), (8, 3, "ub-mesh", "3 ports"),
    ],
)  # fmt: skip
def test_sizes_use_what_ports_there_are(servers, degree, name, said):
    assert f" {said} a server" in built(name, to.Cluster(servers, degree, "100Gbps")).note


NAMES = ("rail-only:ports=gpus", "rail:group=2:ports=gpus", "ub-mesh", "hamming-mesh:1x1x2x2")


@pytest.fixture(scope="module")
def plan():
    job = to.Job(
        gpt(4, 256, 4, 512), global_batch=16, server=Server(get_accelerator("h100"), 2, 150e9),
        choices=Choices(
            pipeline=(1, 2), tensor=(1,), microbatch=(1,), recompute=("none",), zero=(1,)
        ),
    )  # fmt: skip
    return planned(job, to.Cluster(4, 4, "100Gbps"), simulated=4, baselines=NAMES)


def test_a_plan_holds_them_and_no_change_of_theirs_goes_unnoticed(plan):
    assert tuple(plan.baselines) == NAMES
    document = json.loads(plan.to_json())
    assert verify_plan(parse_plan(json.dumps(document))).ok
    refused = 0
    for name in NAMES[:2]:
        record = document["baselines"][name]
        for path, value in nodes(record):
            if path[:1] in (("parallelization",), ("note",)) or isinstance(value, dict):
                continue  # those of all fabrics: tests of tampering
            for _, new in list(changes(value))[:2]:
                changed = replaced(document, ("baselines", name, *path), new)
                with suppress(InputError):
                    assert not verify_plan(parse_plan(json.dumps(changed))).ok, (name, path, new)
                refused += 1
    assert refused >= 10
    for name, other in ((NAMES[0], "rail-only"), (NAMES[1], "rail:group=4:ports=gpus")):
        moved = {
            other if key == name else key: value for key, value in document["baselines"].items()
        }
        changed = {**document, "baselines": moved}
        assert not verify_plan(parse_plan(json.dumps(changed))).ok


def test_no_fabric_is_faster_than_a_switch_of_its_ports(plan):
    family = rebuild(plan).family
    for name in NAMES:
        record = plan.baselines[name]
        network = built(name, to.Cluster(4, 4, "100Gbps")).fabric.network
        leaving = network.capacity[network.source == 0].sum()
        switch, routes = ideal_switch(4, leaving, 0.0)
        tasks = family.build(family.read(record.parallelization))
        assert record.iteration_time_s >= busiest(Fabric("ideal", switch, routes), tasks)


@pytest.mark.parametrize("name", ["hamming-mesh", "switch-ring", "product:SW(4)_RI(4)"])
@pytest.mark.parametrize("group", [tuple(range(16)), tuple(range(0, 16, 2)), (0, 1, 4, 5)])
def test_rings_of_servers_that_forward_beside_switches(name, group):
    base = built(name)
    fabric = base.fabric
    one = Fabric(name, fabric.network, fabric.routes).group_streams(group)
    several = fabric.group_streams(group)
    # No slower than one ring in the order of numbers, no faster than all ports of a server.
    leaving = fabric.network.capacity[fabric.network.source == 0].sum()
    assert one.rate * (1 - 1e-9) <= several.rate * several.rings <= leaving * (1 + 1e-9)
    if (name, len(group)) == ("hamming-mesh", 16):
        assert several.rate * several.rings > 1.9 * one.rate
    whole = base.real().group_streams(group)
    assert whole.rate * whole.rings == pytest.approx(several.rate * several.rings)
