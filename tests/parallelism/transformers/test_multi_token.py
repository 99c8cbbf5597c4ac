"""Modules for multi-token prediction: what they add, where, and to whom it is told."""

from dataclasses import replace

import numpy as np
import pytest
from small_transformers import DENSE_MODULES, FURTHER_TOKENS, LATENT, LLAMA3_8B
from trainings import training_of

from codesign_base import InputError
from parallelism.transformers.activations import layer_activations, part_activations
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import SlidingWindow
from parallelism.transformers.balance import layer_loads
from parallelism.transformers.collectives import (
    end_communications,
    layer_communications,
    step_communications,
)
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.family import LayoutFamily
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.huggingface import transformer_from_config
from parallelism.transformers.implementation import MEGATRON_CORE
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import Links, sent_bytes
from parallelism.transformers.load import load_transformer
from parallelism.transformers.memory import memory_use
from parallelism.transformers.operators import model_graph
from parallelism.transformers.pass_seconds import all_part_seconds
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.stages import part_weights, parts_of, stage_weights
from topoopt.bounds.layouts import layout_bound, passes_bound
from topoopt.bounds.relaxation import Wirings
from topoopt.problem.job import Job, nvlink_server

DEEPSEEK = load_transformer("deepseek-v3")
BOTH = load_transformer("deepseek-v3", mtp_layers=1)


def test_the_module_of_deepseek_v3_has_the_parameters_that_its_authors_print() -> None:
    """11.5 billion of its own, and 2.4 billion a token with the shared embedding and head."""
    assert (BOTH.parameters - DEEPSEEK.parameters) / 1e9 == pytest.approx(11.5, rel=0.02)
    shared = 2 * DEEPSEEK.vocabulary * DEEPSEEK.hidden
    active = BOTH.active_parameters - DEEPSEEK.active_parameters + shared
    assert active / 1e9 == pytest.approx(2.4, rel=0.06)


