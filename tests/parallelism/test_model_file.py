"""Model files: the documented example, every kind, and one sentence for every error."""

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import parallelism.model_file as module
from codesign_base import InputError
from parallelism.graph import Mode, OperatorKind
from parallelism.model_file import load_model, model_from_data

DOCUMENT = Path(__file__).parents[2] / "docs" / "model-file.md"


def example() -> str:
    found = re.search(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found.group(1)


def test_documented_example(tmp_path: Path) -> None:
    path = tmp_path / "towers.yaml"
    path.write_text(example())
    graph = load_model(path)
    assert graph.name == "two-towers" and graph.batch_per_gpu == 128
    kinds = [op.kind.value for op in graph.operators]
    assert kinds == [
        "embedding", "dense", "conv2d", "pool", "flatten", "dense", "concat", "activation",
        "dense",
    ]  # fmt: skip
    flat = graph.operators[graph.index("flat")]
    assert flat.output_shape == (32 * 8 * 8,)
    cross = graph.operators[graph.index("cross")]
    assert cross.forward_flops == 73_728 and cross.parameters == 37_056
    assert [(s.mode, s.extent) for s in cross.splits] == [(Mode.OUTPUT, 192)]
    assert graph.operators[graph.index("all")].output_shape == (192,)


def test_docstring_holds_the_same_example() -> None:
    text = (module.__doc__ or "").split("::\n\n")[1]
    block = "\n".join(line for line in text.splitlines() if line.startswith("    ") or not line)
    assert yaml.safe_load(block) == yaml.safe_load(example())


def test_json_holds_the_same(tmp_path: Path) -> None:
    source = tmp_path / "a.yaml"
    source.write_text(example())
    target = tmp_path / "a.json"
    target.write_text(json.dumps(yaml.safe_load(example())))
    assert load_model(source) == load_model(target)


def test_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "all.yml"
    path.write_text(
        """
name: all
batch_per_gpu: 4
element_bytes: 2
inputs: {words: [8, 16], image: [3, 8, 8], context: [5, 16]}
operators:
  - {name: a, kind: attention, inputs: [words], heads: 4, bias: true}
  - {name: b, kind: attention, inputs: [a, context], heads: 4, profile_key: mine}
  - {name: c, kind: add, inputs: [a, b]}
  - {name: d, kind: layer_norm, inputs: [c]}
  - {name: e, kind: multiply, inputs: [d, c]}
  - {name: f, kind: activation, inputs: [e]}
  - {name: g, kind: softmax, inputs: [f]}
  - {name: h, kind: conv2d, inputs: [image], in_channels: 3, out_channels: 4, kernel: 3,
     bias: false}
  - {name: i, kind: batch_norm, inputs: [h]}
  - {name: j, kind: embedding, rows: 10, dim: 16, positions: 8}
  - {name: k, kind: dense, inputs: [j], in_features: 16, out_features: 3, bias: false}
  - name: l
    kind: custom
    behaves_as: dense
    output_shape: [7]
    forward_flops: 1e9
    backward_flops: 2.0
    forward_bytes: 3
    backward_bytes: 4
    sparse: true
"""
    )
    graph = load_model(path)
    ops = {op.name: op for op in graph.operators}
    assert graph.element_bytes == 2
    assert ops["a"].parameters == 4 * 16 * 16 + 4 * 16
    assert ops["b"].inputs == (0,) and ops["b"].profile_key == "mine"
    assert ops["h"].parameters == 3 * 4 * 9 and ops["i"].parameters == 8
    assert ops["k"].parameters == 48 and ops["k"].output_shape == (8, 3)
    assert ops["l"].kind is OperatorKind.DENSE and ops["l"].sparse
    assert ops["l"].forward_flops == 1e9


def change(path: list[Any], value: Any) -> dict[str, Any]:
    """Return the documented example with one entry replaced (or added)."""
    data: dict[str, Any] = copy.deepcopy(yaml.safe_load(example()))
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


CUSTOM = {
    "name": "last", "kind": "custom", "inputs": ["cross"], "output_shape": [8],
    "forward_flops": 1.0, "backward_flops": 1.0, "forward_bytes": 1.0, "backward_bytes": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["nmae"], "x", "unknown field 'nmae'; did you mean 'name'?"),
        (["name"], None, "field 'name' is missing; add it"),
        (["batch_per_gpu"], 0, "field 'batch_per_gpu' is 0"),
        (["batch_per_gpu"], "many", "field 'batch_per_gpu' is 'many'"),
        (["element_bytes"], 3, "field 'element_bytes' is 3"),
        (["operators"], [], "field 'operators' is []"),
        (["operators"], {}, "field 'operators' is {}"),
        (["inputs", "profile"], [], "field 'inputs.profile' is []"),
        (["inputs", "profile"], [0], "field 'inputs.profile.0' is 0"),
        (["operators", 1, "out_fetures"], 3,
         "operator 2 ('user'): unknown field 'out_fetures'; did you mean 'out_features'?"),
        (["operators", 1, "out_features"], None, "field 'out_features' is missing"),
        (["operators", 1, "out_features"], True, "field 'out_features' is true"),
        (["operators", 1, "out_features"], -4, "field 'out_features' is -4"),
        (["operators", 1, "in_features"], 5, "in_features is 5, but its input has 512"),
        (["operators", 1, "kind"], "dens", "operator 2 ('user'): unknown kind 'dens'"),
        (["operators", 1, "kind"], None, "field 'kind' is missing; choose one of dense, conv2d"),
        (["operators", 1, "kind"], ["dense"], "choose one of dense"),
        (["operators", 1, "inputs"], ["profil"],
         "reads 'profil', which is no model input or operator before it; did you mean 'profile'?"),
        (["operators", 1, "inputs"], ["all"], "no model input or operator before it"),
        (["operators", 1, "inputs"], [], "has 0 inputs; its kind takes 1"),
        (["operators", 1, "inputs"], ["photo"], "flatten it first"),
        (["operators", 1, "name"], "history", "the name 'history' occurs twice"),
        (["operators", 1, "name"], "photo", "the name 'photo' occurs twice"),
        (["operators", 1], 7, "operator 2: the entry is 7"),
        (["operators", 0, "inputs"], ["profile"], "has 1 input; its kind takes 0"),
        (["operators", 2, "kernel"], 99, "kernel 99 is wider than the input of 64"),
        (["operators", 2, "in_channels"], 5, "in_channels is 5, but its input has 3"),
        (["operators", 2, "inputs"], ["profile"], "not an image"),
        (["operators", 7, "forward_flops"], -1.0, "field 'forward_flops' is -1.0"),
        (["operators", 7, "forward_flops"], float("inf"), "field 'forward_flops' is inf"),
        (["operators", 7, "behaves_as"], "magic", "field 'behaves_as' is 'magic'"),
        (["operators", 7, "splits", 0, "axis"], 3, "unknown field 'splits.0.axis'"),
        (["operators", 7, "splits"], [{"mode": "output", "extent": 2}] * 2, "mode occurs twice"),
        (["operators", 7, "splits"], [{"mode": "output", "extent": 193}],
         "extent 193 of split 'output' does not divide the 192 features of the output, [192]"),
        (["operators", 7, "splits"], [{"mode": "channel", "extent": 5}],
         "extent 5 of split 'channel' does not divide the 192 features"),
        (["operators", 8], CUSTOM | {"splits": [{"mode": "reduction", "extent": 4}]},
         "'last': split 'reduction' makes partial sums, which no operator reads; leave it out"),
    ],
)  # fmt: skip
def test_errors_name_the_place_and_the_mend(path: list[Any], value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        model_from_data(change(path, value), "model file 'm.yaml'")
    assert message in str(caught.value)
    assert str(caught.value).startswith("model file 'm.yaml'")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# nothing\n", "expected fields name"),
        ("- a\n- b\n", "expected fields name"),
        ("name: [", "not valid YAML"),
        ("name: a\nname: b\n", "key 'name' occurs twice in the block at line 1"),
        ("name: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("? [a]\n: b", "not valid YAML"),
        ("\x00", "not valid YAML"),
        pytest.param("[" * 5000, "model file", marks=pytest.mark.slow),
        ("name: 2020-99-99", "is not readable YAML"),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert message in str(caught.value) and "bad.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("width", [True, 2.0, "2", None, 16, 2**70])
def test_element_bytes_is_one_of_four_whole_numbers(width: Any) -> None:
    data = yaml.safe_load(example())
    data["element_bytes"] = width
    with pytest.raises(InputError, match=r"'element_bytes' is .*: input should be 1, 2, 4 or 8"):
        model_from_data(data, "m")


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("operators", [], "is []: give at least 1 entry"),
        ("name", "", "is '': text should have at least 1 character"),
        ("operators", None, "is null: input should be a list"),
        ("inputs", True, "is true: input should be fields with values"),
        ("inputs", {"x": [1, 2, 3, 4]}, "is [1, 2, 3, 4]: give at most 3 entries"),
        ("name", {"a": [None, True]}, "is {'a': [null, true]}: input should be text"),
        ("batch_per_gpu", [[[[[1]]]]] * 40, "is [[[[...]]], "),
    ],
)
def test_errors_have_words_of_files_not_of_python(field: str, value: Any, told: str) -> None:
    data = {**yaml.safe_load(example()), field: value}
    with pytest.raises(InputError) as caught:
        model_from_data(data, "m")
    assert told in str(caught.value) and len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"name": "x', "Unterminated string starting at line 1, column 10; the file may be trunc"),
        ('{"name": tru', "the file may be truncated"),
        ('{"name": "x",', "the file may be truncated"),
        ('{"name": "x"} {', "Extra data at line 1, column 15; end the file after its first object"),
        ("name: x", "at line 1, column 1; give a JSON file"),
        ('{"name": "x"]', "at line 1, column 13; correct the file"),
    ],
)
def test_only_json_that_ends_early_may_be_truncated(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert told in str(caught.value)


def test_bad_json_and_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"name": "x"')
    with pytest.raises(InputError, match=r"not valid JSON.*truncated"):
        load_model(path)
    with pytest.raises(InputError, match="does not exist"):
        load_model(tmp_path / "none.yaml")


@given(st.text(max_size=60))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_text_raises_anything_but_input_error(tmp_path: Path, text: str) -> None:
    for suffix in ("yaml", "json"):
        path = tmp_path / f"fuzz.{suffix}"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(InputError):
            load_model(path)


plain = st.none() | st.booleans() | st.integers(-3, 10**16) | st.text(max_size=4) | st.floats()
tree = st.recursive(
    plain, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(max_size=4), t, max_size=3)
)


@given(where=st.integers(0, 8), field=st.sampled_from(["name", "kind", "inputs", "kernel", "dim"]),
       value=tree)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_no_value_raises_anything_but_input_error(where: int, field: str, value: Any) -> None:
    data = yaml.safe_load(example())
    data["operators"][where][field] = value
    try:
        model_from_data(data, "m")
    except InputError as error:
        assert str(error)


def test_import_is_light() -> None:
    code = (
        "import sys, parallelism.model_file; "
        "print(*(name in sys.modules for name in ('pydantic', 'yaml')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
