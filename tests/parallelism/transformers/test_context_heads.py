"""Context groups of linear attention: heads that ranks exchange, what they do and keep of them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InfeasibleError, InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.taskgraph import TaskKind
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.collectives import layer_communications
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.exposure import communication_seconds
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.links import Links
from parallelism.transformers.loads import loads_of
from parallelism.transformers.pass_seconds import layer_seconds
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import Placement
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.shares import check_layout
from tests.helpers.small_transformers import HYBRID, ONE_PART, gpt
from tests.helpers.trainings import training_of
from topoopt.fabric import Fabric, simulate
from topoopt.topology.fabrics import ideal_switch

KINDS = ("gated-deltanet", "kda", "mamba-2")


def lone(kind: str, key_heads: int, heads: int, **changes):
    """A model of one layer with nothing but linear attention and a feed-forward part."""
    linear = LinearAttention(kind, key_heads, heads, 3, 2, chunk=4)  # type: ignore[arg-type]
    return replace(gpt(1, 24, 24, 50), name="lone", linear=linear, **changes)


def scan(inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Convolution over two tokens and recurrence of some heads; keys serve heads in order."""
    mixed = {}
    for name in ("query", "key", "value"):
        before = np.concatenate([np.zeros_like(inputs[name][:1]), inputs[name][:-1]])
        mixed[name] = inputs[name] + 0.5 * before
    tokens, heads, wide = mixed["value"].shape
    serves = heads // mixed["key"].shape[1]
    out = np.zeros((tokens, heads, wide))
    for head in range(heads):
        state = np.zeros((mixed["key"].shape[2], wide))
        for t in range(tokens):
            key = mixed["key"][t, head // serves]
            state = state * inputs["kept"][t, head][:, None]
            new = mixed["value"][t, head]
            if "learnt" in inputs:
                new = inputs["learnt"][t, head] * (new - key @ state)
            state = state + np.outer(key, new)
            out[t, head] = mixed["query"][t, head // serves] @ state
        if "gate" in inputs:
            out[:, head] *= inputs["gate"][:, head]
    return out


def drawn(linear: LinearAttention, tokens: int) -> dict[str, np.ndarray]:
    """What each head needs of each token, as the kinds have it."""
    rng = np.random.default_rng(7)
    keys = (tokens, linear.key_heads, linear.key_width)
    values = (tokens, linear.heads, linear.value_width)
    found = {"query": rng.normal(size=keys), "key": rng.normal(size=keys)}
    found["value"] = rng.normal(size=values)
    forgets = linear.key_width if linear.kind == "kda" else 1
    found["kept"] = rng.uniform(0.5, 1.0, (tokens, linear.heads, forgets))
    if linear.kind != "mamba-2":
        found["learnt"] = rng.uniform(0.1, 0.5, (tokens, linear.heads, 1))
    if linear.kind != "kda":
        found["gate"] = rng.normal(size=values)
    return found


def share(array: np.ndarray, heads: int, ranks: int, rank: int) -> np.ndarray:
    """The heads of a rank, or of keys those that serve them."""
    first, last = heads * rank // ranks, heads * (rank + 1) // ranks - 1
    serves = heads // array.shape[1]
    return array[:, first // serves : last // serves + 1]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS), st.sampled_from([1, 2, 3, 4, 6, 12]), st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2, 3, 4]), st.sampled_from([2, 3, 4, 6, 8]),
)  # fmt: skip
def test_exchanged_heads_give_the_outputs_of_all(kind, key_heads, serves, tensor, context) -> None:
    heads = key_heads * (1 if kind == "kda" else serves)
    model, ranks = lone(kind, key_heads, heads), tensor * context
    layout = Layout(tensor=tensor, context=context)
    bounds = [heads * rank / ranks for rank in range(ranks + 1)]
    groups = [  # of keys, by each rank's heads
        {head * key_heads // heads for head in range(int(one), int(other))}
        for one, other in pairwise(bounds)
    ]
    even = all(bound.is_integer() for bound in bounds) and key_heads % tensor == 0
    alone = even and sum(map(len, groups)) == key_heads  # no two ranks need the same keys
    shared = even and kind == "mamba-2" and all(len(one) == 1 for one in groups)
    if not (alone or shared):
        with pytest.raises(InputError, match="linear attention's"):
            check_layout(model, layout)
        return
    check_layout(model, layout)
    tokens = 24
    inputs = drawn(model.linear, tokens)
    whole, parts = scan(inputs), np.split(np.arange(tokens), context)
    sent, back = np.zeros((tensor, context)), np.zeros((tensor, context))
    found = np.zeros_like(whole)
    for shard in range(tensor):
        for reader in range(context):
            rank = shard * context + reader
            own: dict[str, list[np.ndarray]] = {name: [] for name in inputs}
            for sender, at in enumerate(parts):
                for name, array in inputs.items():
                    piece = share(array[at], heads, ranks, rank)
                    own[name].append(piece)
                    sent[shard, sender] += piece.size * (sender != reader)
            out = scan({name: np.concatenate(pieces) for name, pieces in own.items()})
            for owner, at in enumerate(parts):
                piece = out[at]
                found[at, heads * rank // ranks : heads * (rank + 1) // ranks] = piece
                back[shard, reader] += piece.size * (owner != reader)
    np.testing.assert_allclose(found, whole, rtol=1e-12)
    layers = layer_communications(training_of(model, layout, sequence=tokens), 0)
    for when in ("forward", "backward"):
        there, again = [m for m in layers if m.group == "context" and m.when == when]
        for message, counted in ((there, sent), (again, back)):
            assert (message.kind, message.ranks) == ("alltoall", context)
            each = message.size * message.count * (context - 1) / context / model.dense_bytes
            np.testing.assert_allclose(counted, each)


@pytest.mark.parametrize(("name", "tensor", "context"), [
    ("qwen3-next-80b-a3b", 2, 8), ("nemotron-3-nano-30b-a3b", 1, 4),
    ("nemotron-3-nano-30b-a3b", 2, 16), ("granite-4.0-h-small", 1, 16),
    ("kimi-linear-48b-a3b", 2, 4),
])  # fmt: skip
def test_presets_send_what_megatron_core_does(name, tensor, context) -> None:
    """The widths of its ``in_proj``, with groups repeated by ``group_repeat_count``."""
    model = get_transformer(name)
    if name.startswith("granite"):  # one group, which no tensor ranks share
        assert model.linear.key_heads == 1
    linear, tokens = model.linear, 65536 / context
    keys, values = linear.key_heads * linear.key_width, linear.heads * linear.value_width
    if linear.kind == "mamba-2":
        groups = max(linear.key_heads, context * tensor)
        there = 2 * values + 2 * groups * linear.key_width + linear.heads
    elif linear.kind == "kda":
        there = 4 * keys + linear.heads
    else:
        there = 2 * keys + 2 * values + 2 * linear.heads
    for recompute, passes in (("none", 2), ("full", 3)):
        layout = Layout(tensor=tensor, context=context, recompute=recompute)
        messages = layer_communications(training_of(model, layout, sequence=65536), 0)
        found = [message for message in messages if message.group == "context"]
        sizes = [2 * tokens * wide / tensor for wide in (there, values)]
        assert [message.size for message in found] == pytest.approx(sizes * passes)
        assert all(message.kind == "alltoall" and message.exposed for message in found)
    full = next(layer for layer in range(model.layers) if model.has_attention(layer))
    kinds = {
        m.kind
        for m in layer_communications(training_of(model, layout), full)
        if m.group == "context"
    }
    assert kinds == {"ring"}


@pytest.mark.parametrize("model", [HYBRID, ONE_PART], ids=lambda model: model.name)
@pytest.mark.parametrize("tensor", [1, 2])
def test_ranks_share_out_work_and_memory(model, tensor) -> None:
    """Fewer heads of more tokens; nothing changes but for what is put in order."""
    one, two = Layout(tensor=tensor), Layout(tensor=tensor, context=2)
    before, after = (layer_costs(training_of(model, layout), 0) for layout in (one, two))
    for name in ("forward", "backward_input"):
        works = [getattr(costs, name) for costs in (before, after)]
        assert works[1].linear_flops == pytest.approx(works[0].linear_flops / 2)
        assert works[1].linear_traffic == pytest.approx(works[0].linear_traffic / 2)
        linear, tokens = model.linear, model.sequence / 2
        exchanged = linear.projected + linear.values
        ordered = 4 * 2 * tokens * exchanged / tensor
        assert works[1].traffic == pytest.approx(works[0].traffic / 2 + ordered)
    kept = [layer_activations(training_of(model, layout), 0).rest for layout in (one, two)]
    assert kept[1] == pytest.approx(kept[0] / 2)


def test_groups_that_are_repeated_cost_more() -> None:
    """Of 4 groups on 8 ranks each rank convolves, keeps and multiplies a whole one."""
    linear = ONE_PART.linear
    wide = replace(ONE_PART, linear=replace(linear, key_heads=8))
    layout = Layout(tensor=1, context=8)
    assert layer_activations(training_of(ONE_PART, layout), 0) == layer_activations(
        training_of(wide, layout), 0
    )
    cores = [layer_costs(training_of(model, layout), 0).forward for model in (ONE_PART, wide)]
    assert cores[0].linear_flops == cores[1].linear_flops
    alone = layer_costs(training_of(ONE_PART, Layout()), 0).forward.linear_flops / 8
    square = 2 * linear.chunk * linear.key_width * 4  # operations of a token, of 4 groups more
    assert cores[0].linear_flops - alone == pytest.approx(ONE_PART.sequence / 8 * square)


def test_nothing_hides_the_exchange() -> None:
    layout = Layout(tensor=2, context=2, sequence_parallel=True)
    links = Links(4, 1e11, 1e10, intra_latency=1e-6)
    rates = rates_of("h100")
    with_all, without = (
        layer_seconds(training_of(ONE_PART, layout), 0, rates, links, without=frozenset(left))
        for left in ((), ("context",))
    )
    sent = {"forward": 0.0, "backward": 0.0}
    for message in layer_communications(training_of(ONE_PART, layout), 0):
        if message.group == "context":
            sent[message.when] += communication_seconds(message, layout, links)
    assert with_all.forward - without.forward == pytest.approx(sent["forward"])
    assert with_all.backward - without.backward == pytest.approx(sent["backward"])


def test_one_layer_on_a_switch_takes_what_a_sum_by_hand_does() -> None:
    """Four servers of two GPUs: a context group of four, and two ranks that share samples."""
    linear = LinearAttention("gated-deltanet", 4, 8, 256, 128)
    model = replace(lone("gated-deltanet", 4, 8, sequence=2048), linear=linear)
    layout = Layout(data=2, context=4, zero=0, sequence_parallel=False)
    server, rate = Server(get_accelerator("h100"), 2, 150e9), 1e9
    placement = Placement(layout, 2, ("data", "context", "pipeline"))
    loads = loads_of(training_of(model, placement.layout), placement, rates_of("h100"), server)
    none = tuple(each.times(0.0) for each in loads.gradients)
    loads = replace(loads, gradients=none, update_s=0.0)
    tasks = iteration_tasks(placement, schedule_of(layout, 2), loads)
    fabric = Fabric("switch", *ideal_switch(4, rate, 0.0))
    # A server has a rank of each of two groups, which send to three others; 0.8 of a NIC.
    widths = 2 * (2 * 4 * 256 + 2 * 8 * 128 + 2 * 8 + 8 * 128)
    pass_s = 2 * 3 / 4 * 2048 / 4 * widths / 0.8 / rate
    expected = float(loads.seconds.sum()) + 2 * pass_s
    # Messages are whole packets, of which the last one goes over two links.
    assert simulate(fabric, tasks).makespan == pytest.approx(expected, rel=4e-3)
    moves = tasks.kind == TaskKind.TRANSFER
    assert moves.sum() == 2 * 2 * 4 * 3  # passes, groups, pairs of servers
    assert not (tasks.kind == TaskKind.ALL_GATHER).any()


def test_degrees_of_context_are_those_that_share_out_heads() -> None:
    found = enumerate_layouts(LayoutSpace(HYBRID, 16, 8, 16, 8192))
    pairs = {(one.tensor, one.context) for one in found}
    assert pairs == {(1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2)}  # 4 heads of keys
    # Four groups of Mamba-2, and sixteen heads.
    repeated = enumerate_layouts(LayoutSpace(ONE_PART, 16, 8, 16, 16384))
    assert {one.context for one in repeated if one.tensor == 4} == {1, 2, 4}
    some = LayoutSpace(HYBRID, 16, 8, 16, 8192, Choices(context=(2, 8)))
    assert {one.context for one in enumerate_layouts(some)} == {2}


@pytest.mark.parametrize(
    ("model", "layout", "message"),
    [
        (HYBRID, Layout(context=8),
         "tensor . context is 8, which does not divide linear attention's key_heads = 4 of hybrid"),
        (HYBRID, Layout(tensor=4, context=2), "tensor . context is 8, which does not divide"),
        (ONE_PART, Layout(context=32), "does not divide linear attention's heads = 16 of one part"),
        (lone("mamba-2", 2, 12), Layout(context=3),
         "is 3, but linear attention's key_heads = 2 of lone can be neither split nor repeated"),
    ],
)  # fmt: skip
def test_degrees_that_do_not(model, layout, message) -> None:
    with pytest.raises(InputError, match=message):
        check_layout(model, layout)


def test_asked_degrees_that_do_not_are_said() -> None:
    with pytest.raises(InfeasibleError, match=r"with context 8; tensor . context is 8, which does"):
        enumerate_layouts(LayoutSpace(HYBRID, 8, 8, 8, 8192, Choices(context=(8,))))


def test_published_flops_do_not_depend_on_context() -> None:
    for context in (1, 2, 4):
        layout = Layout(context=context)
        whole = layer_costs(training_of(HYBRID, layout), 0).forward
        assert context * whole.flops == pytest.approx(
            layer_costs(training_of(HYBRID, Layout()), 0).forward.flops
        )
    assert model_flops(HYBRID, 2, HYBRID.sequence) == 2 * model_flops(HYBRID, 1, HYBRID.sequence)
