"""The presets against the published measured profiles and task graphs, where present."""

import json
from collections import Counter
from math import exp, log

import pytest
from published_data import published_data

from parallelism.device import RooflineModel, Server
from parallelism.graph import Mode
from parallelism.models import get_model
from parallelism.profile import ProfileModel
from parallelism.profile_file import load_profile

MEASURED = published_data("measured")
needs_data = pytest.mark.skipif(not MEASURED.is_dir(), reason="no measured profiles")

FILES = {
    "dlrm-16": "dlrm16", "dlrm-32": "dlrm32", "dlrm": "dlrm128",
    "candle-16": "candle16", "candle-32": "candle32", "candle": "candle_128",
    "bert-16": "transformer16", "bert-32": "transformer32", "bert": "transformer128",
    "vgg16-16": "vgg16", "vgg16-32": "vgg32", "vgg16": "vgg128",
    "resnet50": "resnet128", "ncf": "ncf128",
}  # fmt: skip

# All bytes that the published pure data-parallel or initial task graphs reduce for one operator
# (weights and biases apart), tables left out.
REDUCED = {
    "dlrm-16": Counter({4194304: 7, 4096: 7, 41943040: 1, 16777216: 14, 8192: 16, 4: 1}),
    "dlrm-32": Counter({4194304: 7, 4096: 7, 75497472: 1, 16777216: 14, 8192: 16, 4: 1}),
    "bert-16": Counter({9437184: 18, 2359296: 24, 3072: 25, 4: 1}),
    "bert-32": Counter({9437184: 36, 2359296: 48, 3072: 49, 4: 1}),
    "candle-16": Counter(
        {67108864: 62, 16384: 69, 86343680: 2, 33554432: 2, 15433728: 1, 335577088: 1, 4: 3}
    ),
    "candle-32": Counter(
        {268435456: 62, 32768: 69, 172687360: 2, 67108864: 2, 30867456: 1, 1342242816: 1, 4: 3}
    ),
    "vgg16-16": Counter(
        {
            2048: 6, 9437184: 5, 1024: 3, 256: 2, 512: 2, 2359296: 2, 16384: 2, 6912: 1,
            147456: 1, 294912: 1, 589824: 1, 1179648: 1, 4718592: 1, 1015021568: 1,
            67108864: 1, 16384000: 1, 4000: 1,
        }
    ),
}  # fmt: skip


@needs_data
@pytest.mark.parametrize(("model", "file"), FILES.items())
def test_every_operator_is_measured_and_every_measurement_is_an_operator(
    model: str, file: str
) -> None:
    graph = get_model(model)
    profile = load_profile(MEASURED / f"{file}.json")
    assert {op.profile_key for op in graph.operators} == set(profile.measurements)
    assert profile.batch == profile.servers * 4 * graph.batch_per_gpu


@pytest.mark.parametrize("model", REDUCED)
def test_parameters_equal_the_gradients_of_published_task_graphs(model: str) -> None:
    dense_bytes = sum(4 * op.parameters for op in get_model(model).operators if not op.sparse)
    assert dense_bytes == sum(size * count for size, count in REDUCED[model].items())


@pytest.mark.parametrize(
    ("model", "operators"),
    [
        ("dlrm-16", 40), ("dlrm-32", 56), ("dlrm", 88), ("candle-16", 71), ("candle-32", 71),
        ("bert-16", 61), ("bert-32", 121), ("vgg16-16", 23), ("vgg16-32", 23),
    ],
)  # fmt: skip
def test_operator_counts_equal_published_task_graphs(model: str, operators: int) -> None:
    assert len(get_model(model).operators) == operators


