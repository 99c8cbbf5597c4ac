"""Accelerators, servers and the roofline against hand calculation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.accelerators import ACCELERATORS, Accelerator, get_accelerator
from parallelism.device import ComputeModel, RooflineModel, Server, default_precision
from parallelism.graph import Mode, ModelGraph
from parallelism.models import get_model
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import activation
from parallelism.operators.layers import attention, conv2d, dense, embedding


def small_graph() -> ModelGraph:
    build = GraphBuilder("small", 8)
    dense(build, "dense", build.input(64), 32)
    embedding(build, "table", 1000, 16, bag=10)
    attention(build, "attention", build.input(4, 24), heads=6)
    activation(build, "relu", conv2d(build, "conv", build.input(3, 9, 9), 8, 3))
    return build.build()


def test_published_peaks() -> None:
    a100, h100, h200 = (get_accelerator(name) for name in ("A100", "h100", "h200"))
    assert (a100.memory_bytes, a100.memory_bandwidth) == (80e9, 2.039e12)
    assert a100.peak_flops("tf32") == 156e12
    assert h100.peak_flops("bf16") == pytest.approx(989.5e12)
    assert h200.memory_bandwidth / h100.memory_bandwidth == pytest.approx(4.8 / 3.35)
    assert all(item.source for item in ACCELERATORS.values())


def test_intra_server_reduction_is_that_of_the_published_task_graphs() -> None:
    # 100vgg_16: 1,015,021,568 bytes take 20.30043 ms inside each server.
    assert Server().intra_allreduce_time(1_015_021_568) == pytest.approx(20.30043e-3, rel=1e-6)
    assert Server(gpus=1).intra_allreduce_time(1e9) == 0.0


@given(st.integers(2, 16), st.floats(1.0, 1e12))
def test_intra_server_reduction_is_g_minus_1_rings(gpus: int, size: float) -> None:
    server = Server(gpus=gpus, intra_bandwidth=10e9)
    ring = 2 * (gpus - 1) / gpus * size
    assert server.intra_allreduce_time(size) == pytest.approx(ring / ((gpus - 1) * 10e9))


def test_dense_roofline_by_hand() -> None:
    graph = small_graph()
    server = Server(gpus=2)
    model = RooflineModel(server, 0.5, 0.5, 1e-5, "fp32")
    time = model.operator_time(graph, 0, 4096, 4, 1, Mode.OUTPUT)
    samples = 4096 / 4 / 2
    weights = 4 * (64 * 32 + 32)
    rate, bandwidth = 19.5e12 * 0.5, 2.039e12 * 0.5
    traffic = samples * 4 * (64 + 32)
    forward = max(2 * samples * 64 * 32 / rate, (traffic + weights) / bandwidth)
    backward = max(4 * samples * 64 * 32 / rate, (2 * traffic + 2 * weights) / bandwidth)
    assert time.forward == pytest.approx(forward + 1e-5)
    assert time.backward == pytest.approx(backward + 1e-5)
    assert time.update == pytest.approx(3 * weights / bandwidth + 1e-5)


@pytest.mark.parametrize(
    ("operator", "mode", "moved"),
    [
        # Elements a sample of one of four parts: dense 64 -> 32, table of 16 columns, bag 10.
        ("dense", Mode.OUTPUT, 4 * (64 + 32 / 4)),
        ("dense", Mode.REDUCTION, 4 * (64 / 4 + 32)),
        ("table", Mode.OUTPUT, (4 * 11 * 16 + 80) / 4),
        ("table", Mode.REDUCTION, (4 * 10 * 16 + 80) / 4 + 4 * 16),
        ("relu", Mode.CHANNEL, 4 * 2 * 8 * 49 / 4),
    ],
)
def test_a_parts_traffic_keeps_what_is_whole(operator: str, mode: Mode, moved: float) -> None:
    graph = small_graph()
    index = graph.index(operator)
    model = RooflineModel(Server(gpus=1), 1.0, 1.0, 0.0, "fp16")
    time = model.operator_time(graph, index, 4_000_000, 1, 4, mode)
    op = graph.operators[index]
    weights = 0 if op.sparse else 4 * op.parameters / 4
    assert time.forward == pytest.approx((4e6 * moved + weights) / 2.039e12)
    assert time.update == pytest.approx(3 * weights / 2.039e12)


@given(
    index=st.integers(0, 4), sample=st.integers(1, 16), mode=st.sampled_from(list(Mode)),
    parameter=st.integers(1, 8),
)  # fmt: skip
def test_more_parts_never_take_longer_each(
    index: int, sample: int, mode: Mode, parameter: int
) -> None:
    graph = small_graph()
    model: ComputeModel = RooflineModel()
    base = model.operator_time(graph, index, 5040, sample, parameter, mode)
    for more in ((sample * 2, parameter), (sample, parameter * 2)):
        time = model.operator_time(graph, index, 5040, *more, mode)
        assert 0 < time.forward <= base.forward
        assert 0 < time.backward <= base.backward
        assert 0 <= time.update <= base.update


def test_precision_follows_element_width() -> None:
    assert (default_precision(4), default_precision(2)) == ("fp32", "bf16")
    single = get_model("candle-16")
    half = get_model("candle-16", element_bytes=2)
    index = single.index("dense_1")
    times = [
        RooflineModel().operator_time(g, index, 16384, 1, 1, Mode.OUTPUT).forward
        for g in (single, half)
    ]
    # Half the width multiplies on tensor cores: 312 against 19.5 TFLOP/s.
    assert times[0] == pytest.approx(16 * times[1], rel=0.15)
    named = RooflineModel(precision="fp16")
    assert named.operator_time(half, index, 16384, 1, 1, Mode.OUTPUT).forward == times[1]


def test_a_device_without_the_precision_of_the_elements_says_what_to_choose() -> None:
    tpu = RooflineModel(Server(accelerator=get_accelerator("tpu-v5p")))
    wanted = (
        "accelerator 'tpu-v5p' has no fp32 peak, in which elements of 4 bytes are multiplied; "
        "choose another accelerator, or a model with element_bytes 2"
    )
    with pytest.raises(InputError) as refused:
        tpu.operator_time(get_model("candle-16"), 0, 16384, 1, 1, Mode.OUTPUT)
    assert str(refused.value) == wanted
    half = get_model("candle-16", element_bytes=2)
    assert tpu.operator_time(half, half.index("dense_1"), 16384, 1, 1, Mode.OUTPUT).forward > 0


def test_provenance() -> None:
    model = RooflineModel(precision="fp32")
    assert model.describe()["accelerator"] == "a100-80gb"
    assert model.describe()["launch_overhead_s"] == 5e-6
    assert len(model.notes) == 1 and "fp32" in model.notes[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_accelerator("b9000"), "unknown accelerator 'b9000'; did you mean 'b300', or"),
        (lambda: get_accelerator("x"), "unknown accelerator 'x'; choose a100, h100, h200"),
        (lambda: Server(gpus=0), "gpus is 0"),
        (lambda: Server(gpus=True), "gpus is True; give a whole number"),
        (lambda: Server(intra_bandwidth=0.0), "intra_bandwidth is 0.0"),
        (lambda: RooflineModel(efficiency=0.0), "efficiency is 0.0"),
        (lambda: RooflineModel(memory_efficiency=1.5), "memory_efficiency is 1.5"),
        (lambda: RooflineModel(launch_overhead=-1.0), "launch_overhead is -1.0"),
        (lambda: RooflineModel(precision="int8"), "unknown precision 'int8'"),  # type: ignore[arg-type]
        (lambda: Accelerator("x", 1, 1, 1, 1, 1, float("nan"), ""), "memory_bandwidth is nan"),
        (lambda: default_precision(8), "element_bytes is 8"),
    ],
)
def test_bad_devices_are_named(call: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert message in str(caught.value)
