"""Volumes of what layouts send, against rings simulated chunk by chunk and published sums."""

from dataclasses import replace

import numpy as np
import pytest

from codesign_base import InputError
from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention, LatentAttention
from parallelism.transformers.collectives import (
    Communication,
    boundary_bytes,
    end_communications,
    layer_communications,
    pipeline_send,
    step_communications,
)
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import FSDP2, Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import (
    GroupPlacement,
    Links,
    collective_seconds,
    group_placement_of,
    links_of,
    sent_bytes,
)
from parallelism.transformers.loads import loads_of
from parallelism.transformers.placement import Placement
from parallelism.transformers.stages import parts_of
from tests.helpers.ring_oracle import direct_all_to_all, ring_all_gather, ring_reduce_scatter
from tests.helpers.small_transformers import GPT_22B, LATENT, LLAMA3_8B, MIXTRAL
from tests.helpers.trainings import training_of
from topoopt.problem.job import nvlink_server

WHOLE = 2 * 2048 * 6144


def sent(messages: "tuple[Communication, ...]", when: str, group: str = "tensor") -> float:
    return sum(m.count * moved(m) for m in messages if m.when == when and m.group == group)


def moved(message: Communication) -> float:
    return sent_bytes(message.kind, message.size, message.ranks)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_volumes_are_those_of_rings_of_chunks(ranks) -> None:
    scattered, owned = ring_reduce_scatter(ranks)
    for rank in range(ranks):
        # Each ends with one chunk that everyone has added to.
        assert owned[rank, (rank + 1) % ranks].all()
    gathered, has = ring_all_gather(ranks)
    assert has.all()
    for rank in range(ranks):
        assert sent_bytes("reducescatter", 7.0, ranks) == pytest.approx(7 * scattered[rank])
        assert sent_bytes("allgather", 7.0, ranks) == pytest.approx(7 * gathered[rank])
        both = scattered[rank] + gathered[rank]
        assert sent_bytes("allreduce", 7.0, ranks) == pytest.approx(7 * both)
        alone = direct_all_to_all(ranks)[rank]
        assert sent_bytes("alltoall", 7.0, ranks) == pytest.approx(7 * alone)
        # A ring exchange passes each rank's own chunk on: gathering chunks of that size.
        assert sent_bytes("ring", 7.0, ranks) == pytest.approx(7 * ranks * gathered[rank])
    assert sent_bytes("send", 7.0, 2) == 7.0
    assert sent_bytes("allreduce", 7.0, 1) == 0.0


def test_tensor_parallelism_sums_twice_a_pass_and_sequence_parallelism_sends_as_much() -> None:
    """Korthikanti et al. (2022), section 4.2.2: both need the same bandwidth."""
    plain = layer_communications(training_of(GPT_22B, Layout(tensor=8, sequence_parallel=False)), 0)
    split = layer_communications(training_of(GPT_22B, Layout(tensor=8)), 0)
    for when in ("forward", "backward"):
        assert sent(plain, when) == pytest.approx(2 * 2 * 7 / 8 * WHOLE)
        assert sent(split, when) == pytest.approx(sent(plain, when))
    assert sent(split, "weight") == pytest.approx(2 * 7 / 8 * WHOLE)
    again = layer_communications(training_of(GPT_22B, Layout(tensor=8, recompute="full")), 0)
    assert sent(again, "recompute") == pytest.approx(sent(split, "forward"))
    assert layer_communications(training_of(GPT_22B, Layout()), 0) == ()


