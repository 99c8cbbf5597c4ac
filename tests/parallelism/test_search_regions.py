"""Regions of a model against their definitions, by sets."""

import numpy as np
import pytest
from small_cases import operator

from parallelism.graph import ModelGraph
from parallelism.models import get_model
from parallelism.search.regions import Regions
from parallelism.search.seeds import streams
from parallelism.search.space import StrategySpace


def regions_of(graph, servers=4):
    return Regions(graph, StrategySpace(graph, servers, 24).alike)


def towers():
    inputs = [(), (0,), (), (2,), (), (1, 3, 4), (5,)]
    ops = tuple(operator(f"op{i}", sources) for i, sources in enumerate(inputs))
    return ModelGraph("towers", ops, 1)


def ancestors(graph, index):
    found = {index}
    for source in graph.operators[index].inputs:
        found |= ancestors(graph, source)
    return found


@pytest.mark.parametrize("graph", [towers(), get_model("bert-16"), get_model("dlrm-16")])
def test_intervals_are_ancestors_and_descendants(graph):
    regions = regions_of(graph)
    count = len(graph.operators)
    above = [ancestors(graph, i) for i in range(count)]
    rng = np.random.default_rng(0)
    for first, last in rng.integers(count, size=(40, 2)).tolist():
        below = {i for i in range(count) if first in above[i]}
        assert set(regions.after(first)) == below
        assert set(regions.up_to(last)) == above[last]
        assert set(regions.between(first, last)) == below & above[last]


def test_towers_are_branches_and_pack():
    regions = regions_of(towers())
    assert {(0, 1), (2, 3)} <= set(regions.branches)
    assert set(regions.packing) == {(0, 1), (2, 3), (4,)}
    assert regions.trunk == (5, 6)


def test_the_towers_of_candle_pack_apart():
    graph = get_model("candle-16")
    packing = regions_of(graph, 16).packing
    assert sorted(len(region) for region in packing) == [12] * 5
    for region in packing:
        assert len({graph.operators[i].name.rsplit("_", 1)[0] for i in region}) == 1


def test_the_streams_of_the_two_stream_transformer():
    graph = get_model("bert-16")
    first, second = streams(regions_of(graph, 16))
    assert all("first" in graph.operators[i].name for i in first)
    assert not any("first" in graph.operators[i].name for i in second)
    assert len(first) + len(second) == len(graph.operators)


@pytest.mark.parametrize("graph", [towers(), get_model("bert-16"), get_model("vgg16-16")])
def test_random_regions_are_sorted_and_those_beside_each_other_disjoint(graph):
    regions, rng = regions_of(graph), np.random.default_rng(1)
    for _ in range(100):
        region = regions.random(rng)
        assert region and list(region) == sorted(set(region))
        pair = regions.beside(rng)
        assert len(set().union(*pair)) == sum(map(len, pair))
