"""Attention to chosen keys: parameters, kernels, memory, messages, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from counted_configs import COUNTED_SPARSE
from published_configs import PUBLISHED, parse
from small_transformers import CHOSEN, HYBRID, LATENT
from trainings import training_of

from codesign_base import InputError
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention, Indexer, LatentAttention, SlidingWindow
from parallelism.transformers.attention_costs import attention_core, indexer_costs
from parallelism.transformers.collectives import layer_communications
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.implementation import MEGATRON_CORE, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.memory import memory_use
from parallelism.transformers.overrides import override
from parallelism.transformers.presets import TRANSFORMERS, describe, get_transformer
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.shares import layer_kinds
from parallelism.transformers.stages import layer_weights

PRESETS = {"deepseek-v3.2": "DeepSeek-V3.2", "glm-5": "GLM-5"}


def latent_of(model: Transformer) -> LatentAttention:
    assert model.attention.latent is not None
    return model.attention.latent


def with_indexer(model: Transformer, **changes: Any) -> Transformer:
    """Return a model whose indexer is another one."""
    latent = latent_of(model)
    assert latent.indexer is not None
    latent = replace(latent, indexer=replace(latent.indexer, **changes))
    return replace(model, attention=replace(model.attention, latent=latent))


# Counted with the classes of transformers 5.24.0, a layer's norms over the hidden width included;
# layers with experts have the biases of their routers besides.
@pytest.mark.parametrize(
    ("name", "layer", "parameters"),
    [
        ("deepseek-v3.2", 2, 597_442_816), ("deepseek-v3.2", 3, 11_521_245_440),
        ("deepseek-v3.2", 61, 11_521_245_440), ("glm-5", 0, 400_898_816),
        ("glm-5", 77, 9_877_404_416),
    ],
)  # fmt: skip
def test_parameters_of_layers(name: str, layer: int, parameters: int) -> None:
    model = TRANSFORMERS[name]
    bias = 256 if model.has_experts(layer) else 0
    assert model.layer_parameters(layer) in (parameters, parameters + bias)
    assert latent_of(TRANSFORMERS["deepseek-v3.2"]).indexer_parameters(7168) == 13_959_424


@pytest.mark.parametrize(("data", "parameters", "layers"), COUNTED_SPARSE)
def test_parameters_and_indexers_are_those_of_the_librarys_classes(
    data: dict[str, Any], parameters: int, layers: str
) -> None:
    model = parse(data)
    assert model.parameters == parameters
    assert "".join("sf"[model.has_indexer(layer)] for layer in range(model.layers)) == layers


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_configuration(name: str) -> None:
    model = get_transformer(name)
    read = parse(PUBLISHED[PRESETS[name]][0], sequence=model.sequence)
    assert model == replace(read, name=name, source=model.source, mtp_layers=0)
    assert "of latent attention to 2048 chosen keys" in describe(model)


def test_defaults_of_the_families() -> None:
    kept = (
        "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size",
        "intermediate_size", "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok",
        "num_nextn_predict_layers",
    )  # fmt: skip
    for name in PRESETS.values():
        data = PUBLISHED[name][0]
        bare = parse({field: data[field] for field in kept}, sequence=4096)
        assert bare == parse(data, sequence=4096)


def test_steps_say_which_layers_share() -> None:
    data = PUBLISHED["GLM-5"][0]
    indexer = parse(data | {"index_topk_freq": 4, "index_skip_topk_offset": 3}).indexer
    assert indexer is not None
    assert indexer.shared[:7] == (3, 4, 5, 7, 8, 9, 11)
    assert len(indexer.shared) == 57
    letters = "FFS" * 26
    listed = [{"F": "full", "S": "shared"}[letter] for letter in letters]
    assert parse(data | {"index_topk_pattern": letters}) == parse(data | {"indexer_types": listed})
    assert parse(data | {"index_topk_pattern": letters}).has_indexer(4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"indexer_types": ["full"] * 3},
            "'indexer_types' is ['full', 'full', 'full']; it names 3",
        ),
        (
            {"index_topk_pattern": "FX" * 39},
            "letter 1 (from 0) of field 'index_topk_pattern' is 'X'",
        ),
        ({"indexer_types": "FS" * 39}, "give a list of words"),
        ({"indexer_types": ["full", "none"] * 39}, "entry 1 (from 0) of field 'indexer_types' is"),
        ({"layer_types": ["full_attention"] * 78}, "only indexed_attention is known"),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 0}, "shared names layer 0"),
        ({"attention_bias": True}, "only latent attention without biases"),
        ({"index_topk": 0}, "'index_topk' is 0"),
    ],
)
def test_refused_configurations(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        parse(PUBLISHED["GLM-5"][0] | change)
    assert words in str(error.value)


def test_deepseek_shares_no_choice() -> None:
    with pytest.raises(InputError, match="'index_topk_freq' is 4; deepseek_v32 models are not"):
        parse(PUBLISHED["DeepSeek-V3.2"][0] | {"index_topk_freq": 4})


@pytest.mark.parametrize(("sequence", "keys"), [(12, 5), (12, 12), (12, 40), (9, 1)])
def test_the_share_counts_the_keys_of_each_token(sequence: int, keys: int) -> None:
    """Of all keys a token's own counts half, as where half of all scores count."""
    pairs = sum(token + 0.5 if token < keys else keys for token in range(sequence))
    assert Indexer(1, 1, keys).share(sequence) * sequence**2 == pytest.approx(pairs)


