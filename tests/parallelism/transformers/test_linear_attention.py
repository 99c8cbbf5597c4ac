"""Linear attention: parameters, chunked kernels, memory, messages, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from codesign_base import InfeasibleError, InputError
from parallelism.accelerators import get_accelerator
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.collectives import layer_communications
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.gpu import rates_like_h100, rates_of
from parallelism.transformers.implementation import FSDP2, MEGATRON_CORE
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.linear_costs import core_flops_of_token, linear_core
from parallelism.transformers.presets import TRANSFORMERS
from parallelism.transformers.shares import check_layout
from parallelism.transformers.stages import layer_weights
from tests.helpers.counted_flops import Counted
from tests.helpers.small_transformers import HYBRID, ONE_PART
from tests.helpers.trainings import training_of

HYBRIDS = sorted(name for name, model in TRANSFORMERS.items() if model.linear)


def draw(tokens: int, key: int, value: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(5)
    queries, keys = rng.normal(size=(2, tokens, key)) / key**0.5
    kept = rng.uniform(0.7, 1.0, tokens)
    return queries, keys, rng.normal(size=(tokens, value)), kept, rng.uniform(0.2, 0.9, tokens)


def test_flops_of_gated_deltanet_are_those_of_its_chunked_algorithm() -> None:
    """The algorithm gives what the recurrence over tokens gives."""
    chunk, key, value, tokens = 16, 12, 20, 64
    queries, keys, values, kept, learnt = draw(tokens, key, value)
    state, expected = np.zeros((key, value)), []
    for t in range(tokens):
        state = kept[t] * (state - learnt[t] * np.outer(keys[t], keys[t] @ state))
        state = state + learnt[t] * np.outer(keys[t], values[t])
        expected.append(queries[t] @ state)

    product, solved = Counted(), 0.0
    state, found = np.zeros((key, value)), []
    for begin in range(0, tokens, chunk):
        own = slice(begin, begin + chunk)
        q, k, v, beta = queries[own], keys[own], values[own], learnt[own, None]
        left = np.cumsum(np.log(kept[own]))
        decay = np.tril(np.exp(np.minimum(left[:, None] - left, 0.0)))
        inverse = np.linalg.inv(np.eye(chunk) + np.tril(beta * product(k, k.T) * decay, -1))
        solved += chunk**3 / 3
        made = product(inverse, beta * v)
        carried = product(inverse, beta * np.exp(left)[:, None] * k)
        new = made - product(carried, state)
        scores = product(q, k.T) * decay
        found.append(product(np.exp(left)[:, None] * q, state) + product(scores, new))
        fading = np.exp(left[-1] - left)[:, None] * k
        state = np.exp(left[-1]) * state + product(fading.T, new)
    np.testing.assert_allclose(np.concatenate(found), np.array(expected), rtol=1e-9, atol=1e-12)
    linear = LinearAttention("gated-deltanet", 1, 1, key, value, chunk=chunk)
    assert core_flops_of_token(linear)[0] == pytest.approx((product.flops + solved) / tokens)


def test_flops_of_mamba_are_those_of_its_chunked_algorithm() -> None:
    chunk, key, value, tokens = 16, 12, 20, 64
    queries, keys, values, kept, _ = draw(tokens, key, value)
    state, expected = np.zeros((key, value)), []
    for t in range(tokens):
        state = kept[t] * state + np.outer(keys[t], values[t])
        expected.append(queries[t] @ state)

    product = Counted()
    state, found = np.zeros((key, value)), []
    for begin in range(0, tokens, chunk):
        own = slice(begin, begin + chunk)
        q, k, v = queries[own], keys[own], values[own]
        left = np.cumsum(np.log(kept[own]))
        decay = np.tril(np.exp(np.minimum(left[:, None] - left, 0.0)))
        inside = product(product(q, k.T) * decay, v)
        found.append(inside + product(np.exp(left)[:, None] * q, state))
        fading = np.exp(left[-1] - left)[:, None] * k
        state = np.exp(left[-1]) * state + product(fading.T, v)
    np.testing.assert_allclose(np.concatenate(found), np.array(expected), rtol=1e-9, atol=1e-12)
    linear = LinearAttention("mamba-2", 1, 1, key, value, chunk=chunk)
    assert core_flops_of_token(linear)[0] == pytest.approx(product.flops / tokens)


H20 = replace(
    get_accelerator("h100"), name="h20", bf16_flops=148e12, memory_bandwidth=4e12, source="sheet"
)

# Milliseconds of forward and of both passes: flash-linear-attention, README.md (GB200); MoonshotAI,
# FlashKDA, BENCHMARK_GB200.md and BENCHMARK_H20.md (forward alone).
TIMES = [
    ("gated-deltanet", "gb200", 1, 8192, 96, 128, 1.265, 4.738),
    ("gated-deltanet", "gb200", 2, 16384, 16, 128, 1.029, 3.616),
    ("gated-deltanet", "gb200", 4, 4096, 64, 128, 1.581, 5.964),
    ("gated-deltanet", "gb200", 8, 2048, 32, 256, 1.831, None),
    ("gated-deltanet", "gb200", 1, 8192, 64, 128, 0.886, None),
    ("gated-deltanet", "h20", 1, 8192, 96, 128, 3.199, None),
    ("gated-deltanet", "h20", 1, 8192, 64, 128, 2.006, None),
    ("kda", "gb200", 1, 8192, 96, 128, 2.327, None),
    ("kda", "gb200", 1, 8192, 64, 128, 1.576, None),
    ("kda", "h20", 1, 8192, 96, 128, 4.839, None),
    ("kda", "h20", 1, 8192, 64, 128, 3.166, None),
]


@pytest.mark.parametrize(("kind", "gpu", "batch", "tokens", "heads", "width", "one", "both"), TIMES)
def test_kernels_take_about_as_long_as_published(
    kind: str, gpu: str, batch: int, tokens: int, heads: int, width: int, one: float,
    both: float | None,
) -> None:  # fmt: skip
    rates = rates_like_h100(H20) if gpu == "h20" else rates_of(get_accelerator(gpu))
    linear = LinearAttention(kind, heads, heads, width, width)  # type: ignore[arg-type]
    model = replace(HYBRID, linear=linear)
    costs = linear_core(training_of(model, Layout(microbatch=batch), sequence=tokens))
    forward = rates.attention_seconds(costs.forward)
    assert forward == pytest.approx(1e-3 * one, rel=0.27)
    if both is not None:
        backward = rates.attention_seconds(costs.backward_input)
        assert forward + backward == pytest.approx(1e-3 * both, rel=0.27)


# Counted with the classes of transformers 5.24.0, a layer's norms over the hidden width included.
@pytest.mark.parametrize(
    ("name", "layer", "parameters"),
    [
        ("qwen3-next-80b-a3b", 0, 1_648_531_648),
        ("qwen3-next-80b-a3b", 3, 1_642_076_672),
        ("nemotron-3-super-120b-a12b", 0, 109_640_064),
        ("nemotron-3-super-120b-a12b", 1, 2_873_102_336 + 512),  # with the biases of the router
        ("nemotron-3-super-120b-a12b", 7, 35_655_680),
    ],
)
def test_parameters_of_layers(name: str, layer: int, parameters: int) -> None:
    assert TRANSFORMERS[name].layer_parameters(layer) == parameters


def test_parameters_of_kimi_delta_attention() -> None:
    linear = TRANSFORMERS["kimi-linear-48b-a3b"].linear
    assert linear is not None
    assert linear.parameters(2304) == 39_514_272


@pytest.mark.parametrize("model", [HYBRID, ONE_PART], ids=lambda model: model.name)
def test_tensor_ranks_hold_the_model_between_them(model) -> None:  # type: ignore[no-untyped-def]
    """What a rank holds of a layer is what all have, and its share of the rest."""
    for layer in range(model.layers + 1):
        one, two, four = (layer_weights(model, layer, Layout(tensor=t)) for t in (1, 2, 4))
        assert one.dense + one.expert == model.layer_parameters(layer)
        # Whole + split / t: three degrees lie on one line.
        assert two.dense - four.dense == pytest.approx((one.dense - two.dense) / 2)
        if model.linear is not None and model.has_linear(layer):
            assert two.dense < 0.7 * one.dense


def test_layers_of_one_part_cost_what_their_part_costs() -> None:
    """A block with a mixer and one with a feed-forward part are a layer with both."""
    both = replace(
        ONE_PART, name="both", layers=2, linear=replace(ONE_PART.linear, full_layers=()),
        without_feed_forward=(), without_attention=(),
    )  # fmt: skip
    for layout in (Layout(), Layout(tensor=2), Layout(tensor=2, recompute="full")):
        for stack in (MEGATRON_CORE, FSDP2):
            mixer = layer_costs(training_of(ONE_PART, layout, stack), 0)
            feed = layer_costs(training_of(ONE_PART, layout, stack), 1)
            whole = layer_costs(training_of(both, layout, stack), 0)
            assert (mixer + feed).flops == pytest.approx(whole.flops)
            traffic = [sum(w.traffic for w in costs.passes) for costs in (mixer, feed, whole)]
            assert traffic[0] + traffic[1] == pytest.approx(traffic[2])
            kept = [
                layer_activations(training_of(m, layout, stack), layer)
                for m, layer in ((ONE_PART, 0), (ONE_PART, 1), (both, 0))
            ]
            assert kept[0].rest + kept[1].rest == pytest.approx(kept[2].rest)
            sent = [
                list(layer_communications(training_of(m, layout, stack), layer))
                for m, layer in ((ONE_PART, 0), (ONE_PART, 1), (both, 0))
            ]
            sums = [sum(message.size * message.count for message in each) for each in sent]
            assert sums[0] + sums[1] == pytest.approx(sums[2])
            assert (sums[0] > 0) == (layout.tensor > 1)


def test_activations_by_hand() -> None:
    """Of a layer of Gated DeltaNet alone, in BF16 with a fused kernel, on one GPU."""
    model, tokens = ONE_PART, ONE_PART.sequence
    linear = LinearAttention("gated-deltanet", 4, 8, 32, 16)
    model = replace(model, linear=linear)
    hidden = 2 * 2 * model.hidden  # the norm's input and output
    mixed = 2 * (2 * 4 * 32 + 8 * 16)
    repeated = 2 * 8 * (32 + 32 + 16)
    chunk, gates = 2 * 8 * 64, 3 * 4 * 8
    values = 3 * 2 * 8 * 16  # output, gate, and their product
    kept = layer_activations(training_of(model, Layout()), 0)
    assert kept.core == 0
    assert kept.rest == tokens * (hidden + mixed + repeated + chunk + gates + values)


def test_stated_flops_follow_megatron_lm() -> None:
    """Of Nemotron-H 56B, by the terms of Megatron-LM's ``num_floating_point_operations``."""
    model = TRANSFORMERS["nemotron-h-56b"]
    tokens, hidden = float(model.sequence), model.hidden
    wide, state, groups, heads = 256 * 64, 256, 8, 256
    mamba = 2 * tokens * hidden * (2 * wide + 2 * groups * state + heads)
    mamba += 7 * tokens * wide * state + 2 * tokens * wide * hidden
    width, keys = 64 * 128, 8 * 128
    attention = 4 * tokens * hidden * (width + keys) + 4 * tokens**2 * width
    feed = 4 * tokens * hidden * model.feed_forward
    head = 2 * tokens * hidden * model.vocabulary
    expected = 3 * (54 * mamba + 10 * attention + 54 * feed + head)
    assert model_flops(model, 1, model.sequence) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", HYBRIDS)
