"""Layers of the parts of a pipeline: least busy stages by brute force, weights of the ends."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_parts import stage_of
from small_transformers import GPT3_175B, LLAMA3_8B
from trainings import training_of

from parallelism.accelerators import get_accelerator
from parallelism.device import Server
from parallelism.transformers.balance import layer_loads
from parallelism.transformers.choices import Choices, LayoutSpace
from parallelism.transformers.enumeration import enumerate_layouts
from parallelism.transformers.gpu import rates_of
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.iteration import iteration_time
from parallelism.transformers.layout import Layout
from parallelism.transformers.links import links_of
from parallelism.transformers.pass_seconds import all_part_seconds
from parallelism.transformers.presets import get_transformer
from parallelism.transformers.schedules import schedule_of
from parallelism.transformers.stage_maps import (
    LayerLoads,
    balanced_layers,
    busiest_stage,
    even_layers,
    usual_maps,
)

SERVER = Server(get_accelerator("h100"), 8, 150e9)


def every_map(layers, parts):
    """All maps with a layer in every part but the last, which may have none."""
    for cut in itertools.combinations(range(layers + 1), parts - 1):
        counts = [b - a for a, b in itertools.pairwise((0, *cut, layers))]
        if all(counts[:-1]):
            yield tuple(counts)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([("1f1b", 1), ("interleaved", 2), ("interleaved", 3), ("zero-bubble-v", 2)]),
    st.integers(2, 3), st.integers(1, 9), st.integers(0, 4), st.integers(0, 24),
)  # fmt: skip
def test_no_map_has_a_lesser_busiest_stage(kind, stages, layers, first, last) -> None:
    name, chunks = kind
    of = tuple(stage_of(name, stages, part) for part in range(stages * chunks))
    ends = LayerLoads(first / 4, last / 4)
    maps = list(every_map(layers, len(of)))
    found = balanced_layers(layers, of, ends)
    if layers < len(of) - 1:
        assert found is None
        return
    assert found in maps
    assert busiest_stage(found, of, ends) == min(busiest_stage(one, of, ends) for one in maps)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([("1f1b", 1), ("interleaved", 2), ("zero-bubble-v", 2)]), st.integers(2, 3),
    st.lists(st.integers(16, 160), min_size=6, max_size=10), st.integers(0, 24),
)  # fmt: skip
def test_layers_that_differ_are_passed_on_to_stages_that_have_less(
    kind, stages, each, head
) -> None:
    name, chunks = kind
    of = tuple(stage_of(name, stages, part) for part in range(stages * chunks))
    weights = LayerLoads(0.0, head / 4, tuple(one / 64 for one in each))
    maps = list(every_map(len(each), len(of)))
    found = balanced_layers(len(each), of, weights)
    assert found in maps
    busiest = busiest_stage(found, of, weights)
    alike = balanced_layers(len(each), of, weights._replace(layers=()))
    assert busiest <= busiest_stage(alike, of, weights)
    least = min(busiest_stage(one, of, weights) for one in maps)
    assert busiest <= 1.5 * least
    if name == "1f1b" and stages == 2:
        assert busiest <= 1.011 * least  # what gains less than 1 % changes nothing


def test_maps_weigh_layers_of_unlike_work() -> None:
    """Gemma 3 with long samples: each sixth layer meets all keys, the others 1024."""
    model, layout = get_transformer("gemma3-27b"), Layout(tensor=8, pipeline=16)
    training, rates = training_of(model, layout, Implementation(), 32_768), rates_of("h100")
    weights, of = layer_loads(training, rates, SERVER), tuple(range(16))
    assert len(weights.layers) == 62
    assert sum(weights.layers) == pytest.approx(62, abs=0.5)
    links, busiest = links_of("h100", 8, 50e9), []
    for loads in (weights._replace(layers=()), weights):
        found = replace(layout, stage_layers=balanced_layers(62, of, loads))
        one = training_of(model, found, Implementation(), 32_768)
        passes = all_part_seconds(one, rates, links)
        busiest.append(max(part.forward + part.backward + part.weight for part in passes))
    # The least that any map has, by a search over all of them.
    assert busiest[1] == pytest.approx(busiest[0] / 1.061, rel=0.01)


def one_by_one(layers, stages, ends):
    """Return the balanced map by looking at every part for every layer."""
    last = len(stages) - 1
    counts = [1] * last + [0]
    own = [(index == 0) * ends[0] + (index == last) * ends[1] for index in range(last + 1)]

    def rank(index):
        stage = [part for part in range(last + 1) if stages[part] == stages[index]]
        load = sum(counts[part] + own[part] for part in stage)
        return load, counts[index] + own[index], abs(index - last / 2)

    for _ in range(layers - last):
        counts[min(range(last + 1), key=rank)] += 1
    return tuple(counts)


@given(
    st.sampled_from([("1f1b", 1), ("interleaved", 3), ("zero-bubble-v", 2)]), st.integers(1, 8),
    st.integers(0, 80), st.integers(0, 40), st.integers(0, 40),
)  # fmt: skip
def test_each_layer_goes_to_the_stage_that_has_least(kind, stages, more, first, last) -> None:
    name, chunks = kind
    of = tuple(stage_of(name, stages, part) for part in range(stages * chunks))
    # Sums of eighths are exact in any order.
    ends, layers = LayerLoads(first / 8, last / 8), len(of) - 1 + more
    assert balanced_layers(layers, of, ends) == one_by_one(layers, of, ends)


def test_many_layers_are_balanced_over_many_parts() -> None:
    of, ends = tuple(range(512)) * 4, LayerLoads(0.25, 1.25)
    found = balanced_layers(10_000, of, ends)
    assert sum(found) == 10_000
    assert busiest_stage(found, of, ends) == 20.0


@given(st.integers(1, 40), st.integers(1, 40))
def test_even_maps_spare_the_ends(layers, parts) -> None:
    found = even_layers(layers, parts)
    assert sum(found) == layers
    assert max(found) - min(found) <= 1
    if layers % parts <= parts - 2:
        assert found[0] == found[-1] == min(found)


def test_maps_that_are_looked_at() -> None:
    four = (0, 1, 2, 3)
    assert list(usual_maps(8, four, LayerLoads(), folded=False)) == [()]
    assert list(usual_maps(8, four, LayerLoads(head=2.0), folded=False)) == [(), (2, 3, 3, 0)]
    # Fewer layers than parts leave the last one the head alone.
    assert list(usual_maps(3, four, LayerLoads(head=2.0), folded=False)) == [(1, 1, 1, 0)]
    assert list(usual_maps(2, four, LayerLoads(head=2.0), folded=False)) == []
    folded = (0, 1, 1, 0)
    assert list(usual_maps(8, folded, LayerLoads(head=2.0), folded=True)) == [(3, 3, 2, 0)]
    # There and back, or with a layer more in each part of the way there.
    assert list(usual_maps(8, folded, LayerLoads(), folded=True)) == [(), (3, 3, 1, 1)]


def test_a_folded_model_with_more_layers_on_its_way_there_is_done_earlier() -> None:
    """Every stage has as many layers; the timeline of the schedule says which order is faster."""
    links, rates = links_of("h100", 8, 50e9), rates_of("h100")
    layout = Layout(pipeline=4, schedule="zero-bubble-v", virtual_stages=2)
    even, ahead = (
        iteration_time(
            training_of(LLAMA3_8B, replace(layout, stage_layers=layers)),
            schedule_of(layout, 16), rates, links,
        )
        for layers in (even_layers(32, 8), (5, 5, 5, 5, 3, 3, 3, 3))
    )  # fmt: skip
    assert ahead < even


@pytest.mark.parametrize("layout", [Layout(), Layout(tensor=8, microbatch=2, recompute="full")])
def test_ends_weigh_what_their_parts_take(layout) -> None:
    model, links = get_transformer("llama3-8b"), links_of("h100", 8, 50e9)
    rates, software = rates_of("h100"), Implementation()
    alone = Layout(tensor=layout.tensor, pipeline=3, microbatch=layout.microbatch,
                   recompute=layout.recompute, stage_layers=(0, 32, 0))  # fmt: skip
    first, layers, last = all_part_seconds(training_of(model, alone, software), rates, links)
    one = (layers.forward + layers.backward + layers.weight) / 32
    ends = layer_loads(training_of(model, layout, software), rates, SERVER)
    assert ends.layers == ()
    for weight, part in zip(ends[:2], (first, last), strict=True):
        seconds = part.forward + part.backward + part.weight
        assert weight == pytest.approx(seconds / one, abs=0.13)
    assert ends.head > 1.0


def test_a_large_head_leaves_its_stage_fewer_layers() -> None:
    """The balanced map of Llama 3 8B shortens the iteration; GPT-3's small head needs none."""

    def ends(layout):
        return layer_loads(
            training_of(LLAMA3_8B, layout, Implementation()), rates_of("h100"), SERVER
        )

    chosen = Choices(pipeline=(8,), tensor=(1,), context=(1,), microbatch=(1,),
                     schedules=("1f1b",), recompute=("none",))  # fmt: skip
    even, balanced = enumerate_layouts(LayoutSpace(LLAMA3_8B, 64, 8, 512, 8192, chosen), ends)
    assert even.stage_layers == ()
    assert balanced.stage_layers[-1] <= 2
    links = links_of("h100", 8, 50e9)
    times = [
        iteration_time(
            training_of(LLAMA3_8B, layout), schedule_of(layout, 512), rates_of("h100"), links
        )
        for layout in (even, balanced)
    ]
    assert times[1] < 0.85 * times[0]
    assert len(enumerate_layouts(LayoutSpace(GPT3_175B, 64, 8, 512, 2048, chosen))) == 1


def test_asked_maps_are_the_only_ones() -> None:
    asked = Choices(stage_layers=(9, 9, 9, 5), schedules=("1f1b", "zero-bubble-v"))
    found = enumerate_layouts(
        LayoutSpace(LLAMA3_8B, 64, 8, 512, 8192, asked), lambda _: LayerLoads(head=2.0)
    )
    assert {layout.stage_layers for layout in found} == {(9, 9, 9, 5)}
    assert {layout.schedule for layout in found} == {"1f1b", "zero-bubble-v"}
    weighed: list[Layout] = []
    weigh = lambda layout: weighed.append(layout) or LayerLoads(head=2.0)  # noqa: E731
    assert enumerate_layouts(LayoutSpace(LLAMA3_8B, 64, 8, 512, 8192, asked), weigh) == found
    assert not weighed, "what the ends weigh moves no layer of an asked map"
