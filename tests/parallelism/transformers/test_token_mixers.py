"""Lightning attention, Mamba-1, short convolutions, and attention beside Mamba-2 in a layer."""

from dataclasses import replace

import numpy as np
import pytest

from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention_costs import attention_core
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.collectives import Communication, layer_communications
from parallelism.transformers.costs import layer_costs, model_flops
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import FSDP2, MEGATRON_CORE
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.linear_costs import core_flops_of_token, linear_core
from parallelism.transformers.operators import model_graph
from parallelism.transformers.placement import Placement
from parallelism.transformers.shares import check_layout
from parallelism.transformers.stages import layer_weights
from tests.helpers.counted_flops import Counted
from tests.helpers.small_transformers import BESIDE, HYBRID, LIGHTNING, SELECTIVE, SHORT
from tests.helpers.trainings import training_of
from topoopt.problem.job import Job

NEW = [LIGHTNING, SELECTIVE, SHORT, BESIDE]


def test_flops_of_lightning_attention_are_those_of_its_chunked_algorithm() -> None:
    """Forward and backward: both give what products of all pairs of tokens give."""
    chunk, key, value, tokens, kept = 16, 12, 20, 64, 0.9
    rng = np.random.default_rng(5)
    q, k = rng.normal(size=(2, tokens, key))
    v, do = rng.normal(size=(2, tokens, value))
    apart = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    decay = np.tril(kept ** np.maximum(apart, 0.0))
    scores, back = q @ k.T * decay, do @ v.T * decay
    expected = scores @ v, back @ k, back.T @ q, scores.T @ do

    steps = np.arange(chunk)
    inside, last = decay[:chunk, :chunk], kept**chunk
    from_before, to_after = (kept ** (steps + 1))[:, None], (kept ** (chunk - 1 - steps))[:, None]
    forward, backward = Counted(), Counted()
    chunks = [slice(begin, begin + chunk) for begin in range(0, tokens, chunk)]
    state, states, out = np.zeros((key, value)), [], []
    for at in chunks:
        states.append(state)
        out.append(
            forward(from_before * q[at], state) + forward(forward(q[at], k[at].T) * inside, v[at])
        )
        state = last * state + forward((to_after * k[at]).T, v[at])
        backward((to_after * k[at]).T, v[at])  # not kept: done again
    after, dq, dk, dv = np.zeros((key, value)), [], [], []
    for at, before in reversed(list(zip(chunks, states, strict=True))):
        own = backward(do[at], v[at].T) * inside
        again = backward(q[at], k[at].T) * inside
        dq.append(from_before * backward(do[at], before.T) + backward(own, k[at]))
        dk.append(to_after * backward(v[at], after.T) + backward(own.T, q[at]))
        dv.append(backward(to_after * k[at], after) + backward(again.T, do[at]))
        after = last * after + backward((from_before * q[at]).T, do[at])
    found = out, dq[::-1], dk[::-1], dv[::-1]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.concatenate(one), other, rtol=1e-9, atol=1e-9)
    linear = LinearAttention("lightning", 1, 1, key, value, chunk=chunk)
    assert core_flops_of_token(linear) == (forward.flops / tokens, backward.flops / tokens)


# Milliseconds of both passes of `chunk_retention`, which forgets at a fixed rate, too
# (flash-linear-attention, README.md, one GB200); nothing is fitted on it.
@pytest.mark.parametrize(
    ("batch", "tokens", "heads", "both"),
    [(1, 8192, 96, 2.618), (2, 16384, 16, 2.122), (4, 4096, 64, 3.459)],
)
def test_kernels_of_a_fixed_rate_take_about_as_long_as_published(
    batch: int, tokens: int, heads: int, both: float
) -> None:
    linear = LinearAttention("lightning", heads, heads, 128, 128)
    model = replace(HYBRID, linear=linear)
    costs = linear_core(training_of(model, Layout(microbatch=batch), sequence=tokens))
    rates = rates_of(get_accelerator("gb200"))
    found = rates.attention_seconds(costs.forward) + rates.attention_seconds(costs.backward_input)
    assert found == pytest.approx(1e-3 * both, rel=0.27)


