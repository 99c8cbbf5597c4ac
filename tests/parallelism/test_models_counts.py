"""Counts of the zoo against published numbers, closed forms and torch's shape rules."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from parallelism.graph import Mode, ModelGraph, OperatorKind, Split
from parallelism.models import (
    PRESETS,
    bert,
    bert_encoder,
    candle,
    dlrm,
    get_model,
    list_models,
    ncf,
    resnet50,
    vgg16,
)
from parallelism.operators import elementwise
from parallelism.operators.builder import GraphBuilder
from parallelism.operators.elementwise import add, concat, flatten, multiply, pool
from parallelism.operators.layers import attention, conv2d, dense, embedding
from parallelism.transformers.presets import TRANSFORMERS


def gmac(graph: ModelGraph) -> float:
    kinds = (OperatorKind.DENSE, OperatorKind.CONV2D, OperatorKind.ATTENTION)
    return sum(op.forward_flops for op in graph.operators if op.kind in kinds) / 2e9


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet50-imagenet", 25_557_032),
        ("vgg16-imagenet", 138_357_544),
        ("bert-base", 109_482_240),
        ("bert-large", 335_141_888),
    ],
)
def test_published_parameter_counts(name: str, parameters: int) -> None:
    assert get_model(name).parameters == parameters


def test_published_multiply_adds() -> None:
    assert gmac(get_model("resnet50-imagenet")) == pytest.approx(4.089, abs=0.005)
    assert gmac(get_model("vgg16-imagenet")) == pytest.approx(15.47, abs=0.005)
    # BERT-base: 12 blocks of 12 h^2 s + 2 s^2 h multiply-adds, and the pooler.
    s, h = 128, 768
    model = get_model("bert-base", sequence=s)
    softmax = 5 * 12 * s * s * 12 / 2
    assert gmac(model) * 1e9 == 12 * (12 * h * h * s + 2 * s * s * h) + h * h + softmax


def test_experiment_vgg_flattens_to_61952_and_resnet_to_8192() -> None:
    vgg = vgg16()
    assert vgg.operators[vgg.index("flatten")].output_shape == (61952,)
    assert len(vgg.operators) == 23
    resnet = resnet50()
    assert resnet.operators[resnet.index("flatten")].output_shape == (8192,)


@given(
    tables=st.integers(1, 5), rows=st.integers(1, 100), dim=st.integers(1, 16),
    bag=st.integers(1, 5), w=st.integers(1, 20), t=st.integers(1, 20),
    bottom=st.integers(1, 3), top=st.integers(0, 3), width=st.sampled_from([2, 4]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_dlrm_closed_form(
    tables: int, rows: int, dim: int, bag: int, w: int, t: int, bottom: int, top: int, width: int
) -> None:
    graph = dlrm(
        tables=tables, rows=rows, dim=dim, bag=bag, bottom_width=w, bottom_layers=bottom,
        top_width=t, top_layers=top, element_bytes=width,
    )  # fmt: skip
    joined = w + tables * dim
    kernel = bottom * w * w + joined * t + top * t * t + t
    bias = bottom * w + (top + 1) * t + 1
    assert graph.parameters == tables * rows * dim + kernel + bias
    flops = sum(op.forward_flops for op in graph.operators if not op.sparse)
    assert flops == 2 * kernel
    table = graph.operators[graph.index("table_0")]
    assert table.forward_bytes == (bag + 1) * dim * width + 8 * bag
    assert table.backward_bytes == (2 * bag + 1) * dim * width + 8 * bag
    assert len(graph.operators) == bottom + tables + top + 3


def test_candle_and_ncf_closed_forms() -> None:
    f, layers = 8, 3
    graph = candle(features=(5, 6, 7), tower_layers=layers, width=f, dense_layers=2)
    towers = sum(x * f + f + (layers - 1) * (f * f + f) for x in (5, 6, 7))
    assert graph.parameters == towers + ((3 * f + 2) * f + f) + (f * f + f) + (f + 1) + 2
    assert len(candle().operators) == 91
    assert len(candle(tower_layers=12, width=4096).operators) == 71
    small = ncf(user_tables=2, item_tables=2, rows=10, factor_dim=3, mlp_dim=4, mlp_width=5,
                mlp_layers=2, bag=1)  # fmt: skip
    tables = 4 * 10 * 3 + 4 * 10 * 4
    assert small.parameters == tables + (6 + 1) + (16 * 5 + 5) + (5 * 5 + 5) + (6 + 1)
    assert ncf().operators[ncf().index("output")].profile_key == "Dense_4097_1"


def test_bert_blocks_read_what_the_published_task_graphs_read() -> None:
    graph = bert(blocks=2)
    assert len(graph.operators) == 21
    # Operator numbers of 100transformer_16: 3 = second dense of stream 1, 6 = cross attention.
    assert graph.consumers[3] == (6, 10, 11)
    assert graph.consumers[5] == (6, 7)
    assert graph.consumers[9] == (14, 15)
    assert graph.operators[0].inputs == ()
    assert graph.operators[0].parameters == 4 * 1024 * 1024


@given(
    size=st.integers(1, 40), kernel=st.integers(1, 7), stride=st.integers(1, 4),
    padding=st.integers(0, 3), channels=st.integers(1, 4), out=st.integers(1, 4),
)  # fmt: skip
@settings(deadline=None)
def test_windows_count_positions_by_sliding(
    size: int, kernel: int, stride: int, padding: int, channels: int, out: int
) -> None:
    build = GraphBuilder("w", 1)
    x = build.input(channels, size, size)
    if kernel > size + 2 * padding:
        with pytest.raises(InputError, match="wider than the input"):
            conv2d(build, "c", x, out, kernel, stride=stride, padding=padding)
        return
    slid = len(range(0, size + 2 * padding - kernel + 1, stride))
    y = conv2d(build, "c", x, out, kernel, stride=stride, padding=padding)
    assert y.shape == (out, slid, slid)
    assert pool(build, "p", x, kernel, stride=stride, padding=padding).shape[1:] == (slid, slid)
    op = build.build().operators[0]
    assert op.parameters == out * channels * kernel**2 + out
    assert op.forward_flops == 2 * slid**2 * out * channels * kernel**2
    assert op.backward_flops == 2 * op.forward_flops


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_sound(name: str) -> None:
    graph = get_model(name)
    assert graph.name == name
    assert PRESETS[name].source and PRESETS[name].description
    for op in graph.operators:
        modes = [split.mode for split in op.splits]
        assert len(set(modes)) == len(modes)
        assert all(split.extent > 1 for split in op.splits)
        if op.kind is OperatorKind.DENSE:
            output = op.split(Mode.OUTPUT)
            assert (output.extent if output else 1) == op.output_shape[-1]
        if op.kind is OperatorKind.SOFTMAX:
            assert not op.splits
        if op.kind is OperatorKind.CONCAT:
            assert op.splits in ((), (Split(Mode.CHANNEL, op.output_shape[-1]),))
        if op.kind is OperatorKind.CONCAT:
            inputs = sum(graph.operators[i].output_elements for i in op.inputs)
            assert 0 <= op.output_elements - inputs <= 2
        assert op.forward_bytes > 0 and op.backward_bytes > 0
        assert op.sparse == (op.kind is OperatorKind.EMBEDDING)
    last = len(graph.operators) - 1
    assert [i for i, readers in enumerate(graph.consumers) if not readers] == [last]


def test_splits_of_each_kind() -> None:
    build = GraphBuilder("s", 1)
    image = build.input(4, 8, 8)
    x = conv2d(build, "conv", image, 6, 3)
    flatten(build, "flat", x)
    rows = embedding(build, "table", 100, 16)
    mixed = attention(build, "heads", build.input(5, 12), heads=3)
    dense(build, "one", build.input(7), 1)
    for name, read in (("rows", rows), ("mixed", mixed)):
        elementwise.softmax(build, name, read)
    found = [[(s.mode, s.extent) for s in op.splits] for op in build.build().operators]
    assert found[:5] == [
        [(Mode.OUTPUT, 6)],
        [(Mode.CHANNEL, 6)],
        [(Mode.OUTPUT, 16), (Mode.REDUCTION, 100)],
        [(Mode.HEADS, 3)],
        [(Mode.REDUCTION, 7)],
    ]


def test_list_models_sums_the_graphs() -> None:
    summaries = {summary.name: summary for summary in list_models()}
    assert list(summaries) == [*PRESETS, *TRANSFORMERS]
    assert all(summary.description and summary.source for summary in summaries.values())
    vgg = summaries["vgg16-imagenet"]
    assert vgg.parameters == 138_357_544
    assert vgg.forward_flops_per_sample == pytest.approx(2 * 15.47e9, rel=2e-3)
    graph = get_model("vgg16-imagenet")
    elements = sum(math.prod(op.output_shape) for op in graph.operators)
    assert vgg.activation_bytes_per_sample == 4 * elements


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_model("dlmr"), "unknown model 'dlmr'; did you mean 'dlrm'?"),
        (lambda: get_model("zzz"), "known: dlrm, candle"),
        (lambda: get_model("dlrm", tabels=3), "no parameter 'tabels'; did you mean 'tables'?"),
        (lambda: get_model("dlrm", tables=0), "tables is 0; give a whole number from 1"),
        pytest.param(
            lambda: get_model("dlrm", top_layers=10**6),
            "more than 100000 operators",
            marks=pytest.mark.slow,
        ),
        (lambda: dlrm(tables=100_001), "tables is 100001; give a whole number from 1 to 100000"),
        (lambda: dlrm(dim=True), "dim is True"),
        (lambda: dlrm(lookup_skew=-1.0), "lookup_skew is -1.0; give an exponent of at least 0"),
        (lambda: dlrm(tables=2, dims=[4]), "dims has 1 number for 2 tables; give one for each"),
        (lambda: dlrm(tables=1, dims=[0]), "a value of dims is 0; give a whole number"),
        (lambda: dlrm(batch_per_gpu=0), "batch_per_gpu is 0"),
        (lambda: dlrm(top_width=10**16), "top_width"),
        (lambda: bert(heads=7), "7 heads do not divide 1024 features"),
        (lambda: bert_encoder(sequence=600), "longer than the position table of 512"),
        (lambda: vgg16(input_size=5, padding=0), "wider than the input"),
        (lambda: vgg16(depths=(1,)), "1 depths and 5 channels; give equally many"),
        (lambda: resnet50(channels=64), "channels is 64; give a list"),
        (lambda: resnet50(classes="x"), "classes is 'x'"),
        (lambda: candle(features=()), "features is ()"),
        (lambda: candle(features=(5,), doses=0), "give at least 2"),
        (lambda: candle(doses=100_001), "doses is 100001; give a whole number from 0 to 100000"),
        (lambda: ncf(user_tables=3), "give the same number"),
    ],
)
def test_bad_numbers_are_named(call: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()  # type: ignore[operator]
    assert message in str(caught.value)


def test_builder_rejects_impossible_shapes() -> None:
    build = GraphBuilder("bad", 1)
    a, b, image = build.input(3), build.input(4), build.input(3, 4, 4)
    made = dense(build, "made", a, 3)
    for step, message in (
        (lambda: add(build, "x", [a, b]), "different shapes"),
        (lambda: add(build, "x", [a]), "1 input; give at least 2"),
        (lambda: add(build, "x", [made, made]), "occurs twice"),
        (lambda: multiply(build, "x", [a, a, a]), "3 inputs; give 2"),
        (lambda: concat(build, "x", [a, image]), "differ outside the feature axis"),
        (lambda: concat(build, "x", [made, made]), "occurs twice"),
        (lambda: dense(build, "x", image, 3), "flatten it first"),
        (lambda: conv2d(build, "x", a, 3, 1), "not an image"),
        (lambda: attention(build, "x", a, heads=1), r"give \[positions, features\] twice"),
        (lambda: build.input(), "has 0 axes"),
        (lambda: build.input(1, 2, 3, 4), "has 4 axes"),
    ):
        with pytest.raises(InputError, match=message):
            step()


@given(
    tables=st.integers(1, 40),
    bag=st.integers(1, 200),
    skew=st.floats(0.0, 4.0),
    dim=st.integers(1, 9),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_skewed_lookups_are_as_many_and_follow_zipf(tables, bag, skew, dim):
    graph = dlrm(tables=tables, rows=100, dim=dim, bag=bag, lookup_skew=skew)
    found = [op for op in graph.operators if op.sparse]
    bags = [op.backward_flops / dim for op in found]
    assert sum(bags) == tables * bag and min(bags) >= 1
    assert bags == sorted(bags, reverse=True)
    shares = np.array([1.0 / (t + 1) ** skew for t in range(tables)])
    exact = 1 + tables * (bag - 1) * shares / shares.sum()
    assert np.all(np.abs(np.array(bags) - exact) < 1.0)
    # What a table sends and holds stays; what published profiles measured is bags of one size.
    assert {op.output_shape for op in found} == {(dim,)}
    assert {op.parameters for op in found} == {100 * dim}
    assert [op.profile_key == f"Embed_100x{dim}" for op in found] == [b == bag for b in bags]


def test_tables_of_unequal_widths_send_and_hold_as_much():
    graph = dlrm(tables=3, rows=10, dims=[2, 4, 8], bottom_width=6)
    found = [op for op in graph.operators if op.sparse]
    assert [(op.output_shape, op.parameters) for op in found] == [
        ((2,), 20), ((4,), 40), ((8,), 80)
    ]  # fmt: skip
    assert next(op for op in graph.operators if op.name == "concat").output_shape == (20,)


def test_only_what_is_read_is_split_into_partial_sums() -> None:
    def modes(name: str, out: int, *, softmax: bool) -> set[Mode]:
        build = GraphBuilder("two", batch_per_gpu=4)
        last = dense(build, "last", dense(build, "first", build.input(8), 16), out)
        if softmax:
            elementwise.softmax(build, "softmax", last)
        graph = build.build()
        return {split.mode for split in graph.operators[graph.index(name)].splits}

    both = {Mode.OUTPUT, Mode.REDUCTION}
    assert modes("first", 12, softmax=False) == both
    assert modes("last", 12, softmax=False) == {Mode.OUTPUT}
    assert modes("last", 12, softmax=True) == both
    # One number a sample is no traffic to speak of.
    assert modes("last", 1, softmax=False) == {Mode.REDUCTION}