@pytest.mark.parametrize("query_rank", [0, 6])
def test_latent_attention_gathers_latent_vectors(query_rank) -> None:
    """Ranks that make latent vectors of their own tokens need no others' inputs for their heads."""
    tensor, tokens, hidden, heads, width = 2, 4, 10, 4, 3
    latent = LatentAttention(kv_rank=5, query_rank=query_rank, rope_width=2, value_width=3)
    draw = np.random.default_rng(0).standard_normal
    inputs, down = draw((tokens, hidden)), draw((hidden, 7))
    query_down = draw((hidden, query_rank)) if query_rank else np.eye(hidden)
    query_up = draw((query_down.shape[1], heads * (width + 2)))
    key_up = draw((5, heads * (width + 3)))
    received = 0

    def gathered(parts):
        nonlocal received
        received += sum(part.size for part in parts[1:])  # by the first rank
        return np.concatenate(parts)

    own = np.split(inputs, tensor)
    queries = gathered([part @ query_down for part in own])
    both = gathered([part @ down for part in own])
    for found, whole, up in (
        (queries, inputs @ query_down, query_up), (both[:, :5], inputs @ down[:, :5], key_up),
    ):  # fmt: skip
        for rank in range(tensor):
            heads_of = np.split(up, tensor, axis=1)[rank]
            assert found @ heads_of == pytest.approx(np.split(whole @ up, tensor, axis=1)[rank])
    assert both[:, 5:] == pytest.approx(inputs @ down[:, 5:])  # the key's rotary part, of all heads
    attention = Attention(heads, heads, width, latent=latent)
    model = Transformer("small", 1, hidden, attention, 8, 11, tokens)
    split = layer_communications(training_of(model, Layout(tensor=tensor)), 0)
    feed_forward = whole = tokens * hidden / tensor  # elements of the feed-forward part's input
    # Outputs are summed as wide as the layer; backward the other way round, and gathered again.
    assert sent(split, "forward") == pytest.approx(2 * (received + whole + 2 * feed_forward))
    assert sent(split, "backward") == pytest.approx(2 * (received + whole + 2 * feed_forward))
    assert sent(split, "weight") == pytest.approx(2 * (received + feed_forward))
    kept = [
        layer_activations(
            training_of(model, Layout(tensor=tensor), Implementation(gathered_inputs=gathers)), 0
        )
        for gathers in (False, True)
    ]
    assert kept[1].rest - kept[0].rest == pytest.approx(2 * (received + feed_forward))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
def test_checkpoints_of_pytorch_sum_no_output_that_they_do_not_make(split, parallel) -> None:
    """They stop before a dense layer's last product; a norm after it needs that, and its sum."""
    layout = Layout(tensor=4, sequence_parallel=split, recompute="full")
    sums = "reducescatter" if split else "allreduce"

    def again(model: Transformer, layer: int = 0, stack: Implementation = FSDP2) -> list[str]:
        found = layer_communications(training_of(model, layout, stack), layer)
        return [message.kind for message in found if message.when == "recompute"]

    model = replace(LLAMA3_8B, parallel=parallel)
    blocks = 1 if parallel else 2
    assert again(model).count(sums) == blocks - 1
    assert again(model).count("allgather") == blocks * split
    assert again(model, stack=Implementation()).count(sums) == blocks
    assert again(replace(model, layer_norms=4)).count(sums) == 2
    # Experts are done again whole: attention, shared ones, and those that tensor ranks split.
    assert again(replace(LATENT, parallel=parallel), 1).count(sums) == blocks + 1


def test_context_parallelism_passes_keys_and_values() -> None:
    layout = Layout(context=4, tensor=2)
    messages = layer_communications(training_of(LLAMA3_8B, layout), 0)
    tokens = 8192 / 4
    chunk = 2 * tokens * 2 * (8 / 2) * 128
    assert sent(messages, "forward", "context") == pytest.approx(3 * chunk)
    assert sent(messages, "backward", "context") == pytest.approx(2 * 3 * chunk)
    latent = layer_communications(training_of(LATENT, Layout(context=2)), 0)
    assert sent(latent, "forward", "context") == 2 * 256 * 16 * (64 + 32 + 64)


def test_experts_get_every_copy_once_and_give_it_back() -> None:
    layout = Layout(data=8, expert=8)
    messages = layer_communications(training_of(MIXTRAL, layout), 0)
    copies = 2 * 4096
    assert sent(messages, "forward", "expert") == pytest.approx(2 * 7 / 8 * copies * 4096 * 2)
    skewed = layer_communications(
        training_of(MIXTRAL, layout, Implementation(load_imbalance=1.25)), 0
    )
    assert sent(skewed, "backward", "expert") == pytest.approx(
        1.25 * sent(messages, "backward", "expert")
    )
    # With sequence parallelism each tensor rank dispatches its own tokens, and gathers them.
    both = layer_communications(training_of(MIXTRAL, replace(layout, tensor=4)), 0)
    assert sent(both, "forward", "expert") == pytest.approx(sent(messages, "forward", "expert") / 4)
    assert sent(both, "forward") == pytest.approx(2 * 3 / 4 * (4096 + copies) * 4096 * 2)


