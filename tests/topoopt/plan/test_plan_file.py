"""The plan file: whole or refused, and refused in one sentence."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import shared_bidirectional_plan, shared_document, shared_plan, small_mlp, solve

import topoopt as to
from topoopt.plan.plan import SCHEMA_VERSION, parse_plan

RELIED_ON = {
    "iteration_time_s", "lower_bound_s", "parallelization_lower_bound_s", "gap", "compute_time_s",
    "exposed_communication_s", "baselines", "seed", "version", "parallelization", "links", "rings",
    "routes",
}  # fmt: skip


def refusal(text):
    with pytest.raises(to.InputError) as caught:
        parse_plan(text, "plan file 'p.json'")
    message = str(caught.value)
    assert message.startswith("plan file 'p.json'") and "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize("plan", [shared_plan, shared_bidirectional_plan])
def test_a_plan_survives_the_round_trip(plan, tmp_path):
    path = tmp_path / "plan.json"
    plan().save(path)
    again = to.load_plan(path)
    assert again == plan()
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert again.summary() == plan().summary()
    assert again.summary(details=True) == plan().summary(details=True)


@pytest.mark.parametrize("plan", [shared_plan, shared_bidirectional_plan])
def test_a_plan_as_plain_data_is_what_its_fields_hold(plan):
    assert json.dumps(plan().to_dict()) == json.dumps(asdict(plan()))
    assert plan().to_dict()["links"] is not plan().to_dict()["links"]


def test_a_plan_of_one_server_survives_the_round_trip(tmp_path):
    plan = solve(small_mlp(), 1)
    plan.save(tmp_path / "plan.json")
    assert to.load_plan(tmp_path / "plan.json") == plan


def test_the_document_has_the_keys_that_others_rely_on():
    document = shared_document()
    assert set(document) >= RELIED_ON
    assert all({"iteration_time_s", "cost_usd"} <= set(b) for b in document["baselines"].values())
    assert document["version"] == to.__version__
    assert document["schema_version"] == SCHEMA_VERSION


def test_every_quantity_names_its_unit():
    units = ("_s", "_bytes", "_bytes_per_s", "_usd", "_flops", "_bytes_per_flop")
    # Counts, shares and identifiers have no unit.
    plain = {
        "bandwidth_tax", "gap", "seconds", "weight_values", "weights", "efficiency",
        "memory_efficiency",
    }  # fmt: skip

    def walk(node, key):
        if isinstance(node, dict):
            for name, part in node.items():
                walk(part, key if key.endswith(units) or key == "weights" else name)
        elif isinstance(node, list):
            for part in node:
                walk(part, key)
        elif isinstance(node, float):
            assert key.endswith(units) or key in plain, key

    document = shared_document()
    del document["prices"], document["job"]["server"]  # the users' own, in documented units
    walk(document, "")


def test_a_file_cut_anywhere_is_refused():
    text = shared_plan().to_json()
    cuts = {0, 1, 2, len(text) // 2, len(text) - 1, *range(3, len(text), len(text) // 60)}
    for cut in sorted(cuts):
        refusal(text[:cut])


@given(st.binary(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_refused_in_one_sentence(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "noise.json"
    path.write_bytes(data)
    with pytest.raises(to.InputError) as caught:
        to.load_plan(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["null", "[]", "3", '"plan"', "{}", "true", "[" * 100_000])
def test_json_that_is_no_plan_is_refused(text):
    refusal(text)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 6, "5", None, True, 1.5])
def test_another_schema_version_is_refused(version):
    document = shared_document()
    document["schema_version"] = version
    assert "schema_version" in refusal(json.dumps(document))


@pytest.mark.parametrize("where", [(), ("cluster",), ("search",), ("links", 0), ("routes",),
                                   ("job", "model", "operators", 2), ("bound",),
                                   ("parallelization", "operators", 1),
                                   ("baselines", "fat-tree")])  # fmt: skip
def test_unknown_and_missing_fields_are_refused(where):
    document = shared_document()
    record = document
    for step in where:
        record = record[step]
    record["colour"] = 3
    assert "unknown field" in refusal(json.dumps(document))
    assert "colour" in refusal(json.dumps(document))
    del record["colour"]
    first = next(key for key in record if key not in ("schema_version", "kind"))
    del record[first]
    message = refusal(json.dumps(document))
    assert first in message and "missing" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("iteration_time_s", "0.01"), ("iteration_time_s", None), ("iteration_time_s", -1.0),
        ("iteration_time_s", True), ("seed", 1.5), ("seed", "0"), ("seed", -1), ("links", {}),
        ("links", None), ("parallelization", [3]), ("baselines", []), ("notes", "note"),
        ("routing", 5),
        ("routes", []), ("degree_allreduce", -1), ("degree_allreduce", 2.0),
        ("global_batch", 0), ("global_batch", 2**64), ("version", 1), ("job", []),
        ("prices", None),
    ],
)  # fmt: skip
def test_a_wrong_type_or_range_is_refused_by_field(field, value):
    document = shared_document()
    document[field] = value
    assert field in refusal(json.dumps(document))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("where", ["gap", "server", "compute"])
def test_numbers_that_are_not_finite_are_refused(number, where):
    document = shared_document()
    if where == "gap":
        document["gap"] = "HERE"
    elif where == "server":
        document["job"]["server"]["accelerator"]["fp16_flops"] = "HERE"
    else:
        document["job"]["compute"]["efficiency"] = "HERE"
    refusal(json.dumps(document).replace('"HERE"', number))


def test_a_key_that_stands_twice_is_refused():
    text = shared_plan().to_json()
    assert "twice" in refusal(text.replace('"seed":', '"seed": 5, "seed":', 1))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(to.InputError, match="does not exist"):
        to.load_plan(tmp_path / "none.json")
    with pytest.raises(to.InputError, match="cannot be read"):
        to.load_plan(tmp_path)
    (tmp_path / "empty.json").touch()
    with pytest.raises(to.InputError, match="is empty"):
        to.load_plan(tmp_path / "empty.json")


def test_a_plan_is_not_written_where_it_cannot_be(tmp_path):
    with pytest.raises(to.InputError, match="not an existing directory"):
        shared_plan().save(tmp_path / "missing" / "plan.json")
    assert list(tmp_path.iterdir()) == []
