"""What a JSON file is, and what commands say of the wrong kind."""

import json
from dataclasses import replace

import pytest
from small_plans import shared_document, shared_plan

from codesign_base import InputError
from topoopt.experiment.manifest import SCHEMA
from topoopt.plan.document import Document, kind_of
from topoopt.plan.rebuild import rebuild_network
from topoopt.studies.replay import replay_fabric
from topoopt.studies.workload import load_workload
from topoopt.topology.network_file import save_network

COMPARISON = {"model": "m", "fabrics": []}
MANIFEST = {"schema": SCHEMA, "experiment": "e"}
ROUTES = {"schema_version": 1, "network": "n", "hosts": 2, "pairs": []}


def test_files_are_told_apart(tmp_path):
    save_network(rebuild_network(shared_plan()), tmp_path / "net.json")
    network = json.loads((tmp_path / "net.json").read_text())
    assert kind_of(network) is Document.NETWORK
    assert kind_of({**network, "links": network.pop("edges")}) is Document.NETWORK
    assert kind_of(shared_document()) is Document.PLAN
    assert kind_of(COMPARISON) is Document.COMPARISON
    assert kind_of(MANIFEST) is Document.MANIFEST
    assert kind_of(ROUTES) is kind_of({**ROUTES, "nodes": ROUTES["pairs"]}) is Document.ROUTES
    for other in ({}, {"schema": "another/1"}, {"schema": 3}, [], "edges", None, 1.0):
        assert kind_of(other) is Document.OTHER


@pytest.mark.parametrize(
    ("document", "said"),
    [(COMPARISON, "a comparison"), (MANIFEST, "the manifest of an experiment")],
)
def test_the_wrong_file_is_called_what_it_is(tmp_path, document, said):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=f"is {said}, and holds no tasks; name a task graph or"):
        load_workload(path)
    (tmp_path / "plan.json").write_text(shared_plan().to_json())
    workload = load_workload(tmp_path / "plan.json")
    with pytest.raises(InputError, match=f"{said}; give a plan or a network file"):
        replay_fabric(workload, str(path))
    path.write_text(json.dumps(ROUTES))
    with pytest.raises(InputError, match=r"a file of routes .*, and how .* --routing"):
        replay_fabric(workload, str(path))


def test_words_inside_a_plan_do_not_make_it_a_network(tmp_path):
    plan = replace(shared_plan(), notes=['"edges"', "nodes"])
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    assert load_workload(path).kind == "plan"
    path.write_text('{"model": "\\"schema_version\\"", "nodes": [], "edges": []}')
    with pytest.raises(InputError, match="is a network, and holds no tasks"):
        load_workload(path)
