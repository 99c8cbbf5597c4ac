"""Attention beside the feed-forward part: one sum of both, against arrays and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.taskgraph import TaskKind
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.collectives import (
    Communication,
    layer_communications,
    pipeline_send,
    step_communications,
)
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import STACKS, Implementation, get_stack
from parallelism.transformers.iteration import iteration_time
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import sent_bytes, switched_links
from parallelism.transformers.loads import loads_of
from parallelism.transformers.memory import memory_use
from parallelism.transformers.operators import model_graph
from parallelism.transformers.placed_tasks import iteration_tasks
from parallelism.transformers.placement import Placement
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.stages import stage_weights
from tests.helpers.small_transformers import GPT_22B, LATENT, LLAMA3_8B, MIXTRAL, gpt
from tests.helpers.trainings import training_of

SHARED = replace(LATENT, attention=MIXTRAL.attention)
MODELS = [GPT_22B, LLAMA3_8B, LATENT, MIXTRAL, SHARED]


def beside(model: Transformer, norms: int = 2) -> Transformer:
    return replace(model, parallel=True, layer_norms=norms)


def sent(messages: tuple[Communication, ...], when: str, group: str = "tensor") -> float:
    return sum(
        m.count * sent_bytes(m.kind, m.size, m.ranks)
        for m in messages
        if m.when == when and m.group == group
    )


def normed(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)


def to_input(x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Gradient of a norm's input."""
    y = normed(x)
    scale = np.sqrt(((x - x.mean(axis=1, keepdims=True)) ** 2).mean(axis=1, keepdims=True) + 1e-5)
    less = gradient.mean(axis=1, keepdims=True) + y * (gradient * y).mean(axis=1, keepdims=True)
    return (gradient - less) / scale


