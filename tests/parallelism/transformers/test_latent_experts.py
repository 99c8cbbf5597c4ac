"""Experts that read a narrower width than the layer: weights, products, messages, memory."""

from dataclasses import replace

import pytest

from codesign_base import InputError
from parallelism.transformers.activations import layer_activations
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention
from parallelism.transformers.collectives import layer_communications
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.experts import Experts
from parallelism.transformers.layout import Layout
from parallelism.transformers.operators import model_graph
from parallelism.transformers.stages import layer_weights
from tests.helpers.trainings import training_of

EXPERTS = Experts(8, 2, 48, shared=1, shared_width=96, latent_width=32)
MODEL = Transformer("x", 3, 128, Attention(4, 2, 32), 48, 640, 64, experts=EXPERTS)
WIDE = replace(MODEL, experts=replace(EXPERTS, latent_width=0))


def test_experts_have_narrow_matrices_between_two_projections() -> None:
    ours, usual = MODEL.layer_parameters(0), WIDE.layer_parameters(0)
    assert usual - ours == 8 * 2 * 48 * (128 - 32) - 2 * 128 * 32
    ours, usual = (one.layer_parameters(0, active=True) for one in (MODEL, WIDE))
    assert usual - ours == 2 * 2 * 48 * (128 - 32) - 2 * 128 * 32
    assert WIDE.experts is not None
    assert (EXPERTS.reads(128), WIDE.experts.reads(128)) == (32, 128)


def test_tensor_ranks_hold_the_projections_whole() -> None:
    one = layer_weights(MODEL, 0, Layout())
    assert one.dense + one.expert == MODEL.layer_parameters(0)
    half = layer_weights(MODEL, 0, Layout(tensor=2))
    assert half.expert == one.expert / 2
    whole = 2 * 128 * 32 + 128 * 8 + 2 * 128  # projections, router, norms
    assert half.dense == (one.dense - whole) / 2 + whole


def test_products_are_those_of_the_weights_that_a_token_meets() -> None:
    layout = Layout(sequence_parallel=False)
    less = [layer_costs(training_of(one, layout), 0).forward for one in (WIDE, MODEL)]
    met = [one.layer_parameters(0, active=True) for one in (WIDE, MODEL)]
    assert less[0].flops - less[1].flops == pytest.approx(2 * 64 * (met[0] - met[1]))
    graphs = [model_graph(one) for one in (WIDE, MODEL)]
    flops = [sum(op.forward_flops for op in graph.operators) for graph in graphs]
    assert flops[0] - flops[1] == pytest.approx(3 * 2 * 64 * (met[0] - met[1]))
    assert sum(op.parameters for op in graphs[1].operators) == MODEL.parameters


def test_narrow_tokens_go_to_experts_and_are_kept() -> None:
    layout = Layout(data=2, expert=2)

    def exchanged(model: Transformer) -> list[float]:
        found = layer_communications(training_of(model, layout), 0)
        return [message.size for message in found if message.kind == "alltoall"]

    assert exchanged(MODEL) == [size * 32 / 128 for size in exchanged(WIDE)] != []
    kept = [layer_activations(training_of(one, layout), 0).rest for one in (WIDE, MODEL)]
    # Two copies of each token as they are sent and as they come; and the sum to be projected back.
    assert kept[0] - kept[1] == 2 * (2 * 2 * 64) * (128 - 32) - 2 * 64 * 32


def test_a_latent_width_is_a_whole_number() -> None:
    with pytest.raises(InputError, match="latent_width is -1; give a whole number of at least 0"):
        replace(EXPERTS, latent_width=-1)