def test_flops_are_those_of_attention_to_chosen_latent_vectors() -> None:
    """It gives what attention by projected keys and values gives, behind a mask of the chosen."""
    tokens, keys, heads, width, rank, rope, value = 24, 6, 3, 4, 5, 2, 7
    rng = np.random.default_rng(3)
    queries = rng.normal(size=(heads, tokens, width + rope))
    latent, rotary = rng.normal(size=(tokens, rank)), rng.normal(size=(tokens, rope))
    up, out = rng.normal(size=(heads, rank, width)), rng.normal(size=(heads, rank, value))
    masked = np.where(np.tri(tokens, dtype=bool), rng.normal(size=(tokens, tokens)), -np.inf)
    flops = pairs = 0
    for token in range(tokens):
        chosen = np.argsort(masked[token])[::-1][: min(keys, token + 1)]
        pairs += len(chosen)
        shared = np.concatenate([latent[chosen], rotary[chosen]], axis=1)
        for head in range(heads):
            query = queries[head, token]
            absorbed = np.concatenate([up[head] @ query[:width], query[width:]])
            scores = np.exp(shared @ absorbed)
            found = (scores / scores.sum()) @ latent[chosen]
            flops += 2 * shared.size + 2 * latent[chosen].size
            plain = np.concatenate([latent[chosen] @ up[head], rotary[chosen]], axis=1) @ query
            weights = np.exp(plain) / np.exp(plain).sum()
            np.testing.assert_allclose(found @ out[head], weights @ (latent[chosen] @ out[head]))
    attention = Attention(
        heads, heads, width, latent=LatentAttention(rank, 3, rope, value, Indexer(2, 4, keys))
    )
    model = Transformer("small", 1, 8, attention, 8, 11, tokens)
    core = attention_core(training_of(model, Layout()))
    counted = model.score_share(0, tokens) * tokens**2
    assert core.forward.flops / counted == pytest.approx(flops / pairs)
    # Five products backward: three as wide as keys, two as values.
    assert core.backward_input.flops / counted == 2 * heads * (3 * (rank + rope) + 2 * rank)


def test_few_tokens_attend_as_without_an_indexer() -> None:
    for length in (64, 128):
        dense = attention_core(training_of(LATENT, Layout(), sequence=length))
        assert attention_core(training_of(CHOSEN, Layout(), sequence=length)) == dense
        more = indexer_costs(training_of(CHOSEN, Layout(), MEGATRON_CORE, sequence=length))
        whole = layer_costs(training_of(CHOSEN, Layout(), sequence=length), 1)
        assert whole.flops == pytest.approx(
            layer_costs(training_of(LATENT, Layout(), sequence=length), 1).flops + more.flops
        )
    assert attention_core(training_of(CHOSEN, Layout(), sequence=129)) != attention_core(
        training_of(LATENT, Layout(), sequence=129)
    )


def test_long_sequences_need_as_many_scores_as_keys_and_tokens() -> None:
    """Twice the tokens: twice the core, four times the indexer's scores."""
    core = [
        attention_core(training_of(CHOSEN, Layout(), sequence=s)).forward.flops
        for s in (4096, 8192)
    ]
    assert core[1] / core[0] == pytest.approx(2.0, rel=0.02)
    scores = [
        indexer_costs(training_of(CHOSEN, Layout(), MEGATRON_CORE, sequence=s)).forward
        for s in (4096, 8192, 16384)
    ]
    # Of a polynomial in the tokens four times its square is left, and the constant.
    flops = [one.attention_flops for one in scores]
    assert flops[2] - 4 * flops[1] + 4 * flops[0] == pytest.approx(4096**2 * 4 * 4 * 32, rel=0.02)


