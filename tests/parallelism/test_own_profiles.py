"""Profiles made here tell shapes and parameter parts apart; neither needs PyTorch to be read."""

import sys
from types import MappingProxyType

import pytest

from codesign_base import InputError
from parallelism.device import Server
from parallelism.graph import Mode
from parallelism.importers.profiling import profile_operators
from parallelism.importers.torch_capture import capture
from parallelism.models import get_model
from parallelism.profile import ProfileModel
from parallelism.profile_file import Measurement, Profile, measured_name

GRAPH = get_model("dlrm", tables=1, rows=64, dim=16, bottom_width=16, top_width=16)


def profile(**points: dict[int, float]) -> Profile:
    """Return a profile of batch 64 with forward times in seconds by parts."""
    measurements = {
        name.replace("__", "/"): tuple(
            Measurement(parts, time, 2 * time, 1.0) for parts, time in sorted(times.items())
        )
        for name, times in points.items()
    }
    return Profile("own.json", 64, 4, MappingProxyType(measurements))


def every(times: dict[int, float], **more: dict[int, float]) -> Profile:
    return profile(**{measured_name(op): times for op in GRAPH.operators}, **more)


def test_names_tell_shapes_apart_where_published_names_do_not() -> None:
    graph = get_model("resnet50")
    adds = [op for op in graph.operators if op.profile_key == "ElementBinary_31"]
    assert len({measured_name(op) for op in adds}) == 4
    op = adds[0]
    assert measured_name(op, Mode.CHANNEL, 1) == measured_name(op)
    assert measured_name(op, Mode.CHANNEL, 4) == measured_name(op) + " channel/4"


def test_a_measured_part_is_looked_up_at_its_samples() -> None:
    index = GRAPH.index("bottom_1")
    op = GRAPH.operators[index]
    split = {measured_name(op, Mode.OUTPUT, 2): {1: 5.0, 2: 3.0}}
    model = ProfileModel(every({1: 10.0, 4: 4.0}, **split))
    assert model.operator_time(GRAPH, index, 64, 2, 2, Mode.OUTPUT).forward == 3.0
    assert not any("p*q" in note for note in model.notes)
    # What was not measured falls back to as many sample parts.
    assert model.operator_time(GRAPH, index, 64, 2, 2, Mode.REDUCTION).forward == 4.0
    assert any("p*q" in note for note in model.notes)


def test_our_names_come_before_published_ones() -> None:
    index = GRAPH.index("bottom_1")
    both = every({1: 10.0}, Dense_16_16={1: 99.0})
    assert ProfileModel(both).operator_time(GRAPH, index, 64, 1, 1, Mode.OUTPUT).forward == 10.0


@pytest.mark.parametrize(("gpus", "parts"), [(4, 2), (8, 1), (2, 4)])
def test_tables_scale_with_the_samples_of_a_server(gpus: int, parts: int) -> None:
    times = {1: 8.0, 2: 4.5, 4: 2.5, 8: 1.5}
    model = ProfileModel(every(times), Server(gpus=gpus))
    dense, table = GRAPH.index("bottom_1"), GRAPH.index("table_0")
    # Dense layers: 64 / (4 x 2) samples of a GPU, whatever the server.
    got = model.operator_time(GRAPH, dense, 64, 2, 1, Mode.OUTPUT).forward
    assert got == times[2 * gpus // 4]
    # Tables: 64 / 2 samples of a server, whatever its GPUs.
    assert model.operator_time(GRAPH, table, 64, 2, 1, Mode.OUTPUT).forward == times[2]


def test_without_pytorch_one_sentence_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for call in (lambda: capture(None, None), lambda: profile_operators(GRAPH, 4)):
        with pytest.raises(InputError, match=r"pip install torch==2\.13\.0"):
            call()