@needs_data
def test_recorded_memory_confirms_the_shapes() -> None:
    """Published memory is input + output (twice, with gradients) + weights twice, per shape."""
    samples = 16384 // 4
    dlrm = load_profile(MEASURED / "dlrm16.json").measurements
    graph = get_model("dlrm-16")
    table = graph.operators[graph.index("table_0")]
    indices = 16384 * 100 * 8
    expected = 2 * (4 * table.parameters + 16384 * 256 * 4 + indices)
    assert dlrm[table.profile_key][0].memory_bytes == expected
    for name in ("bottom_0", "top_0", "top_1"):
        op = graph.operators[graph.index(name)]
        width = {"bottom_0": 1024, "top_0": 5120, "top_1": 2048}[name]
        moved = samples * 4 * (width + op.output_elements)
        assert dlrm[op.profile_key][0].memory_bytes == 2 * (moved + 4 * op.parameters)
    adds = load_profile(MEASURED / "transformer16.json").measurements["ElementBinary_31"]
    block = get_model("bert-16").operators[1]
    assert adds[0].memory_bytes == 2 * 3 * (1024 // 4) * 4 * block.output_elements
    resnet = load_profile(MEASURED / "resnet128.json").measurements["Pool2D_7_7"]
    graph = get_model("resnet50")
    pool = graph.operators[graph.index("head_pool")]
    source = graph.operators[pool.inputs[0]]
    moved = (65536 // 4) * 4 * (pool.output_elements + source.output_elements)
    assert resnet[-1].memory_bytes == pytest.approx(2 * moved / 128)


def geometric_mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def roofline_ratios(model: str, roofline: RooflineModel, single: RooflineModel) -> list[float]:
    graph = get_model(model)
    profile = load_profile(MEASURED / f"{FILES[model]}.json")
    ratios = []
    for key, points in profile.measurements.items():
        index = next(i for i, op in enumerate(graph.operators) if op.profile_key == key)
        # Tables were measured whole, on one GPU, with the full batch.
        used = single if graph.operators[index].sparse else roofline
        for point in points:
            time = used.operator_time(graph, index, profile.batch, point.parts, 1, Mode.OUTPUT)
            ratios += [time.forward / point.forward, time.backward / point.backward]
    return ratios


@needs_data
def test_roofline_of_single_precision_meets_the_profiles() -> None:
    roofline = RooflineModel(Server(), precision="fp32")
    single = RooflineModel(Server(gpus=1), precision="fp32")
    means = {m: geometric_mean(roofline_ratios(m, roofline, single)) for m in FILES}
    assert all(0.5 < mean < 2 for mean in means.values()), means
    everything = [r for m in FILES for r in roofline_ratios(m, roofline, single)]
    assert geometric_mean(everything) == pytest.approx(1.0, abs=0.1)


@needs_data
def test_tensor_cores_are_faster_than_the_profiles_by_the_documented_factor() -> None:
    roofline = RooflineModel(precision="tf32")
    single = RooflineModel(Server(gpus=1), precision="tf32")
    everything = [r for m in FILES for r in roofline_ratios(m, roofline, single)]
    assert geometric_mean(everything) == pytest.approx(0.32, abs=0.04)


@needs_data
@pytest.mark.parametrize(
    ("model", "seconds"),
    # Compute alone, perfectly spread, in the published 16-server results.
    [("candle-16", (0.100, 0.105)), ("dlrm-16", (0.013, 0.015)), ("vgg16-16", (0.099, 0.102))],
)
def test_compute_time_of_the_measured_profile(model: str, seconds: tuple[float, float]) -> None:
    graph = get_model(model)
    measured = ProfileModel(MEASURED / f"{FILES[model]}.json")
    total = 0.0
    for index, op in enumerate(graph.operators):
        parts = 1 if op.sparse else 16
        time = measured.operator_time(graph, index, measured.profile.batch, parts, 1, Mode.OUTPUT)
        total += (time.forward + time.backward) * parts / 16
    assert seconds[0] < total < seconds[1]


@needs_data
def test_measured_embeddings_note_their_assumption() -> None:
    graph = get_model("dlrm-16")
    measured = ProfileModel(MEASURED / "dlrm16.json")
    measured.operator_time(graph, graph.index("table_3"), 16384, 1, 4, Mode.OUTPUT)
    assert any("embeddings were measured on one GPU" in note for note in measured.notes)
    assert any("p*q parts" in note for note in measured.notes)
    assert (
        "Embed_10000000x256: no measurement at 4 parts; scaled from 1 in proportion to 1/parts"
        in measured.notes
    )


@needs_data
@pytest.mark.parametrize("file", FILES.values())
def test_first_measurement_of_a_name_stands(file: str) -> None:
    rows = json.loads((MEASURED / f"{file}.json").read_text())["measurements"]
    first: dict[tuple[str, int], float] = {}
    for row in rows:
        first.setdefault((row["name"], int(row["pc_str"].split("-")[-1])), row["fw_time"])
    profile = load_profile(MEASURED / f"{file}.json")
    read = {(n, p.parts): p.forward for n, ps in profile.measurements.items() for p in ps}
    assert read == pytest.approx({key: ms * 1e-3 for key, ms in first.items()})