def test_an_indexer_by_hand() -> None:
    layout = Layout(tensor=2, context=2)
    costs = indexer_costs(training_of(CHOSEN, layout, MEGATRON_CORE, sequence=512))
    tokens, queries = 256, 4 * 32
    weights = 384 * queries + 1024 * 32 + 1024 * 4
    pairs, chosen = 256 * 512 / 2, (512 * 128 - 128**2 / 2) / 2
    projected = sum(gemm.flops for gemm in costs.forward.gemms)
    assert projected == 2 * tokens * weights
    assert costs.backward_weight.flops == projected
    assert not costs.backward_input.gemms  # its inputs get no gradients
    learnt = 2 * chosen * 8 * (256 + 32)  # by the heads of one tensor rank
    assert costs.forward.attention_flops == 2 * pairs * queries + learnt
    assert costs.backward_input.attention_flops == 3 * 2 * chosen * queries


@pytest.mark.parametrize("layer", [1, 2, 4])
def test_every_tensor_rank_holds_the_indexer(layer: int) -> None:
    shared = layer == 2
    model = replace(CHOSEN, mtp_layers=1)
    more = 0 if shared else 384 * 4 * 32 + 1024 * 32 + 2 * 32 + 1024 * 4
    assert model.layer_parameters(layer) - LATENT.layer_parameters(1) == more
    for tensor in (1, 2, 4):
        found = layer_weights(model, layer, Layout(tensor=tensor))
        assert found.dense - layer_weights(LATENT, 1, Layout(tensor=tensor)).dense == more


def test_layers_that_share_a_choice_are_a_kind_of_their_own() -> None:
    model = replace(CHOSEN, mtp_layers=1)
    assert layer_kinds(model, 0, 4, 1) == ((0, 1), (1, 3), (2, 1))
    without = with_indexer(model, shared=())
    assert layer_kinds(without, 0, 4, 1) == ((0, 1), (1, 4))
    assert model.active_parameters == without.active_parameters - latent_of(
        model
    ).indexer_parameters(1024)
    layout = Layout(tensor=2)
    assert (
        layer_costs(training_of(model, layout), 2).flops
        < layer_costs(training_of(model, layout), 1).flops
    )
    kept = [layer_activations(training_of(model, layout), layer).rest for layer in (1, 2)]
    assert kept[0] > kept[1]
    assert len(layer_communications(training_of(model, layout), 1)) == 2 + len(
        layer_communications(training_of(model, layout), 2)
    )


def test_activations_by_hand() -> None:
    """Beside those of latent attention without an indexer, in BF16."""
    tokens, narrow = 512, 256 + 32
    for tensor in (1, 2):
        for layer, indexed in ((1, True), (2, False)):
            layout = Layout(tensor=tensor)
            sparse = layer_activations(training_of(CHOSEN, layout), layer)
            plain = layer_activations(training_of(LATENT, layout), 1)
            assert sparse.core == plain.core
            # Queries before and after they are as wide as keys, outputs, and all heads' keys.
            more = 16 * (64 + narrow + 256) / tensor + narrow
            more -= 16 * (2 * (64 + 32) + 64) / tensor  # queries, keys and values of heads
            if indexed:
                more += 4 * 32 + 2 * 32 + 4 + 2 * 128  # and its numbers of four bytes
                more += (1024 + 384) * (tensor > 1)
            assert sparse.rest - plain.rest == pytest.approx(2 * tokens * more)
    short = layer_activations(training_of(CHOSEN, Layout(), sequence=128), 1).rest
    short -= layer_activations(training_of(LATENT, Layout(), sequence=128), 1).rest
    assert short == 2 * 128 * (4 * 32 + 2 * 32 + 4 + 2 * 128)


def test_scores_of_unfused_stacks_are_not_kept() -> None:
    plain = Implementation(flash=False)
    assert layer_activations(training_of(CHOSEN, Layout(), plain), 1).core == 4 * 16 * 512
    assert (
        layer_activations(training_of(CHOSEN, Layout(), plain, sequence=128), 1).core > 4 * 16 * 128
    )


def test_the_indexers_scores_need_room() -> None:
    (sparse,), (plain,) = (
        memory_use(training_of(model, Layout()), schedule_of(Layout(), 1))
        for model in (CHOSEN, LATENT)
    )
    assert sparse.buffers - plain.buffers == 4 * 512 * 512


def sent(messages, when: str, group: str) -> float:  # type: ignore[no-untyped-def]
    return sum(m.size * m.count for m in messages if (m.when, m.group) == (when, group))


def test_messages_by_hand() -> None:
    tokens = 512
    layout = Layout(tensor=4)
    for when in ("forward", "recompute"):
        split = replace(layout, recompute="full")
        more = sent(layer_communications(training_of(CHOSEN, split), 1), when, "tensor")
        more -= sent(layer_communications(training_of(LATENT, split), 1), when, "tensor")
        assert more == tokens * (2 * (1024 + 384) + 4 * 128)
    for when in ("backward", "weight"):
        assert sent(layer_communications(training_of(CHOSEN, layout), 1), when, "tensor") == sent(
            layer_communications(training_of(LATENT, layout), 1), when, "tensor"
        )
    whole = Layout(tensor=4, sequence_parallel=False)
    more = sent(layer_communications(training_of(CHOSEN, whole), 1), "forward", "tensor")
    assert more - sent(
        layer_communications(training_of(LATENT, whole), 1), "forward", "tensor"
    ) == (4 * tokens * 128)