@pytest.mark.parametrize("norms", [1, 2])
def test_one_gathered_input_and_one_sum_give_the_layer_and_its_gradient(norms) -> None:
    """Two dense parts (as attention is across ranks) of four ranks, split by columns and rows."""
    ranks, tokens, hidden, width = 4, 8, 12, 16
    draw = np.random.default_rng(0).standard_normal
    x, gradient = draw((tokens, hidden)), draw((tokens, hidden))
    weights = [1.0, 1.0] if norms == 1 else [draw(hidden), draw(hidden)]
    into, out = [draw((hidden, width)) for _ in "ab"], [draw((width, hidden)) for _ in "ab"]
    # Each rank normalises its own tokens; both parts read what is gathered of them, once.
    gathered = np.concatenate([normed(own) for own in np.split(x, ranks)])
    partial, back = np.zeros((ranks, tokens, hidden)), np.zeros((ranks, tokens, hidden))
    for rank in range(ranks):
        for weight, a, b in zip(weights, into, out, strict=True):
            columns, rows = np.split(a, ranks, axis=1)[rank], np.split(b, ranks)[rank]
            partial[rank] += np.tanh(gathered * weight @ columns) @ rows
            slope = 1 - np.tanh(gathered * weight @ columns) ** 2
            back[rank] += (gradient @ rows.T * slope) @ columns.T * weight
    parts = [
        (np.tanh(normed(x) * w @ a), w, a, b) for w, a, b in zip(weights, into, out, strict=True)
    ]
    whole = x + sum(y @ b for y, _, _, b in parts)
    assert x + partial.sum(axis=0) == pytest.approx(whole)
    each = [to_input(x, (gradient @ b.T * (1 - y**2)) @ a.T * w) for y, w, a, b in parts]
    # One sum, of gradients before the norms or after them, as norms are linear in these.
    assert to_input(x, back.sum(axis=0)) == pytest.approx(sum(each))
    assert sum(to_input(x, own) for own in back) == pytest.approx(sum(each))
    model = replace(beside(gpt(1, hidden, 4), norms), sequence=tokens)
    found = layer_communications(training_of(model, Layout(tensor=ranks)), 0)
    received = (ranks - 1) * gathered[: tokens // ranks].size
    assert sent(found, "forward") == 2 * (received + partial[0].size * (ranks - 1) / ranks)


@pytest.mark.parametrize("model", [GPT_22B, LLAMA3_8B], ids=lambda model: model.name)
@pytest.mark.parametrize("norms", [1, 2])
@pytest.mark.parametrize("split", [False, True])
def test_a_layer_sums_once_a_direction_for_half_of_the_bytes(model, norms, split) -> None:
    layout = Layout(tensor=8, microbatch=2, sequence_parallel=split, recompute="full")
    found = layer_communications(training_of(beside(model, norms), layout), 0)
    after = layer_communications(training_of(model, layout), 0)
    whole = 2 * 2 * model.sequence * model.hidden
    for when in ("forward", "recompute", "backward"):
        assert sent(found, when) == pytest.approx(2 * 7 / 8 * whole)
        assert sent(found, when) == pytest.approx(sent(after, when) / 2)
        kinds = sorted(m.kind for m in found if m.when == when)
        assert kinds == (["allgather", "reducescatter"] if split else ["allreduce"])
    assert sent(found, "weight") == (7 / 8 * whole if split else 0.0)
    assert layer_communications(training_of(beside(model, norms), Layout()), 0) == ()


def test_norms_after_the_parts_need_each_output_whole() -> None:
    layout = Layout(tensor=8)
    after = replace(GPT_22B, layer_norms=4)
    assert layer_communications(training_of(beside(GPT_22B, 4), layout), 0) == layer_communications(
        training_of(after, layout), 0
    )


def test_experts_send_as_ever_and_shared_ones_are_summed_with_attention() -> None:
    layout = Layout(tensor=4, data=8, expert=8)
    assert layer_communications(training_of(beside(MIXTRAL), layout), 0) == layer_communications(
        training_of(MIXTRAL, layout), 0
    )
    one, two = (layer_communications(training_of(m, layout), 1) for m in (beside(SHARED), SHARED))
    whole = 3 / 4 * 2 * SHARED.sequence * SHARED.hidden
    for when, times in (("forward", 2), ("backward", 2), ("weight", 1)):
        assert sent(two, when) - sent(one, when) == pytest.approx(times * whole)
        assert sent(one, when, "expert") == sent(two, when, "expert")


@pytest.mark.parametrize("rank", [0, 384])
def test_latent_vectors_are_gathered_beside_one_input(rank) -> None:
    latent = LATENT.attention.latent
    assert latent is not None
    attention = replace(LATENT.attention, latent=replace(latent, query_rank=rank))
    model = beside(replace(LATENT, attention=attention))
    found = layer_communications(training_of(model, Layout(tensor=4)), 0)
    width = latent.kv_rank + latent.rope_width + rank + model.hidden
    assert sent(found, "weight") == pytest.approx(3 / 4 * 2 * model.sequence * width)
    assert sent(found, "forward") == pytest.approx(
        3 / 4 * 2 * model.sequence * (width + model.hidden)
    )


@pytest.mark.parametrize("context", [1, 4])
def test_context_groups_pass_as_many_keys_and_values(context) -> None:
    layout = Layout(tensor=2, context=context)
    one, two = (
        layer_communications(training_of(m, layout), 0) for m in (beside(LLAMA3_8B), LLAMA3_8B)
    )
    for when in ("forward", "backward"):
        assert sent(one, when, "context") == sent(two, when, "context")
        assert 2 * sent(one, when) == pytest.approx(sent(two, when))


@pytest.mark.parametrize("tensor", [1, 4])
def test_inputs_are_kept_once(tensor) -> None:
    """Of the norms one input; of a norm that serves both parts one output."""
    layout = Layout(tensor=tensor)
    own = 2 * GPT_22B.sequence * GPT_22B.hidden / tensor
    kept = layer_activations(training_of(GPT_22B, layout), 0).rest
    for norms, inputs in ((1, 2), (2, 1)):
        one = layer_activations(training_of(beside(GPT_22B, norms), layout), 0).rest
        assert kept - one == pytest.approx(inputs * own)
    gathers = Implementation(gathered_inputs=True)
    less = kept - layer_activations(training_of(beside(GPT_22B, 1), layout), 0).rest
    gathered = layer_activations(training_of(GPT_22B, layout, gathers), 0).rest
    gathered -= layer_activations(training_of(beside(GPT_22B, 1), layout, gathers), 0).rest
    assert gathered - less == pytest.approx((tensor - 1) * own)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_weights_and_work_are_those_of_the_sequential_model(model) -> None:
    layout, other = Layout(tensor=4, data=4, pipeline=2), beside(model)
    assert other.parameters == model.parameters
    assert stage_weights(other, layout) == stage_weights(model, layout)
    assert step_communications(training_of(other, layout), 4) == step_communications(
        training_of(model, layout), 4
    )
    assert pipeline_send(training_of(other, layout)) == pipeline_send(training_of(model, layout))
    assert model_flops(other, 8, other.sequence) == model_flops(model, 8, model.sequence)
    assert layer_costs(training_of(other, layout), 1) == layer_costs(training_of(model, layout), 1)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from(sorted(STACKS)), st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.booleans(),
    st.sampled_from(["none", "selective", "full"]), st.sampled_from([2, 4]),
)  # fmt: skip
def test_a_parallel_model_is_never_slower_nor_larger(
    model, stack, tensor, context, pipeline, split, recompute, norms
) -> None:
    assume(not (split and tensor == 1))
    layout = Layout(
        tensor, context, 4, pipeline, sequence_parallel=split, recompute=recompute, zero=1,
        expert=4 if model.experts else 1,
    )  # fmt: skip
    implementation = get_stack(stack)
    times, bytes_held = [], []
    for one in (beside(model, norms), replace(model, layer_norms=norms)):
        links = switched_links(8, 450e9, 50e9)
        training, schedule = training_of(one, layout, implementation), schedule_of(layout, 16)
        times.append(iteration_time(training, schedule, rates_of("h100"), links))
        uses = memory_use(training, schedule)
        bytes_held.append(max(use.total for use in uses))
    assert times[0] <= times[1]
    assert bytes_held[0] < bytes_held[1]