def test_ends_sum_embeddings_and_the_gradient_of_the_head() -> None:
    first, *_, last = parts_of(GPT_22B, Layout(tensor=8, pipeline=2))
    plain = Layout(tensor=8, pipeline=2, sequence_parallel=False)
    loss = 3 * 2 * 7 / 8 * 4 * 2048
    assert (
        sent(end_communications(training_of(GPT_22B, plain), first), "forward") == 2 * 7 / 8 * WHOLE
    )
    assert sent(end_communications(training_of(GPT_22B, plain), last), "forward") == loss
    assert (
        sent(end_communications(training_of(GPT_22B, plain), last), "backward") == 2 * 7 / 8 * WHOLE
    )
    split = replace(plain, sequence_parallel=True)
    assert sent(end_communications(training_of(GPT_22B, split), first), "forward") == 7 / 8 * WHOLE
    assert (
        sent(end_communications(training_of(GPT_22B, split), last), "forward")
        == 7 / 8 * WHOLE + loss
    )


def test_stages_pass_on_a_share_or_everything() -> None:
    layout = Layout(tensor=8, pipeline=2, sequence_parallel=False)
    assert boundary_bytes(training_of(GPT_22B, layout)) == WHOLE
    all_of_it = pipeline_send(training_of(GPT_22B, layout, Implementation(scatter_gather=False)))
    assert [(m.when, moved(m)) for m in all_of_it] == [
        ("forward", WHOLE), ("backward", WHOLE),
    ]  # fmt: skip
    shared = pipeline_send(training_of(GPT_22B, layout))
    assert sent(shared, "forward", "pipeline") == WHOLE / 8
    assert sent(shared, "forward") == 7 / 8 * WHOLE
    split = pipeline_send(training_of(GPT_22B, replace(layout, sequence_parallel=True)))
    assert {m.group for m in split} == {"pipeline"}
    assert pipeline_send(training_of(GPT_22B, Layout())) == ()