@pytest.mark.parametrize("model", [LLAMA3_8B, LATENT])
@pytest.mark.parametrize("count", [1, 3])
def test_each_module_computes_a_layer_a_head_and_a_projection(model, count) -> None:
    more = replace(model, mtp_layers=count)
    deeper = replace(model, layers=model.layers + 1)
    layer = model_flops(deeper, 5, deeper.sequence) - model_flops(model, 5, model.sequence)
    tokens = 5 * model.sequence
    head = 3 * 2.0 * tokens * model.hidden * model.vocabulary
    projection = 3 * 2.0 * tokens * 2 * model.hidden**2
    added = model_flops(more, 5, more.sequence) - model_flops(model, 5, model.sequence)
    assert added == pytest.approx(count * (layer + head + projection), rel=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble-v"])
def test_only_the_part_with_the_head_takes_longer(schedule) -> None:
    chunks = 1 + (schedule == "zero-bubble-v")
    layout = Layout(tensor=2, pipeline=2, schedule=schedule, virtual_stages=chunks)
    server = nvlink_server("h100", 8)
    rates, links = rates_of("h100"), Links.of_server(server, 50e9)
    plain, more = (
        np.array([
            (one.forward, one.backward, one.weight)
            for one in all_part_seconds(training_of(model, layout), rates, links)
        ])
        for model in (LATENT, FURTHER_TOKENS)
    )  # fmt: skip
    assert np.array_equal(plain[:-1], more[:-1])
    assert (more[-1] > plain[-1]).all()
    ends = [
        layer_loads(training_of(model, layout, MEGATRON_CORE), rates, server)
        for model in (LATENT, FURTHER_TOKENS)
    ]
    assert ends[0][0] == ends[1][0]
    # Two layers, and two heads like the one that there is.
    assert ends[1][1] >= 2 + 3 * ends[0][1] - 1


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_part_with_the_head_keeps_more(recompute) -> None:
    layout = Layout(pipeline=2, recompute=recompute)
    kept = [
        part_activations(training_of(model, layout), parts_of(model, layout)[-1])
        for model in (LATENT, FURTHER_TOKENS)
    ]
    one = layer_activations(training_of(LATENT, layout), LATENT.layers - 1)
    layer = one.input if recompute == "full" else one.rest + one.core
    states = LATENT.sequence * LATENT.hidden * 2
    # Inputs of two norms, of the projection, of the last norm and of the output projection.
    each = layer + (2 + 2 + 1 + 1) * states + 4 * LATENT.sequence * LATENT.vocabulary
    assert kept[1] - kept[0] == pytest.approx(2 * each)


@pytest.mark.parametrize("split", [False, True])
def test_tensor_ranks_gather_around_the_projection(split) -> None:
    """As Megatron-Core's column-parallel projection, whose output is gathered, does."""
    layout = Layout(tensor=4, pipeline=2, sequence_parallel=split)

    def sent(model: Transformer, when: str) -> float:
        last = parts_of(model, layout)[-1]
        messages = end_communications(training_of(model, layout), last)
        return sum(m.count * sent_bytes(m.kind, m.size, 4) for m in messages if m.when == when)

    whole = 2 * LATENT.sequence * LATENT.hidden
    loss = 3 * 2 * 4 * LATENT.sequence
    # In shares of three quarters of a buffer; an AllReduce is two of them.
    forward = (1 + 1 + 2 + 1) * whole + loss if split else (2 + 1) * whole + loss
    backward = (1 + 2 + 1) * whole if split else 2 * (1 + 2) * whole
    weight = (1 + 1 + 2) * whole if split else 0
    for when, size in (("forward", forward), ("backward", backward), ("weight", weight)):
        more = sent(FURTHER_TOKENS, when) - sent(LATENT, when)
        assert more == pytest.approx(2 * 0.75 * size), when


def test_stages_at_both_ends_sum_the_embedding_that_both_have() -> None:
    def sums(model: Transformer, layout: Layout) -> list[bool]:
        by_stage = step_communications(training_of(model, layout), 8)
        return [any(m.group == "embedding" for m in stage) for stage in by_stage]

    assert not LATENT.tied
    assert sums(LATENT, Layout(pipeline=3, data=2)) == [False] * 3
    assert sums(FURTHER_TOKENS, Layout(pipeline=3, data=2)) == [True, False, True]
    folded = Layout(pipeline=2, data=2, schedule="zero-bubble-v", virtual_stages=2)
    assert sums(FURTHER_TOKENS, folded) == [False, False]


def test_layers_recompute_as_others_do() -> None:
    layout = Layout(recompute="full")
    assert layer_costs(training_of(FURTHER_TOKENS, layout), 3) == layer_costs(
        training_of(LATENT, layout), 3
    )


@pytest.mark.parametrize("plain", [FURTHER_TOKENS, DENSE_MODULES])
def test_a_module_that_is_used_again_has_the_weights_of_one_and_the_work_of_many(plain) -> None:
    again, one = replace(plain, mtp_repeated=True), replace(plain, mtp_layers=1)
    assert (again.mtp_modules, one.mtp_modules, plain.mtp_modules) == (1, 1, 2)
    assert replace(again, mtp_layers=0).mtp_modules == 0
    layout, batch = Layout(pipeline=2, tensor=2, data=4, expert=4), 32
    assert again.parameters == one.parameters < plain.parameters
    assert again.active_parameters == one.active_parameters
    assert stage_weights(again, layout) == stage_weights(one, layout)
    assert step_communications(training_of(again, layout), 8) == step_communications(
        training_of(one, layout), 8
    )
    assert model_flops(again, batch, again.sequence) == model_flops(plain, batch, plain.sequence)
    rates, links = rates_of("h100"), Links.of_server(nvlink_server("h100", 8), 50e9)
    seconds = [
        all_part_seconds(training_of(model, layout), rates, links) for model in (again, plain)
    ]
    assert seconds[0] == seconds[1]
    uses = [
        memory_use(training_of(model, layout), schedule_of(layout, batch))[-1]
        for model in (again, plain, one)
    ]
    assert (uses[0].activations, uses[0].buffers) == (uses[1].activations, uses[1].buffers)
    assert uses[0].states == uses[2].states < uses[1].states
    # Alone it is a module like any other.
    single = replace(one, mtp_repeated=True)
    assert memory_use(training_of(single, layout), schedule_of(layout, batch)) == memory_use(
        training_of(one, layout), schedule_of(layout, batch)
    )
    assert all_part_seconds(training_of(single, layout), rates, links) == all_part_seconds(
        training_of(one, layout), rates, links
    )


def test_operators_of_a_module_that_is_used_again_have_no_weights_of_their_own() -> None:
    again = model_graph(replace(FURTHER_TOKENS, mtp_repeated=True))
    plain = model_graph(FURTHER_TOKENS)
    own = [[op for op in graph.operators if op.parameters] for graph in (again, plain)]
    assert {op.name for op in own[1]} - {op.name for op in own[0]} == {
        op.name for op in own[1] if op.name.startswith("mtp_1_")
    }
    assert [replace(op, parameters=0) for op in again.operators] == [
        replace(op, parameters=0) for op in plain.operators
    ]


def test_modules_may_be_dense_after_a_layer_with_experts() -> None:
    joining = 3 * LATENT.hidden + 2 * LATENT.hidden**2
    for active in (False, True):
        counted = [
            model.active_parameters if active else model.parameters
            for model in (LATENT, FURTHER_TOKENS, DENSE_MODULES)
        ]
        layers = [LATENT.layer_parameters(layer, active=active) for layer in (3, 0)]
        assert [more - counted[0] for more in counted[1:]] == [2 * (joining + x) for x in layers]
    deeper = replace(LATENT, layers=5, experts=replace(LATENT.experts, first_dense=2))
    shallow = model_flops(LATENT, 5, LATENT.sequence)
    layer = model_flops(deeper, 5, deeper.sequence) - shallow
    with_experts = model_flops(replace(LATENT, layers=5), 5, LATENT.sequence) - shallow
    less = model_flops(FURTHER_TOKENS, 5, FURTHER_TOKENS.sequence) - model_flops(
        DENSE_MODULES, 5, DENSE_MODULES.sequence
    )
    assert less == pytest.approx(2 * (with_experts - layer), rel=1e-12)


def test_dense_modules_exchange_and_keep_what_a_dense_layer_does() -> None:
    layout = Layout(pipeline=2, tensor=2, data=4, expert=4)
    groups = [
        [message.group for message in layer_communications(training_of(model, layout), 4)]
        for model in (FURTHER_TOKENS, DENSE_MODULES)
    ]
    assert "expert" in groups[0]
    assert "expert" not in groups[1]
    dense, more = training_of(DENSE_MODULES, layout), training_of(FURTHER_TOKENS, layout)
    for costs in (layer_costs, layer_activations, layer_communications):
        assert costs(dense, 4) == costs(dense, 0)
        assert costs(more, 4) == costs(more, 3)
    plain, *others = (
        part_weights(model, parts_of(model, layout)[-1], layout)
        for model in (LATENT, FURTHER_TOKENS, DENSE_MODULES)
    )
    assert [each.expert > plain.expert for each in others] == [True, False]
    assert others[1].expert == plain.expert
    part = parts_of(DENSE_MODULES, layout)[-1]
    assert part.kinds(DENSE_MODULES) == ((0, 2), (1, part.layers))


def test_dense_modules_slide_as_the_last_layer_does() -> None:
    """K-EXAONE's only dense layer slides, its module does not: no layer of the model is like it."""
    window = SlidingWindow(64, (3,))
    model = replace(DENSE_MODULES, window=window)
    assert (model.slides(0), model.slides(3), model.slides(4)) == (True, False, False)
    part = parts_of(model, Layout())[0]
    assert part.kinds(model) == ((4, 2), (0, 1), (3, 1), (1, 2))


def test_dense_modules_need_experts_elsewhere() -> None:
    with pytest.raises(InputError, match="mtp_dense is True, but no layer has experts"):
        replace(LLAMA3_8B, mtp_layers=1, mtp_dense=True)
    with pytest.raises(InputError, match="mtp_dense is 1"):
        replace(LATENT, mtp_dense=1)


def test_bounds_count_the_modules() -> None:
    layout, wirings = Layout(pipeline=2, data=4), Wirings(1, 4, 50e9, 1e-6)
    found = []
    for model in (LATENT, FURTHER_TOKENS, DENSE_MODULES):
        job = Job(
            model, global_batch=32, server=nvlink_server("h100", 8),
            implementation=replace(MEGATRON_CORE, iteration_s=0.0),
        )  # fmt: skip
        family = job.family(1)
        assert isinstance(family, LayoutFamily)
        schedule = schedule_of(layout, 32)
        passes = passes_bound(family, layout, schedule).seconds
        assert passes <= layout_bound(family, wirings, layout).seconds
        found.append(passes)
    assert found[1] > 1.3 * found[0]
    assert found[0] < found[2] != found[1]


def test_configurations_say_how_many_there_are() -> None:
    config = {
        "model_type": "deepseek_v3", "num_hidden_layers": 3, "hidden_size": 64,
        "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 99, "kv_lora_rank": 8,
        "first_k_dense_replace": 1, "moe_intermediate_size": 16, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "max_position_embeddings": 128,
    }  # fmt: skip

    def read(**more: object) -> int:
        return transformer_from_config(config | more, "configuration 'x'", name="x").mtp_layers

    assert (read(), read(num_nextn_predict_layers=0), read(num_nextn_predict_layers=2)) == (0, 0, 2)
    with pytest.raises(InputError, match="'num_nextn_predict_layers' is -1; give a whole number"):
        read(num_nextn_predict_layers=-1)


def test_minimax_says_how_many_modules_of_a_layer_it_has() -> None:
    config = {
        "model_type": "minimax_m2", "num_hidden_layers": 3, "hidden_size": 64,
        "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 96,
        "vocab_size": 99, "num_local_experts": 4, "num_experts_per_tok": 2, "num_mtp_modules": 3,
        "mtp_transformer_layers": 1,
    }  # fmt: skip

    def read(**more: object) -> int:
        return transformer_from_config(config | more, "configuration 'x'", name="x").mtp_layers

    assert (read(), read(use_mtp=True), read(use_mtp=False)) == (3, 3, 0)
    with pytest.raises(InputError, match="'mtp_transformer_layers' is 2; only modules of one"):
        read(mtp_transformer_layers=2)


@pytest.mark.parametrize(("name", "count"), [("vit-b-16", 1), ("llama3-8b", -1), ("gpt2", 10**6)])
def test_models_that_cannot_have_them_are_refused(name, count) -> None:
    with pytest.raises(InputError, match=f"mtp_layers is {count}"):
        load_transformer(name, mtp_layers=count)