@pytest.mark.parametrize("split", [False, True])
def test_tasks_between_servers_carry_half(split) -> None:
    """Of a tensor group on two servers; the tied embedding's and the head's sums are as they were.

    Long messages reach 0.8 of a NIC.
    """
    model, layout = gpt(8, 256, 8, 1000), Layout(8, 1, 2, 1, sequence_parallel=split, zero=0)
    server = Server(get_accelerator("h100"), 4, 150e9)
    placement, order = Placement(layout, 4), schedule_of(layout, 16)
    carried = []
    for one in (beside(model, 1), model):
        loads = loads_of(training_of(one, placement.layout), placement, rates_of("h100"), server)
        tasks = iteration_tasks(placement, order, loads)
        sums = (tasks.kind == TaskKind.ALLREDUCE) & (tasks.phase != 5)
        gathers = (tasks.kind == TaskKind.ALL_GATHER) | (tasks.kind == TaskKind.REDUCE_SCATTER)
        carried.append((float(tasks.size[sums].sum()), float(tasks.size[gathers].sum())))
    # Seven of eight chunks go from each server to the other, of a ring of servers one of two.
    whole = 2 * 2048 * 256 / 0.8 * (7 / 8) / (1 / 2)
    # Of two groups in 8 microbatches, 8 layers forward and backward; inputs gathered again.
    assert carried[1][0] - carried[0][0] == pytest.approx(2 * 8 * 8 * 2 * whole)
    assert carried[1][1] - carried[0][1] == pytest.approx(2 * 8 * 8 * whole * split)


@pytest.mark.parametrize("norms", [1, 2])
def test_the_operators_of_both_parts_read_one_input_and_are_added_once(norms) -> None:
    graph = model_graph(beside(gpt(2, 64, 4, 100), norms))
    assert graph.parameters == beside(gpt(2, 64, 4, 100), norms).parameters

    def read(name: str) -> list[str]:
        return [graph.operators[i].name for i in graph.operators[graph.index(name)].inputs]

    first = "layer_1_attention_norm"
    second = first if norms == 1 else "layer_1_feed_forward_norm"
    assert read("layer_1_attention") == [first]
    assert read("layer_1_expand") == [second]
    assert read(first) == read(second) == ["layer_0_feed_forward_add"]
    assert read("layer_1_feed_forward_add") == [
        "layer_0_feed_forward_add", "layer_1_attention", "layer_1_contract",
    ]  # fmt: skip
