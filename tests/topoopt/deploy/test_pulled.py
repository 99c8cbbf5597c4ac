"""A cable that was pulled: routes go around it, and nothing but routes changes."""

import functools
from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest
from sites import full_site, split_plan
from small_plans import shared_bidirectional_plan, shared_plan

from codesign_base import InfeasibleError, InputError
from topoopt.deploy.check import check_files
from topoopt.deploy.deployment import deployment
from topoopt.deploy.files import deploy_files
from topoopt.deploy.pulled import busiest_cable, cable_named, without_cables
from topoopt.deploy.pulled_check import check_repair, repair_of
from topoopt.deploy.tables import read_table
from topoopt.deploy.technician import label

PLANS = {
    "directed": shared_plan,
    "both ways": shared_bidirectional_plan,
    "split ports": split_plan,
}


@functools.cache
def made_and_files(name):
    plan = PLANS[name]()
    made = deployment(plan, full_site(plan.cluster.servers, plan.cluster.degree))
    return made, deploy_files(made)


def graph_of(cabling):
    graph = nx.DiGraph()
    graph.add_edges_from((end[0], other[0]) for end, other in cabling.leads_to.items())
    return graph


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_without_any_cable_that_can_be_spared_all_pairs_go_the_shortest_way(name):
    made, files = made_and_files(name)
    spared = 0
    for cable in made.cabling.cables:
        left = graph_of(made.cabling)
        for end, other in pairwise((cable.source, cable.target, cable.source)):
            both = made.cabling.leads_to.get(end) == other
            if both and len(made.cabling.ports_to[end[0], other[0]]) == 1:
                left.remove_edge(end[0], other[0])
        if not nx.is_strongly_connected(left):
            with pytest.raises(InfeasibleError, match="do not reach each other"):
                without_cables(made, [cable])
            continue
        spared += 1
        repair = without_cables(made, [cable])
        anew = deploy_files(repair)
        assert check_files(repair, anew).faults == ()
        assert check_files(repair, files).faults
        assert repair.port_addresses == made.port_addresses
        changed = {path.rpartition("/")[2] for path in files if files[path] != anew.get(path)}
        tables = {"cables.csv", "labels.csv", "netbox-cables.csv", "wiring.svg"}
        assert changed <= {"routes.sh", "rdma.sh", "NOTES.txt", "deployment.json"} | tables
        names = {row["cable"] for row in read_table(anew["cables.csv"], "", ["cable"])}
        before = {row["cable"] for row in read_table(files["cables.csv"], "", ["cable"])}
        assert before - names == {label(made, cable)}
        assert label(made, cable) in anew["NOTES.txt"]
        shortest = dict(nx.all_pairs_shortest_path_length(left))
        for source in made.servers:
            for target in made.servers:
                _, weights = repair.routes.row(source, target)
                assert weights.sum() == pytest.approx(shortest[source][target])
    assert spared


def test_a_check_without_root_pulls_the_busiest_cable():
    made, _ = made_and_files("both ways")
    repair = repair_of(made)
    checked = check_repair(made, repair)
    assert checked.faults == ()
    assert checked.pairs == 20
    cable = cable_named(made, repair.label)
    assert cable == repair.cable == busiest_cable(made)

    def crossing(cable):
        ends = {(cable.source[0], cable.target[0]), (cable.target[0], cable.source[0])}
        found = 0
        for pair in ((a, b) for a in made.servers for b in made.servers):
            links, _ = made.routes.row(*pair)
            ways = zip(made.network.source[links], made.network.target[links], strict=True)
            found += sum((int(u), int(v)) in ends for u, v in ways)
        return found

    assert crossing(cable) == max(map(crossing, made.cabling.cables))
    path = next(name for name in repair.files if name.endswith("netplan.yaml"))
    moved = {**repair.files, path: repair.files[path] + "# changed\n"}
    faults = check_repair(made, replace(repair, files=moved)).faults
    assert faults == (f"{path} is not as before",)


def test_a_label_that_is_none_is_refused():
    made, _ = made_and_files("both ways")
    with pytest.raises(InputError, match="labelled 'C99'; give one of C01, C02, ") as error:
        cable_named(made, "C99")
    assert str(error.value).endswith(f"C08, ..., C{len(made.cabling.cables)}")
    cable = made.cabling.cables[0]
    repair = without_cables(made, [cable])
    with pytest.raises(InputError, match="no cable is labelled 'C01'"):
        cable_named(repair, label(made, cable))
