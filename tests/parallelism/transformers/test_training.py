"""What a model is trained with is one object, shared by layouts whose layers are alike."""

import pickle
from dataclasses import replace

import pytest
from small_transformers import GPT_22B, LLAMA3_8B, MIXTRAL
from trainings import training_of

from codesign_base import InputError
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout


@pytest.mark.parametrize(("split", "own"), [(True, 1024), (False, 4096)])
def test_tokens_of_a_rank(split, own) -> None:
    layout = Layout(tensor=4, context=2, data=8, expert=8, microbatch=2, sequence_parallel=split)
    training = training_of(MIXTRAL, layout, Implementation(load_imbalance=1.5), sequence=4096)
    assert (training.tokens, training.own_tokens) == (4096, own)
    assert training.arriving_tokens == 1.5 * MIXTRAL.experts.per_token * 4096
    folded = replace(layout, expert_tensor=1, expert=16, sequence_parallel=True)
    assert replace(training, layout=folded).arriving_tokens == training.arriving_tokens / 4


def test_layouts_whose_layers_are_alike_share_one() -> None:
    layout = Layout(tensor=2, data=4)
    one, other = training_of(LLAMA3_8B, layout), training_of(LLAMA3_8B, replace(layout, data=8))
    assert one != other
    assert one.of_layers is other.of_layers
    assert one.of_weights is other.of_weights
    assert one.of_layers.of_layers is one.of_layers
    assert training_of(LLAMA3_8B, layout, sequence=1024).of_layers != one.of_layers
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(
    ("model", "layout", "sequence", "message"),
    [
        (LLAMA3_8B, Layout(), 0, "sequence is 0; give at least 1"),
        (GPT_22B, Layout(), 2049, "sequence is 2049, but .* has 2048 learned positions"),
        (LLAMA3_8B, Layout(context=4), 6, "context is 4, which does not divide sequence = 6"),
    ],
)
def test_sequences_that_cannot_be_are_refused(model, layout, sequence, message) -> None:
    with pytest.raises(InputError, match=message):
        training_of(model, layout, sequence=sequence)


@pytest.mark.parametrize(
    ("layout", "asked", "busiest"),
    [
        (Layout(data=8), 9.0, 1.0),
        (Layout(data=8, expert=2), 1.5, 1.5),
        (Layout(data=8, expert=2), 4.0, 2.0),
        (Layout(data=8, expert=8), 3.0, 3.0),
        (Layout(data=8, expert=8), 9.0, 4.0),
    ],
)
def test_experts_are_as_uneven_as_their_ranks_can_be(layout, asked, busiest) -> None:
    """Of 8 experts, 2 a token: a rank gets its group's tokens at most, each once or twice."""
    training = training_of(MIXTRAL, layout, Implementation(load_imbalance=asked))
    assert training.load_imbalance == training.of_layers.load_imbalance == busiest
    held, chosen = MIXTRAL.experts.count // layout.expert, MIXTRAL.experts.per_token
    assert busiest <= min(held, chosen) / (chosen / layout.expert)