def test_context_groups_pass_latent_keys_and_those_of_the_indexer() -> None:
    for tensor in (1, 2):
        layout = Layout(context=2, tensor=tensor)
        for layer, width in ((1, 256 + 32 + 32), (2, 256 + 32)):
            messages = layer_communications(training_of(CHOSEN, layout), layer)
            assert sent(messages, "forward", "context") == 2 * 256 * width
            assert sent(messages, "backward", "context") == 2 * 2 * 256 * width
        short = layer_communications(training_of(CHOSEN, layout, sequence=128), 1)
        heads = 16 * (64 + 32 + 64) / tensor
        assert sent(short, "forward", "context") == 2 * 64 * (heads + 32)


def test_stated_flops_follow_megatron_bridge() -> None:
    """Of DeepSeek-V3.2, by the terms of Megatron Bridge's ``flop_utils.py``."""
    model, tokens = TRANSFORMERS["deepseek-v3.2"], 4096.0
    hidden, rank, low, rope, heads = 7168, 1536, 512, 64, 128
    projections = rank * (hidden + heads * 192) + low * (hidden + heads * 256)
    projections += hidden * rope + heads * 128 * hidden
    chosen = 2048 - 2048**2 / (2 * tokens)
    core = chosen * heads * (2 * low + rope)
    indexer = 4 * (rank * 64 * 128 + hidden * 128 + hidden * 64)
    indexer += 64 * 129 * (2 * tokens / 2 + 4 * chosen) + 2 * chosen * heads * (low + rope)
    feed = 3 * 3 * hidden * 18432 + 58 * hidden * (9 * 3 * 2048 + 256)
    layers = 61 * (6 * projections + 6 * core + indexer) + 6 * feed
    expected = tokens * (layers + 6 * hidden * model.vocabulary)
    assert model_flops(model, 1, model.sequence) == pytest.approx(expected, rel=1e-12)


# Megatron Bridge's verification cards of GLM-5.2: tokens, and TFLOP/s and tokens/s of a GPU.
@pytest.mark.parametrize(
    ("sequence", "flops", "rate"), [(4096, 102.5e12, 337), (2048, 54.6e12, 191)]
)
def test_stated_flops_are_those_of_published_runs(sequence: int, flops: float, rate: int) -> None:
    shared = tuple(layer for layer in range(3, 78) if layer % 4 != 2)
    model = replace(with_indexer(TRANSFORMERS["glm-5"], shared=shared), mtp_layers=1)
    found = model_flops(model, 1, sequence) / sequence
    assert found == pytest.approx(flops / rate, rel=0.004)


def test_other_numbers_of_layers_keep_who_shares() -> None:
    model = with_indexer(TRANSFORMERS["glm-5"], shared=tuple(i for i in range(78) if i % 3))
    for layers, shared in ((5, (1, 2, 4)), (80, tuple(i for i in range(80) if i % 3)), (1, ())):
        indexer = override(model, layers=layers, **_dense(layers)).indexer
        assert indexer is not None
        assert indexer.shared == shared
    assert override(model, layers=5, attention=HYBRID.attention).attention == HYBRID.attention


def _dense(layers: int) -> dict[str, Any]:
    return {"experts": None} if layers < 4 else {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 0}, "indexer: heads is 0; give a whole number of at least 1"),
        ({"keys": 2.5}, "indexer: keys is 2.5; give a whole number"),
        ({"shared": (2, 1)}, "shared is .2, 1.; give a tuple of layer numbers"),
        ({"shared": (0, 1)}, "shared names layer 0, before which none chooses keys; leave it out"),
        ({"shared": (9,)}, "indexer's shared names layer 9 of 4; give numbers below"),
    ],
)
def test_refused_indexers(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_indexer(CHOSEN, **changes)


def test_what_an_indexer_cannot_be_with() -> None:
    with pytest.raises(InputError, match="an indexer, but causal is False; leave one out"):
        replace(CHOSEN, causal=False)
    with pytest.raises(InputError, match="an indexer, but a sliding window; leave one out"):
        replace(CHOSEN, window=SlidingWindow(8))
    with pytest.raises(InputError, match="query_rank is 0 beside an indexer"):
        replace(latent_of(CHOSEN), query_rank=0)
    with pytest.raises(InputError, match="indexer is 3; give None, or an Indexer"):
        replace(latent_of(CHOSEN), indexer=3)  # type: ignore[arg-type]