def test_presets_meet_their_layers(name: str) -> None:
    model = TRANSFORMERS[name]
    assert any(model.has_linear(layer) for layer in range(model.layers))
    assert any(model.has_attention(layer) for layer in range(model.layers))
    assert all(
        model.parts(layer)
        == model.has_attention(layer) + model.has_linear(layer) + model.has_feed_forward(layer)
        for layer in range(model.layers + 1)
    )


def test_layouts_that_cannot_split_it() -> None:
    with pytest.raises(InputError, match="tensor is 8, which does not divide linear attention's"):
        check_layout(HYBRID, Layout(tensor=8))


def test_what_forbids_all_layouts_is_said() -> None:
    one_group = replace(ONE_PART, linear=replace(ONE_PART.linear, key_heads=1))
    with pytest.raises(
        InfeasibleError, match=r"with tensor 2; tensor is 2, which does not divide linear att"
    ):
        enumerate_layouts(LayoutSpace(one_group, 8, 8, 8, 512, Choices(tensor=(2,))))
    # Of degrees that can split it none divides the batch: another remedy.
    with pytest.raises(InfeasibleError, match=r"with microbatch 3; 8 samples .* multiple of"):
        enumerate_layouts(LayoutSpace(ONE_PART, 8, 8, 8, 512, Choices(microbatch=(3,))))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "mamba"}, "kind is 'mamba'; choose one of gated-deltanet, kda, mamba-2"),
        ({"key_heads": 3}, "key_heads is 3 beside 8 heads; give a divisor"),
        ({"kind": "kda"}, "key_heads is 4 beside 8 heads; give the same of both"),
        ({"full_layers": (2, 1)}, "full_layers is .2, 1.; give a tuple of layer numbers"),
        ({"chunk": 0}, "chunk is 0; give a whole number of at least 1"),
        ({"convolution_bias": 1}, "convolution_bias is 1"),
    ],
)
def test_refused_linear_attention(changes: dict[str, object], message: str) -> None:
    linear = LinearAttention("gated-deltanet", 4, 8, 32, 16)
    with pytest.raises(InputError, match=message):
        replace(linear, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"causal": False}, "linear attention, but causal is False"),
        ({"without_attention": (0, 9)}, "without_attention names layer 9 of 4"),
        ({"without_attention": (1,), "without_feed_forward": (1,)}, "layer 1 is without attention"),
        ({"without_attention": (1,), "parallel": True}, "parallel, but some layers have one part"),
        ({"linear": replace(HYBRID.linear, full_layers=(4,))}, "full_layers names layer 4 of 4"),
        ({"without_attention": (3,)}, "full_layers and without_attention both name layer 3"),
    ],
)
def test_refused_transformers(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(HYBRID, **changes)  # type: ignore[arg-type]


def test_a_sequence_shorter_than_a_chunk_is_one_chunk() -> None:
    short, long = (
        replace(ONE_PART, linear=replace(ONE_PART.linear, chunk=chunk)) for chunk in (64, 10**6)
    )
    for cost in (
        lambda model: layer_costs(training_of(model, Layout(), sequence=64), 0),
        lambda model: layer_activations(training_of(model, Layout(), sequence=64), 0),
        lambda model: model_flops(model, 2, 64),
    ):
        assert cost(short) == cost(long)
