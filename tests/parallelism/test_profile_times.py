"""Measured profiles: reading, the interpolation rules, and what is noted."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.device import ComputeModel, RooflineModel, Server
from parallelism.graph import Mode, ModelGraph
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import concat
from parallelism.operators.layers import dense, embedding, layer_norm
from parallelism.profile import ProfileModel, time_at
from parallelism.profile_file import Measurement, load_profile


def row(name: str, parts: int, forward: float, backward: float) -> dict[str, Any]:
    return {
        "name": name, "pc_str": f"2-1-{parts}", "fw_time": forward, "bw_time": backward,
        "mem_req": 1024,
    }  # fmt: skip


ROWS = [
    row("Dense_8_8", 2, 8.0, 16.0),
    row("Dense_8_8", 8, 2.0, 8.0),
    row("Dense_8_8", 4, 4.0, 4.0),
    row("Embed_100x4", 1, 3.0, 6.0),
    row("Concat_1", 1, 1.0, 1.0),
    row("Concat_1", 2, 1.0, 1.0),
    row("Dense_12_1", 1, 0.5, 0.5),
]


def write(tmp_path: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    path = tmp_path / "profile.json"
    data = {"batch_size": 64, "ngpus": 8, "measurements": ROWS if rows is None else rows}
    path.write_text(json.dumps(data))
    return path


def graph(norm: bool = False) -> ModelGraph:
    build = GraphBuilder("toy", 2)
    x = dense(build, "dense", build.input(8), 8)
    if norm:
        x = layer_norm(build, "norm", x)
    table = embedding(build, "table", 100, 4)
    dense(build, "output", concat(build, "concat", [x, table]), 1)
    return build.build()


def test_measured_times_are_taken_as_they_are(tmp_path: Path) -> None:
    model: ComputeModel = ProfileModel(write(tmp_path))
    time = model.operator_time(graph(), 0, 64, 4, 1, Mode.OUTPUT)
    assert (time.forward, time.backward, time.update) == (4e-3, 4e-3, 0.0)
    assert model.notes == (
        "embeddings were measured on one GPU with the full batch; that time stands for a whole "
        "server",
        "profiles hold no update times: updates take no time",
    )


def test_parameter_splits_take_the_time_at_as_many_parts(tmp_path: Path) -> None:
    model = ProfileModel(write(tmp_path))
    split = model.operator_time(graph(), 0, 64, 2, 4, Mode.OUTPUT)
    whole = model.operator_time(graph(), 0, 64, 8, 1, Mode.OUTPUT)
    assert split == whole
    assert any("p x q" in note for note in model.notes)


@pytest.mark.parametrize(
    ("batch", "gpus", "sample", "parts"),
    # A GPU of a published profile has 64 / (4 parts) samples.
    [(64, 4, 4, 4), (128, 4, 8, 4), (32, 4, 4, 8), (64, 8, 1, 2), (96, 2, 12, 4)],
)
def test_other_batches_and_servers_match_samples_per_gpu(
    tmp_path: Path, batch: int, gpus: int, sample: int, parts: int
) -> None:
    model = ProfileModel(write(tmp_path), Server(gpus=gpus))
    assert batch / (sample * gpus) == 64 / (parts * 4)
    time = model.operator_time(graph(), 0, batch, sample, 1, Mode.OUTPUT)
    expected = {2: 8e-3, 4: 4e-3, 8: 2e-3}[parts]
    assert time.forward == expected
    changed = (batch, gpus) != (64, 4)
    assert any("as many samples" in note for note in model.notes) == changed


def test_gaps_follow_the_rules_and_are_noted_once(tmp_path: Path) -> None:
    model = ProfileModel(write(tmp_path))
    toy = graph()
    forward = [
        model.operator_time(toy, 0, 64, parts, 1, Mode.OUTPUT).forward for parts in (1, 3, 16, 32)
    ]
    assert forward == pytest.approx([16e-3, 8e-3 * (2 / 3), 1e-3, 0.5e-3])
    model.operator_time(toy, toy.index("table"), 64, 2, 2, Mode.OUTPUT)
    assert [note for note in model.notes if "no measurement" in note] == [
        "Dense_8_8: no measurement at 1 part; scaled from 2 in proportion to 1/parts",
        "Dense_8_8: no measurement at 16, 32 parts; continued from 4 and 8",
        "Dense_8_8: no measurement at 3 parts; interpolated between 2 and 4",
        "Embed_100x4: no measurement at 4 parts; scaled from 1 in proportion to 1/parts",
    ]


def test_rising_times_stay_level_beyond_the_last_measurement(tmp_path: Path) -> None:
    model = ProfileModel(write(tmp_path))
    # Backward of Dense_8_8 rises from 4 to 8 parts.
    time = model.operator_time(graph(), 0, 64, 64, 1, Mode.OUTPUT)
    assert time.backward == pytest.approx(8e-3)
    assert time.forward == pytest.approx(0.25e-3)


positive = st.floats(1e-6, 1.0)


@given(
    parts=st.lists(st.integers(1, 512), min_size=2, max_size=6, unique=True).map(sorted),
    times=st.lists(st.tuples(positive, positive), min_size=6, max_size=6),
    wanted=st.floats(0.1, 2000.0),
)
@settings(deadline=None)
def test_time_at_equals_numpy_interpolation(
    parts: list[int], times: list[tuple[float, float]], wanted: float
) -> None:
    points = tuple(Measurement(p, f, b, 1.0) for p, (f, b) in zip(parts, times, strict=False))
    forward, backward, rule = time_at(points, wanted)
    for found, values in (
        (forward, [p.forward for p in points]),
        (backward, [p.backward for p in points]),
    ):
        x, y = np.log(parts), np.log(values)
        if wanted < parts[0]:
            expected = values[0] * parts[0] / wanted
        elif wanted > parts[-1]:
            slope = float(np.clip((y[-1] - y[-2]) / (x[-1] - x[-2]), -1, 0))
            expected = values[-1] * (wanted / parts[-1]) ** slope
        else:
            expected = float(np.exp(np.interp(math.log(wanted), x, y)))
        assert found == pytest.approx(expected, rel=1e-9)
    assert (rule == "") == (wanted in parts)


def test_an_operator_without_measurement_is_an_error_or_the_rooflines(tmp_path: Path) -> None:
    path = write(tmp_path)
    strict = ProfileModel(path)
    with pytest.raises(InputError, match=r"no measurement of operator 'norm' of model 'toy'"):
        strict.operator_time(graph(norm=True), 0, 64, 2, 1, Mode.OUTPUT)
    filled = ProfileModel(path, missing="roofline")
    toy = graph(norm=True)
    time = filled.operator_time(toy, 1, 64, 2, 1, Mode.OUTPUT)
    assert time == RooflineModel().operator_time(toy, 1, 64, 2, 1, Mode.OUTPUT)
    assert "norm: not in the profile; its time is the roofline's" in filled.notes
    assert any("compute times are a roofline" in note for note in filled.notes)
    assert filled.describe()["roofline"]["kind"] == "roofline"
    assert strict.describe()["roofline"] is None
    with pytest.raises(InputError, match="missing is 'zero'"):
        ProfileModel(path, missing="zero")  # type: ignore[arg-type]


def test_shapes_that_share_a_name_are_noted(tmp_path: Path) -> None:
    build = GraphBuilder("shared", 1)
    x = dense(build, "a", build.input(3, 8), 8)
    dense(build, "b", x, 8, first_only=True)
    shared = ProfileModel(write(tmp_path))
    shared.operator_time(build.build(), 0, 64, 2, 1, Mode.OUTPUT)
    assert "Dense_8_8: one measurement stands for operators of 2 shapes" in shared.notes


def test_the_first_of_equal_rows_stands(tmp_path: Path) -> None:
    profile = load_profile(write(tmp_path, [row("A", 2, 1.0, 2.0), row("A", 2, 5.0, 6.0)]))
    assert profile.measurements["A"] == (Measurement(2, 1e-3, 2e-3, 1024.0),)
    assert (profile.batch, profile.servers) == (64, 8)


GOOD = {"batch_size": 64, "ngpus": 8, "measurements": [ROWS[0]]}


def damaged(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "measurements": [{**ROWS[0], **changes}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (json.dumps(GOOD)[:-9], "may be truncated"),
        ("[1]", "expected an object with fields batch_size"),
        ('{"batch_size": 1, "batch_size": 2}', "key 'batch_size' occurs twice"),
        (json.dumps({**GOOD, "speed": 1}), "unknown field 'speed'"),
        (json.dumps({"batch_size": 64, "ngpus": 8}), "field 'measurements' is missing"),
        (json.dumps({**GOOD, "measurements": []}), "at least one entry"),
        (json.dumps({**GOOD, "measurements": 3}), "at least one entry"),
        (json.dumps({**GOOD, "batch_size": 0}), "batch_size is 0"),
        (json.dumps({**GOOD, "ngpus": True}), "ngpus is true"),
        (json.dumps({**GOOD, "batch_size": 10**30}), "give a whole number from 1 to 1e"),
        (json.dumps(damaged(fw_time=1e30)), "fw_time is 1e+30; give a positive number of millis"),
        (json.dumps(damaged(fw_time=1e-322)), "fw_time is 1e-322; give a positive number of mill"),
        (json.dumps(damaged(fw_time=-1.0)), "measurement 0: fw_time is -1.0"),
        (json.dumps(damaged(bw_time="3")), "bw_time is '3'"),
        (json.dumps(damaged(fw_time=float("nan"))), "fw_time is nan"),
        (json.dumps(damaged(fw_time=10**400)), "give a positive number of milliseconds"),
        (json.dumps(damaged(mem_req=0)), "mem_req is 0"),
        (json.dumps(damaged(name="")), "name is ''"),
        (json.dumps(damaged(pc_str="3-1-2")), "pc_str is '3-1-2'"),
        (json.dumps(damaged(pc_str="2-1-0")), "pc_str is '2-1-0'"),
        (json.dumps(damaged(pc_str="x")), "pc_str is 'x'"),
        (json.dumps(damaged(pc_str=7)), "pc_str is 7"),
        (json.dumps(damaged(time=1)), "unknown field 'time'"),
        ("[" * 100_000, "is not"),
    ],
)
def test_bad_profiles_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_profile(path)
    assert message in str(caught.value)
    assert "bad.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_profile(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        ProfileModel(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read"):
        ProfileModel(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        ProfileModel(tmp_path / "binary.json")