def of_gemms(model: Transformer, layout: Layout | None = None) -> float:
    """Operations of the products of its first layer, without a feed-forward part, forward."""
    alone = replace(model, experts=None, without_feed_forward=tuple(range(model.layers)))
    work = layer_costs(training_of(alone, layout or Layout()), 0).forward
    return sum(gemm.flops for gemm in work.gemms)


@pytest.mark.parametrize(
    ("model", "weights"),
    [
        (LIGHTNING, 5 * 512 * 512),
        (SELECTIVE, 512 * 2048 + 1024 * (32 + 2 * 16) + 32 * 1024 + 1024 * 512),
        (SHORT, 4 * 512 * 512),
        # Attention of 8 heads on 4 keys, and Mamba-2 of 16 heads of 64 with 4 groups of 64.
        (BESIDE, 512 * 64 * (2 * 8 + 2 * 4) + 512 * (2 * 1024 + 2 * 256 + 16) + 1024 * 512),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_products_are_those_of_the_weights(model: Transformer, weights: int) -> None:
    assert of_gemms(model) == 2 * model.sequence * weights
    assert 2 * of_gemms(model, Layout(tensor=2)) == pytest.approx(of_gemms(model))


@pytest.mark.parametrize(
    ("model", "each"),
    [
        # Queries, keys, values before and after their nonlinearity; gate, output, their product.
        (LIGHTNING, 2 * (2 * 3 * 512 + 3 * 512)),
        # Of 1,024 channels: value, gate, value convolved, step, output with and without its gate;
        # step, key and query before and after norms.
        (SELECTIVE, 2 * (6 * 1024 + 2 * (32 + 2 * 16))),
        # Key, query, value, product, what it is convolved to, and that by the query.
        (SHORT, 2 * 6 * 512),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_activations_by_hand(model: Transformer, each: int) -> None:
    """In BF16 on one GPU, of a layer without a feed-forward part."""
    alone = replace(model, experts=None, without_feed_forward=tuple(range(model.layers)))
    kept = layer_activations(training_of(alone, Layout()), 0)
    assert kept.core == 0
    assert kept.rest == model.sequence * (2 * 2 * 512 + each)  # the norm's input and output


@pytest.mark.parametrize("model", NEW, ids=lambda model: model.name)
def test_tensor_ranks_hold_the_model_between_them(model: Transformer) -> None:
    for layer in range(model.layers + 1):
        one, two, four = (layer_weights(model, layer, Layout(tensor=t)) for t in (1, 2, 4))
        assert one.dense + one.expert == model.layer_parameters(layer)
        assert two.dense - four.dense == pytest.approx((one.dense - two.dense) / 2)


@pytest.mark.parametrize("model", NEW, ids=lambda model: model.name)
def test_graphs_have_the_parameters(model: Transformer) -> None:
    assert model_graph(model).parameters == model.parameters


def messages(
    model: Transformer, layout: Layout, layer: int = 0, group: str = "tensor"
) -> list[Communication]:
    found = layer_communications(training_of(model, layout), layer)
    return [message for message in found if message.group == group and message.when == "forward"]


def test_tensor_ranks_sum_what_mamba_makes_of_all_channels() -> None:
    """Each has half of the channels, and makes a share of each step, key and query of them."""
    rng = np.random.default_rng(3)
    values, weights = rng.normal(size=(7, 1024)), rng.normal(size=(1024, 64))
    halves = (values[:, :512] @ weights[:512], values[:, 512:] @ weights[512:])
    np.testing.assert_allclose(sum(halves), values @ weights)
    others = messages(replace(SELECTIVE, linear=None), Layout(tensor=2))
    own = [one for one in messages(SELECTIVE, Layout(tensor=2)) if one not in others]
    assert [(m.kind, m.size, m.count) for m in own] == [
        ("allreduce", 2 * SELECTIVE.sequence * halves[0].shape[1], 1)
    ]
    assert len(messages(SELECTIVE, Layout(tensor=2))) == len(others) + 1


@pytest.mark.parametrize("context", [2, 4])
def test_states_and_last_tokens_of_each_rank_are_all_that_others_need(context: int) -> None:
    """Numbers that ranks of a context group send each other, and outputs as of one rank."""
    tokens, kept, heads, key, value, taps = 24, 0.9, 2, 3, 5, 3
    rng = np.random.default_rng(11)
    q, k = rng.normal(size=(2, heads, tokens, key))
    v = rng.normal(size=(heads, tokens, value))
    parts = np.split(np.arange(tokens), context)

    def recur(q: np.ndarray, k: np.ndarray, v: np.ndarray, state: np.ndarray):
        out = np.empty_like(v)
        for t in range(v.shape[1]):
            state = kept * state + np.einsum("hk,hv->hkv", k[:, t], v[:, t])
            out[:, t] = np.einsum("hk,hkv->hv", q[:, t], state)
        return out, state

    none = np.zeros((heads, key, value))
    whole, _ = recur(q, k, v, none)
    states = [recur(q[:, at], k[:, at], v[:, at], none)[1] for at in parts]
    for rank, at in enumerate(parts):
        before = sum(
            (kept ** (len(at) * (rank - 1 - i)) * states[i] for i in range(rank)), start=none
        )
        out, _ = recur(q[:, at], k[:, at], v[:, at], before)
        np.testing.assert_allclose(out, whole[:, at])
    lightning = replace(LIGHTNING, linear=LinearAttention("lightning", 2, 2, 3, 5))
    for model, elements in ((lightning, states[0].size), (SHORT, (taps - 1) * 512)):
        (ring,) = messages(model, Layout(context=context), group="context")
        assert (ring.kind, ring.size, ring.count) == ("ring", 2 * elements, 1)
        # Whatever the length, and in shares of a tensor group.
        short, half = replace(model, sequence=64), Layout(context=context, tensor=2)
        assert messages(short, Layout(context=context), group="context") == [ring]
        assert messages(model, half, group="context")[0].size == ring.size / 2


def test_attention_beside_mamba_is_what_both_do_but_for_one_norm() -> None:
    model = replace(BESIDE, without_feed_forward=tuple(range(BESIDE.layers)))
    assert model.linear is not None
    attention = replace(model, linear=None)
    mamba = replace(model, linear=replace(model.linear, beside_attention=False))
    assert not mamba.has_attention(0)
    norm = model.norm_parameters()
    tokens, hidden = model.sequence, model.hidden
    for stack in (MEGATRON_CORE, FSDP2):
        for layout in (Layout(), Layout(tensor=2), Layout(tensor=2, context=2)):
            one, two, both = (
                layer_costs(training_of(each, layout, stack), 0)
                for each in (attention, mamba, model)
            )
            assert both.flops == pytest.approx(one.flops + two.flops)
            kept = [
                layer_activations(training_of(each, layout, stack), 0).rest
                for each in (attention, mamba, model)
            ]
            own = tokens / layout.context / (layout.tensor if layout.sequence_parallel else 1)
            shared = own * hidden * (2 * 2 + stack.norm_bytes)
            if stack.gathered_inputs:
                shared += 2 * hidden * (tokens / layout.context - own)
            assert kept[0] + kept[1] - kept[2] == pytest.approx(shared)
            weights = [layer_weights(each, 0, layout).dense for each in (attention, mamba, model)]
            assert weights[0] + weights[1] - weights[2] == norm
            # One sum of both outputs; keys go round, and heads are exchanged.
            assert messages(model, layout) == messages(attention, layout)
            ring, *heads = messages(model, layout, group="context") or [None]
            if ring is not None:
                assert [ring] == messages(attention, layout, group="context")
                assert heads == messages(mamba, layout, group="context")
    sizes = [model_flops(each, 1, each.sequence) for each in (attention, mamba, model)]
    head = 3 * 2 * tokens * hidden * model.vocabulary
    assert sizes[0] + sizes[1] - head == pytest.approx(sizes[2])


def test_stated_flops_by_hand() -> None:
    """A layer of each kind and a head, three passes of what forward is stated."""
    for model, weights, core in (
        (LIGHTNING, 5 * 512 * 512, 4 * 8 * 64 * 64),
        (SELECTIVE, 512 * 2048 + 1024 * 64 + 32 * 1024 + 1024 * 512, 9 * 1024 * 16),
        (SHORT, 4 * 512 * 512, 0),
    ):
        assert model.linear is not None
        alone = replace(
            model, layers=1, experts=None, without_feed_forward=(0,),
            linear=replace(model.linear, full_layers=()),
        )  # fmt: skip
        forward = 2 * weights + core + 2 * 512 * model.vocabulary
        assert model_flops(alone, 3, alone.sequence) == pytest.approx(
            3 * 3 * model.sequence * forward
        )


def test_a_sequence_of_mamba_is_not_shared_out() -> None:
    said = "no public software shares out a sequence of Mamba-1, which mamba-1 has; give 1"
    with pytest.raises(InputError, match=said):
        check_layout(SELECTIVE, Layout(context=2))
    choices = Choices(context=(1, 2), tensor=(1, 2, 4))
    layouts = enumerate_layouts(LayoutSpace(SELECTIVE, 16, 8, 16, SELECTIVE.sequence, choices))
    assert {layout.context for layout in layouts} == {1}
    assert max(layout.tensor for layout in layouts) == 4


def test_channels_of_short_convolutions_and_mamba_are_what_tensor_ranks_divide() -> None:
    with pytest.raises(InputError, match="does not divide linear attention's heads = 1020"):
        check_layout(
            replace(SELECTIVE, linear=replace(SELECTIVE.linear, heads=1020)), Layout(tensor=8)
        )
    check_layout(replace(SHORT, experts=None), Layout(tensor=4, context=4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "lightning"}, "key_heads is 1 beside 8 heads; give the same of both"),
        ({"step_rank": 0}, "step_rank is 0, but kind is 'mamba-1'; give at least 1"),
        ({"key_heads": 2}, "key_heads is 2, but kind is 'mamba-1', of which each channel is a hea"),
        ({"value_width": 2}, "value_width is 2, but kind is 'mamba-1'"),
        ({"kind": "mamba-2"}, "step_rank is 4, but kind is 'mamba-2'; leave it out"),
        ({"kind": "short-convolution", "key_heads": 8}, "key_width is 16, but kind is 'short-conv"),
        ({"beside_attention": 1}, "beside_attention is 1"),
    ],
)
def test_refused(changes: dict[str, object], message: str) -> None:
    linear = LinearAttention("mamba-1", 1, 8, 16, 1, step_rank=4)
    with pytest.raises(InputError, match=message):
        replace(linear, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "layout", "said"),
    [
        (LIGHTNING, Layout(context=2), "context ranks pass on states after their tokens"),
        (SHORT, Layout(context=2), "context ranks pass on the last of their tokens"),
        (SHORT, Layout(), "no published run holds the times of gated short convolutions"),
        (SELECTIVE, Layout(), "no published run holds the times of Mamba-1, whose kernels"),
        (BESIDE, Layout(tensor=2), "attention and Mamba-2 of a layer are parallel"),
    ],
)
def test_what_times_rest_on_is_said(model: Transformer, layout: Layout, said: str) -> None:
    placement = Placement(layout, layout.gpus, ("context", "data", "pipeline"))
    server = Server(get_accelerator("h100"), layout.gpus, 450e9)
    found = Job(model, global_batch=8, server=server).family(1).assumptions(placement)
    assert any(sentence.startswith(said) for sentence in found)


def test_kernels_of_attention_and_mamba_of_a_layer_run_one_after_the_other() -> None:
    """Attention is as long as its products then, Mamba-2 as what it reads: neither hides."""
    rates, model = rates_of("h100-sxm"), replace(BESIDE, sequence=8192)
    training = training_of(model, Layout())
    parts = attention_core(training), linear_core(training)
    for name in ("forward", "backward_input"):
        fused, linear = (getattr(part, name) for part in parts)
        both = rates.attention_seconds(getattr(layer_costs(training, 0), name))
        alone = [rates.attention_seconds(work) for work in (fused, linear)]
        assert both == pytest.approx(sum(alone)) and min(alone) > 0
        assert alone[1] == pytest.approx(rates.traffic_seconds(linear.linear_traffic))