@pytest.mark.parametrize(("zero", "volume"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_sharding_moves_what_the_zero_paper_says(zero, volume) -> None:
    """Rajbhandari et al. (2020), section 7: 2, 2 and 3 times the parameters, nearly."""
    kept = Implementation(gradient_bytes=2)
    (stage,) = step_communications(training_of(LLAMA3_8B, Layout(data=64, zero=zero), kept), 1)
    total = sum(m.count * moved(m) for m in stage)
    assert total == pytest.approx(volume * 63 / 64 * 2 * LLAMA3_8B.parameters)


@pytest.mark.parametrize(("zero", "weights", "scatters"), [(1, 1, 1), (2, 1, 6), (3, 12, 6)])
def test_copies_of_sharded_states_add_up_their_shares_once(zero, weights, scatters) -> None:
    """Hybrid sharding: 64 ranks in 8 copies gather and scatter among 8, and sum an eighth."""
    layout = Layout(data=64, expert=4, zero=zero, replicate=8)
    (stage,) = step_communications(training_of(MIXTRAL, layout), 6)
    routed = 32 * 8 * MIXTRAL.dense_parameters(14336)
    dense = MIXTRAL.parameters - routed
    found = {(m.group, m.kind): (m.ranks, m.size, m.count) for m in stage}
    assert found == {
        ("data", "allgather"): (8, 2 * dense, weights),
        ("data", "reducescatter"): (8, 4 * dense, scatters),
        ("copies", "allreduce"): (8, 4 * (dense / 8 + routed / 4 / 2), 1),
        ("expert-data", "allgather"): (2, 2 * routed / 4, weights),
        ("expert-data", "reducescatter"): (2, 4 * routed / 4, scatters),
    }


def test_experts_and_tied_embeddings_are_summed_by_their_own_groups() -> None:
    layout = Layout(data=8, expert=4, zero=0)
    (stage,) = step_communications(training_of(MIXTRAL, layout), 4)
    routed = 32 * 8 * MIXTRAL.dense_parameters(14336)
    by_group = {m.group: m for m in stage}
    assert by_group["expert-data"].ranks == 2
    assert by_group["expert-data"].size == 4 * routed / 4
    assert by_group["data"].size == 4 * (MIXTRAL.parameters - routed)
    first, middle, last = step_communications(training_of(GPT_22B, Layout(pipeline=3)), 4)
    assert middle == ()
    assert first == last
    assert first[0].group == "embedding"
    assert first[0].size == 4 * 51200 * 6144


@pytest.mark.parametrize(("zero", "share"), [(0, 1), (1, 1), (2, 8), (3, 8)])
def test_stages_sum_of_a_tied_embedding_what_a_rank_keeps(zero: int, share: int) -> None:
    """Eight of 16 ranks share a copy: from ZeRO 2 on none of them has more than an eighth."""
    layout = Layout(2, 2, 8, 3, zero=zero, replicate=2 if zero else 1)
    training = training_of(GPT_22B, layout)
    stages = step_communications(training, 4)
    tied = [[m.size for m in stage if m.group == "embedding"] for stage in stages]
    assert tied == [[4 * 51200 * 6144 / 2 / share], [], [4 * 51200 * 6144 / 2 / share]]
    placement = Placement(layout, 4)
    loads = loads_of(training, placement, rates_of("h100"), nvlink_server("h100", 4))
    assert loads.tied_bytes * 0.8 == pytest.approx(4 * 51200 * 6144 / share)


LINKS = Links(8, 100.0, 10.0)


@pytest.mark.parametrize(
    ("kind", "size", "span", "seconds"),
    [
        ("allreduce", 800.0, GroupPlacement(8, 8), 2 * 7 / 8 * 800 / 100),
        ("allreduce", 800.0, GroupPlacement(4, 1), 2 * 3 / 4 * 800 / 10),
        # Eight NICs side by side carry what one ring across two servers moves.
        ("allreduce", 800.0, GroupPlacement(16, 8), 2 * 15 / 16 * 800 / 80),
        ("allgather", 800.0, GroupPlacement(8, 8), 7 / 8 * 800 / 100),
        ("reducescatter", 800.0, GroupPlacement(4, 1), 3 / 4 * 800 / 10),
        ("alltoall", 800.0, GroupPlacement(8, 8), 7 / 8 * 800 / 100),
        ("alltoall", 800.0, GroupPlacement(16, 8), 8 / 16 * 800 / 10),
        ("ring", 800.0, GroupPlacement(4, 4), 3 * 800 / 100),
        ("send", 800.0, GroupPlacement(2, 1), 800 / 10),
        ("send", 800.0, GroupPlacement(2, 2), 800 / 100),
        ("allreduce", 800.0, GroupPlacement(1, 1), 0.0),
    ],
)
def test_times_of_long_messages(kind, size, span, seconds) -> None:
    assert collective_seconds(kind, size, span, LINKS) == pytest.approx(seconds)


def test_latency_counts_steps() -> None:
    links = Links(8, 100.0, 10.0, intra_latency=1.0, inter_latency=5.0)
    assert collective_seconds("allreduce", 0.0, GroupPlacement(32, 8), links) == 2 * (7 + 2 * 5)
    assert collective_seconds("allgather", 0.0, GroupPlacement(4, 1), links) == 3 * 5
    assert collective_seconds("alltoall", 0.0, GroupPlacement(8, 8), links) == 1
    assert collective_seconds("ring", 0.0, GroupPlacement(4, 1), links) == 15


def test_spans_follow_the_stride_of_ranks() -> None:
    assert group_placement_of(8, 1, 8) == GroupPlacement(8, 8)
    assert group_placement_of(32, 8, 8) == GroupPlacement(32, 1)
    assert group_placement_of(32, 2, 8) == GroupPlacement(32, 4)
    assert group_placement_of(2, 64, 8) == GroupPlacement(2, 1)
    assert GroupPlacement(32, 4).servers == 8


def test_links_of_a_server_add_up_its_mesh() -> None:
    links = Links.of_server(Server(gpus=4, intra_bandwidth=25e9), 100e9)
    assert (links.intra_bandwidth, links.inter_bandwidth) == (75e9, 25e9)


def test_links_of_known_servers_have_nvlink() -> None:
    assert links_of("h100", 8, 50e9).intra_bandwidth == 450e9
    assert links_of("a100", 4, 25e9).gpus == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: links_of(replace(get_accelerator("a100"), name="tpu-9"), 8, 1.0),
        lambda: Links(0, 1.0, 1.0),
        lambda: Links(8, 0.0, 1.0),
        lambda: Links(8, 1.0, 1.0, intra_efficiency=1.5),
        lambda: Links(8, 1.0, 1.0, inter_latency=-1.0),
    ],
)
def test_nonsense_is_refused(make) -> None:
    with pytest.raises(InputError):
        make()
