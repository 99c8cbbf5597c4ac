"""Plans for servers that are wired already."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_plans import assert_valid, planned, small_dlrm, small_mlp
from small_transformers import gpt

import topoopt as to
from codesign_base import InfeasibleError, InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from routing.network import Network
from topoopt.codesign.given_wiring import given_wiring
from topoopt.plan.plan import parse_plan
from topoopt.plan.rebuild import rebuild_network
from topoopt.plan.verify import verify_plan
from topoopt.topology.network_file import save_network
from topoopt.topology.zoo.registry import build_fabric

CLUSTER = to.Cluster(8, 3, "100Gbps")
RATE = 12.5e9


def cube(**changes):
    return replace(build_fabric("hypercube", 8, None, RATE, 1e-6).network, **changes)


def wires(network):
    links = (network.source, network.target, network.multiplicity)
    return sorted(zip(*(each.tolist() for each in links), strict=True))


def one_way(links, hosts=8):
    """Return a network of single cables."""
    source, target = np.array(sorted(links), dtype=np.int64).T
    ones = np.ones(source.size, dtype=np.int64)
    return Network(
        "n", hosts, 0, source, target, RATE * ones, np.full(source.size, 1e-6), ones
    )  # fmt: skip


@pytest.mark.parametrize("model", [small_dlrm(), small_mlp()], ids=["dlrm", "mlp"])
@pytest.mark.parametrize("confirm", ["none", "packet"])
def test_a_plan_has_the_wires_that_are_there(model, confirm):
    asked = {"steps": 40, "confirm": confirm, "baselines": ("expander",)}
    plan = planned(to.Job(model), CLUSTER, wiring=cube(), **asked)
    assert wires(rebuild_network(plan)) == wires(cube())
    assert plan.search.wiring == "given"
    assert_valid(plan)
    free = planned(to.Job(model), CLUSTER, **asked)
    assert free.search.wiring == "free"


def test_so_has_one_of_layouts():
    server = Server(get_accelerator("h100"), 2, 450e9)
    job = to.Job(gpt(8, 1024, 16, 5000), server=server, global_batch=64)
    plan = planned(job, CLUSTER, wiring=cube(), baselines=())
    assert wires(rebuild_network(plan)) == wires(cube())
    assert_valid(plan)


def test_the_wiring_of_a_plan_is_as_good_as_the_plan_by_its_file_and_by_its_network(tmp_path):
    job = to.Job(small_dlrm())
    plan = planned(job, CLUSTER, steps=40, baselines=())
    plan.save(tmp_path / "plan.json")
    save_network(rebuild_network(plan), tmp_path / "network.json")
    save_network(rebuild_network(plan), tmp_path / "network.graphml")
    for name in ("plan.json", "network.json", "network.graphml"):
        again = planned(job, CLUSTER, steps=40, baselines=(), wiring=tmp_path / name)
        assert wires(rebuild_network(again)) == wires(rebuild_network(plan))
        assert again.iteration_time_s <= plan.iteration_time_s * (1 + 1e-9)
        assert_valid(again)
    assert planned(
        job, CLUSTER, steps=40, baselines=(), wiring=tmp_path / "plan.json"
    ) == again or (again.rings != plan.rings)


def test_the_rings_of_a_plan_are_kept(tmp_path):
    plan = planned(to.Job(small_dlrm()), CLUSTER, steps=40, baselines=())
    plan.save(tmp_path / "plan.json")
    kept = given_wiring(tmp_path / "plan.json", CLUSTER)
    assert [ring.members for ring in kept.rings] == [tuple(ring.order) for ring in plan.rings]
    other = planned(to.Job(small_mlp()), CLUSTER, steps=20, wiring=tmp_path / "plan.json")
    assert other.rings == plan.rings


def test_the_same_question_gives_the_same_plan():
    asked = {"steps": 40, "confirm": "packet", "baselines": (), "wiring": cube()}
    one, other = (planned(to.Job(small_dlrm()), CLUSTER, **asked) for _ in range(2))
    assert one.to_json() == other.to_json()


def test_a_plan_that_says_otherwise_is_refused():
    plan = planned(to.Job(small_dlrm()), CLUSTER, steps=20, baselines=(), wiring=cube())
    document = json.loads(plan.to_json())
    document["search"]["wiring"] = "free"
    # Its starting strategies would have topologies of their own.
    found = verify_plan(parse_plan(json.dumps(document)))
    assert not found.ok
    document["search"]["wiring"] = "old"
    with pytest.raises(InputError, match="wiring"):
        parse_plan(json.dumps(document))


def test_a_checkpoint_of_one_wiring_is_not_that_of_another(tmp_path):
    job, kept = to.Job(small_dlrm()), tmp_path / "kept.json"
    asked = {"steps": 20, "baselines": (), "restarts": 2, "checkpoint": kept}
    first = planned(job, CLUSTER, wiring=cube(), **asked)
    assert planned(job, CLUSTER, wiring=cube(), **asked) == first
    with pytest.raises(InputError, match="question"):
        planned(job, CLUSTER, **asked)


RING = [(v, (v + 1) % 8) for v in range(8)]


@pytest.mark.parametrize(
    ("network", "cluster", "words"),
    [
        (cube(), to.Cluster(9, 3, "100Gbps"), "has 8 servers, but the cluster 9"),
        (cube(), to.Cluster(8, 2, "100Gbps"), "server 0 sends on 3 ports, but degree is 2"),
        (cube(), to.Cluster(8, 3, "40Gbps"), "link 0->1 has 100 Gbps on 1 cable, but bandwidth"),
        (cube(), to.Cluster(8, 3, "100Gbps", latency="2us"), "link 0->1 takes 1 us, but latency"),
        (
            one_way([*RING, (3, 0), (5, 0), (7, 1)]),
            to.Cluster(8, 2, "100Gbps"),
            "server 0 receives on 3 ports, but degree is 2",
        ),
        (
            one_way(RING),
            to.Cluster(8, 3, "100Gbps", ports="bidirectional"),
            "link 0->1 has no 1 cable back, but ports are bidirectional",
        ),
        (
            build_fabric("fat-tree", 8, None, RATE, 1e-6).network,
            CLUSTER,
            "a plan wires servers to each other",
        ),
    ],
)
def test_wires_of_other_ports_are_refused_in_a_sentence(network, cluster, words):
    with pytest.raises(InputError, match=words) as caught:
        to.co_optimize(to.Job(small_dlrm()), cluster, wiring=network)
    assert "\n" not in str(caught.value)


def test_servers_that_do_not_reach_each_other_have_no_plan():
    apart = one_way([(v, 4 * (v // 4) + (v + 1) % 4) for v in range(8)])
    with pytest.raises(InfeasibleError, match="cannot be reached"):
        to.co_optimize(to.Job(small_dlrm()), CLUSTER, wiring=apart)


def test_other_files_are_refused(tmp_path):
    job = to.Job(small_dlrm())
    with pytest.raises(InputError, match=r"none\.json"):
        to.co_optimize(job, CLUSTER, wiring=tmp_path / "none.json")
    other = tmp_path / "other.json"
    other.write_text('{"fabrics": []}')
    with pytest.raises(InputError, match="a comparison; give a network file or a plan"):
        to.co_optimize(job, CLUSTER, wiring=other)
    with pytest.raises(InputError, match="wiring is 3"):
        to.co_optimize(job, CLUSTER, wiring=3)
    none = np.zeros(0, dtype=np.int64)
    alone = Network("n", 1, 0, none, none, np.zeros(0), np.zeros(0), none)
    with pytest.raises(InputError, match="one server"):
        to.co_optimize(job, to.Cluster(1, 1, "1Gbps"), wiring=alone)
    with pytest.raises(InputError, match="wired already"):
        to.co_optimize(job, CLUSTER, to.SearchOptions(faithful="paper"), wiring=cube())
