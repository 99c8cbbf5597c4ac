"""What layouts and parts have in common is what it is worked out to be for each alone."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import LATENT, MIXTRAL, gpt
from trainings import training_of

from parallelism.transformers import activations, collectives, costs, pass_seconds, stages
from parallelism.transformers.attention import SlidingWindow
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.links import links_of

NEAR = replace(LATENT, name="near", window=SlidingWindow(128, (1, 3)))
MODELS = [gpt(8, 1024, 16, 5000), MIXTRAL, LATENT, NEAR]
PLAIN = Implementation()


@cache
def layouts_of(which):
    model = MODELS[which]
    choices = Choices(recompute=("none", "full", "modules"), replicate=(1, 2))
    return enumerate_layouts(LayoutSpace(model, 32, 8, 64, model.sequence, choices))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 10**6))
def test_layers_depend_on_nothing_that_is_left_out(which, number, layer):
    model = MODELS[which]
    layout = layouts_of(which)[number % len(layouts_of(which))]
    layer %= model.layers
    known = training_of(model, layout, PLAIN), layer
    assert costs.layer_costs(*known) == costs._layer_costs.__wrapped__(*known)
    kept = activations._layer_activations.__wrapped__(*known)
    assert activations.layer_activations(*known) == kept
    sent = collectives._layer_communications.__wrapped__(*known)
    assert collectives.layer_communications(*known) == sent
    rates, links = rates_of("h100"), links_of("h100", 8, 50e9)
    for without in (frozenset(), frozenset({"tensor", "expert"})):
        seconds = pass_seconds.layer_seconds(*known, rates, links, without)
        assert seconds == pass_seconds._layer_seconds.__wrapped__(*known, rates, links, without)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(0, 10**6))
def test_parts_depend_on_nothing_that_is_left_out(which, number):
    model = MODELS[which]
    layout = layouts_of(which)[number % len(layouts_of(which))]
    parts = stages.parts_of(model, layout)
    assert parts == stages._parts_of.__wrapped__(model, layout)
    weights = tuple(stages.part_weights(model, part, layout) for part in parts)
    assert stages.all_part_weights(model, layout) == weights
    for stage, count in enumerate(stages.stage_weights(model, layout)):
        own = [each for each, part in zip(weights, parts, strict=True) if part.stage == stage]
        assert count.dense == pytest.approx(sum(each.dense for each in own))
        assert count.expert == pytest.approx(sum(each.expert for each in own))
    for part, first in zip(parts, stages.alike_parts(model, layout), strict=True):
        assert first <= parts.index(part)
        assert replace(parts[first], stage=0, chunk=0, first=0).kinds(model) is not None
        assert (parts[first].layers, parts[first].embedding, parts[first].head) == (
            part.layers, part.embedding, part.head,
        )  # fmt: skip


@settings(deadline=None)
@given(st.integers(0, 3), st.integers(0, 12), st.integers(0, 12))
def test_layers_of_each_kind_are_counted(which, first, count):
    model = MODELS[which]
    count = min(count, max(0, model.layers - first))
    kinds = costs.layer_kinds(model, first, count)
    assert all(example < model.layers for example, _ in kinds)
    counted = {(model.has_experts(i), model.slides(i)): layers for i, layers in kinds}
    layers = [(model.has_experts(i), model.slides(i)) for i in range(first, first + count)]
    assert counted == Counter(layers)
    assert len(counted) == len(kinds)
