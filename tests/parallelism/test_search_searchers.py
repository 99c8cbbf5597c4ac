"""The searchers: determinism, local optimality and seeds, against enumeration."""

import itertools
import math
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from small_cases import operator

from parallelism.graph import Mode, ModelGraph, Split
from parallelism.models import get_model
from parallelism.search.annealing import Annealer
from parallelism.search.forest import SplitCosts, least
from parallelism.search.local import BOUNDARIES, LocalSearch
from parallelism.search.mcmc import Acceptance
from parallelism.search.moves import assign, propose_region, transpose
from parallelism.search.named import data_parallel, hybrid
from parallelism.search.partition import partitions
from parallelism.search.portfolio import Portfolio
from parallelism.search.regions import Regions
from parallelism.search.seeds import (
    narrow_first,
    placed_degrees,
    streams_on_halves,
    widening_branches,
)
from parallelism.search.size import space_size
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy, check_legal


def small_space(servers=4, count=3, **options):
    ops = tuple(operator(f"op{i}", (i - 1,) if i else ()) for i in range(count))
    return StrategySpace(ModelGraph("chain", ops, 1), servers, 24, **options)


class Rugged:
    """A cost a configuration, and a price for neighbours that stand apart; it counts its work."""

    def __init__(self, seed):
        self.weights = np.random.default_rng(seed).uniform(1.0, 2.0, size=(8, 41))
        self.work = 0.0

    def __call__(self, strategy, limit=math.inf):
        self.work += 1.0
        total = 0.0
        for index, config in enumerate(strategy.configs):
            key = config.sample * 7 + config.parameter * 3 + config.mode + sum(config.servers)
            total += self.weights[index, key % 41]
        for a, b in itertools.pairwise(strategy.configs):
            total += 0.3 * len(set(a.servers) ^ set(b.servers))
        return total if total <= limit else math.inf


def configurations(space, index):
    return [c for degrees in space.degrees(index) for c in space.placements(*degrees)]


def searchers(space, score, start):
    regions, time = Regions(space.graph, space.alike), score(start)
    return {
        "annealing": lambda: Annealer(space, regions, start, time, period=100),
        "local": lambda: LocalSearch(space, regions, start, time),
        "portfolio": lambda: Portfolio(
            [
                Annealer(space, regions, start, time, period=100),
                LocalSearch(space, regions, start, time),
            ]
        ),
    }


class Searched(NamedTuple):
    strategy: Strategy
    time: float
    steps: int


def run_searcher(searcher, score, rng, steps):
    """Let a searcher make at most so many proposals."""
    made = 0
    while made < steps and searcher.step(score, rng):
        made += 1
    return Searched(searcher.best, searcher.best_time, made)


@pytest.mark.parametrize("servers", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_local_search_ends_where_no_single_operator_move_is_better(servers, seed):
    space, score = small_space(servers, any_parts=True), Rugged(seed)
    start = space.intern(data_parallel(space))
    found = run_searcher(
        searchers(space, score, start)["local"](), score, np.random.default_rng(seed), 10**6
    )
    assert found.time == score(found.strategy)
    for index in range(len(start.configs)):
        for config in configurations(space, index):
            assert score(found.strategy.replace([(index, config)])) >= found.time * (1 - 1e-9)


@pytest.mark.parametrize("servers", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_portfolio_finds_the_optimum_of_a_small_space(servers, seed):
    score = Rugged(seed)
    space = small_space(servers, 2, any_parts=True, parameter_splits=servers < 4)
    start = space.intern(data_parallel(space))
    choices = [configurations(space, i) for i in range(2)]
    best = min(score(Strategy(configs)) for configs in itertools.product(*choices))
    regions, time = Regions(space.graph, space.alike), score(start)
    # These costs are unrelated from one configuration to the next: only heat helps.
    hot = Annealer(
        space, regions, start, time, period=500, acceptance=Acceptance(start=0.3, end=0.01)
    )
    portfolio = Portfolio([hot, LocalSearch(space, regions, start, time)])
    found = run_searcher(portfolio, score, np.random.default_rng(seed), 3000)
    # Moves reach a little more than the regular placements.
    assert found.time <= best + 1e-12


@pytest.mark.parametrize("name", ["annealing", "local", "portfolio"])
def test_the_same_seed_gives_the_same_search_and_never_less_than_its_start(name):
    space = small_space(4, 5)
    start = space.intern(data_parallel(space))

    def run(seed):
        score = Rugged(3)
        searcher = searchers(space, score, start)[name]()
        return run_searcher(searcher, score, np.random.default_rng(seed), 300)

    first = run(5)
    assert first == run(5)
    assert first.time <= Rugged(3)(start)
    assert first.time == Rugged(3)(first.strategy)


def test_a_portfolio_starts_from_its_best_member_and_tells_the_others():
    space, score = small_space(4, 4), Rugged(1)
    regions = Regions(space.graph, space.alike)
    slow = space.intern(data_parallel(space))
    fast = run_searcher(
        LocalSearch(space, regions, slow, score(slow)), score, np.random.default_rng(0), 10**6
    )
    members = [
        LocalSearch(space, regions, slow, score(slow)),
        LocalSearch(space, regions, fast.strategy, fast.time),
    ]
    portfolio = Portfolio(members)
    assert portfolio.best_time == fast.time
    rng = np.random.default_rng(0)
    while portfolio.step(score, rng):
        pass
    assert portfolio.best_time <= fast.time
    assert members[0].best_time <= fast.time


@pytest.mark.parametrize("model", ["bert-16", "candle-16", "dlrm-16"])
@pytest.mark.parametrize("servers", [7, 12, 16])
@pytest.mark.parametrize("parameter_splits", [True, False])
def test_region_moves_are_legal(model, servers, parameter_splits):
    graph = get_model(model)
    space = StrategySpace(
        graph, servers, servers * 64, any_parts=True, parameter_splits=parameter_splits
    )
    regions, rng = Regions(graph, space.alike), np.random.default_rng(2)
    strategy = space.intern(data_parallel(space))
    for _ in range(60):
        change = propose_region(space, regions, strategy, rng)
        assert len({index for index, _ in change}) == len(change)
        strategy = strategy.replace(change)
        check_legal(graph, strategy, servers, space.batch)
        if not parameter_splits:
            assert all(config.parameter == 1 for config in strategy.configs)


def test_transposing_exchanges_two_servers_of_one_set_wherever_it_stands():
    graph = get_model("candle-16")
    space = StrategySpace(graph, 16, 16 * 64, any_parts=True)
    regions, rng = Regions(graph, space.alike), np.random.default_rng(3)
    strategy = space.intern(partitions(space, regions, lambda i, n: 1.0 / n)["blocks-of-4-spread"])
    reached = set()
    for _ in range(100):
        change = dict(transpose(space, strategy, rng))
        (old,) = {strategy.configs[i] for i in change}
        (new,) = set(change.values())
        assert set(change) == {i for i, config in enumerate(strategy.configs) if config == old}
        assert (old.sample, old.parameter, old.mode) == (new.sample, new.parameter, new.mode)
        differ = [place for place in range(old.parts) if old.servers[place] != new.servers[place]]
        assert len(differ) == 2 and set(old.servers) == set(new.servers)
        reached.add(old)
    assert reached == {config for config in strategy.configs if config.parts > 1}
    alone = space.intern(Strategy((space.config(1, 1, Mode.OUTPUT, (0,)),) * len(graph.operators)))
    assert transpose(space, alone, rng) == []


def test_a_prime_number_of_servers_has_more_than_whole_and_data_parallel():
    space = small_space(7, any_parts=True)
    assert {s for s, p, _ in space.degrees(0) if p == 1} == {1, 2, 3, 4, 6}
    assert {s for s, p, _ in small_space(7).degrees(0) if p == 1} == {1}
    for degrees in space.degrees(0):
        placed = space.placements(*degrees)
        assert len(set(placed)) == len(placed)
        covered = {server for config in placed for server in config.servers}
        assert covered == set(range(7))


def test_columns_and_rows_alternate_along_a_chain():
    both = (Split(Mode.OUTPUT, 8), Split(Mode.REDUCTION, 8))
    ops = tuple(replace(operator(f"op{i}", (i - 1,) if i else ()), splits=both) for i in range(4))
    space = StrategySpace(ModelGraph("chain", ops, 1), 4, 24)
    strategy = space.intern(data_parallel(space))
    change = assign(space, strategy, (0, 1, 2, 3), space.placed(2, 2, Mode.OUTPUT), alternate=True)
    assert [config.mode for _, config in change] == [
        Mode.OUTPUT, Mode.REDUCTION, Mode.OUTPUT, Mode.REDUCTION,
    ]  # fmt: skip


def test_partitions_keep_towers_apart():
    graph = get_model("candle-16")
    space = StrategySpace(graph, 16, 16 * 256, any_parts=True)
    regions = Regions(graph, space.alike)
    found = partitions(space, regions, lambda index, parts: 1.0 / parts)
    four = found["blocks-of-4-spread"]
    check_legal(graph, four, 16, space.batch)
    sets = [{four.configs[i].servers for i in region} for region in regions.packing]
    assert all(len(servers) == 1 for servers in sets)
    blocks = sorted(next(iter(servers)) for servers in sets)
    assert sorted(map(len, blocks)) == [4, 4, 4, 4, 16]
    assert len({v for block in blocks if len(block) == 4 for v in block}) == 16


def test_widening_branches_begin_on_one_block_and_go_on_on_others():
    graph = get_model("candle-16")
    space = StrategySpace(graph, 16, 16 * 256, any_parts=True)
    regions = Regions(graph, space.alike)
    assert len(regions.packing) == 5
    wide = data_parallel(space)
    found = list(widening_branches(space, regions, lambda index, parts: 1.0 / parts, 4, wide))
    # Blocks of four only: strided and contiguous. Of four places two at which the branch goes on;
    # six different ones, with one or two of three other blocks between (three times four servers
    # do not divide the batch), and four equal ones, with nothing between.
    assert len(found) == len(set(found)) == 2 * (4 + 6 * 2 * 3)
    kinds = set()
    for strategy in found:
        check_legal(graph, strategy, 16, space.batch)
        stands = [
            list(dict.fromkeys(strategy.configs[i].servers for i in region))
            for region in regions.packing
        ]
        blocks = {sets[0] for sets in stands if len(sets) == 1 and len(sets[0]) == 4}
        assert len({v for block in blocks for v in block}) == 4 * len(blocks)
        for sets in stands:
            if len(sets) > 1:  # the branch that is left over
                legs = list(map(set, sets))
                for before, after in pairwise(legs):
                    assert not before & after or len(after) == 16
                for leg in legs:
                    assert leg == {v for block in blocks if set(block) <= leg for v in block}
                kinds.add(tuple(map(len, legs)))
    assert kinds == {(4, 4), (4, 8), (4, 16), (8, 16), (4, 4, 16), (4, 8, 16)}
    # As many blocks as branches leave nothing over.
    five = StrategySpace(graph, 5, 5 * 256)
    assert not list(widening_branches(five, regions, lambda *a: 1.0, 4, data_parallel(five)))


def test_what_is_in_no_branch_and_what_is_left_over_may_lie_as_in_another_strategy():
    graph = get_model("candle-16")
    space = StrategySpace(graph, 12, 12 * 256, any_parts=True)
    regions, others = Regions(graph, space.alike), hybrid(space)
    found = list(widening_branches(space, regions, lambda index, parts: 1.0 / parts, 2, others))
    inside = {i for region in regions.packing for i in region}
    left = []
    for strategy in found:
        check_legal(graph, strategy, 12, space.batch)
        assert all(
            strategy.configs[i] == others.configs[i]
            for i in set(range(len(graph.operators))) - inside
        )
        left.append(
            sum(all(strategy.configs[i] == others.configs[i] for i in r) for r in regions.packing)
        )
    # Three blocks of four servers, so that two of five branches are left over.
    assert max(left) == 2


@pytest.mark.parametrize("cuts", [17, 100])
def test_narrow_first_begins_on_some_servers_and_goes_on_on_all(cuts):
    graph = get_model("dlrm-16")
    space = StrategySpace(graph, 12, 12 * 64)
    tables, wide = hybrid(space), data_parallel(space)
    found = list(narrow_first(space, tables, cuts))
    sizes = set()
    for strategy in found:
        check_legal(graph, strategy, 12, space.batch)
        dense = []
        for index, (op, config) in enumerate(zip(graph.operators, strategy.configs, strict=True)):
            if op.sparse:
                assert config == tables.configs[index]
            else:
                dense.append(config)
        few = dense[0]
        narrow = list(itertools.takewhile(lambda config, few=few: config == few, dense))
        assert few.parameter == 1 and few.sample < 12
        assert dense[len(narrow) :] == [wide.configs[0]] * (len(dense) - len(narrow))
        sizes.add((few.servers, len(narrow)))
    # One server, and two, three, four or six that are beside each other or not; any of the dense
    # operators may be the last on them where there are cuts enough.
    assert len({servers for servers, _ in sizes}) == 1 + 2 * 4
    ends = {end for _, end in sizes}
    count = sum(not op.sparse for op in graph.operators)
    assert max(ends) == count
    if cuts == 100:
        assert ends == set(range(1, count + 1))


def test_streams_on_halves_use_both_halves_and_are_legal():
    graph = get_model("bert-16")
    space = StrategySpace(graph, 16, 1024, any_parts=True)
    found = list(streams_on_halves(space, Regions(graph, space.alike), 3))
    assert len(found) == len(set(found)) == 2 * 3 * 3
    for strategy in found:
        check_legal(graph, strategy, 16, 1024)
        halves = {c.servers for c in strategy.configs if c.parts == 8}
        assert len(halves) == 2 and not set.intersection(*map(set, halves))


def test_the_additive_optimum_equals_enumeration():
    rng = np.random.default_rng(4)
    for _ in range(20):
        sizes = rng.integers(1, 4, size=4).tolist()
        reader = (2, 2, 3, -1)
        own = tuple(rng.random((2, n)) for n in sizes)
        shared = tuple(
            rng.random((1, sizes[o], sizes[r])) if r >= 0 else None for o, r in enumerate(reader)
        )
        a, b = rng.random((4, 2)), rng.random((4, 1))
        value, chosen = least(SplitCosts(own, reader, shared), a, b)

        def cost(picks, own=own, shared=shared, a=a, b=b):
            total = sum(float(a[o] @ own[o][:, c]) for o, c in enumerate(picks))
            for o, r in enumerate((2, 2, 3)):
                total += float(b[o] @ shared[o][:, picks[o], picks[r]])
            return total

        best = min(map(cost, itertools.product(*map(range, sizes))))
        assert value == pytest.approx(best, rel=1e-12)
        assert cost(chosen) == pytest.approx(best, rel=1e-12)


def test_placed_degrees_follow_their_producers():
    space = small_space(4, 3)
    strategy = placed_degrees(
        space, [(2, 1, Mode.OUTPUT), (2, 1, Mode.OUTPUT), (1, 1, Mode.OUTPUT)],
        lambda index, parts: 1.0 / parts,
    )  # fmt: skip
    first, second, third = strategy.configs
    assert first.servers == second.servers
    assert third.servers[0] not in first.servers


def test_the_size_of_a_space_equals_its_enumeration():
    ops = tuple(
        replace(operator(name, inputs), profile_key="alike")
        for name, inputs in (("a", ()), ("b", (0,)), ("c", (1,)))
    )
    space = StrategySpace(ModelGraph("m", ops, 1), 3, 24, any_parts=True)
    size = space_size(space)
    assert [group.operators for group in size.groups] == [("a", "b", "c")]
    each = len(configurations(space, 0))
    assert size.groups[0].configurations == each
    assert size.tied_log10 == pytest.approx(math.log10(each))
    assert size.untied_log10 == pytest.approx(3 * math.log10(each))
    anywhere = sum(math.perm(3, sample * parameter) for sample, parameter, _ in space.degrees(0))
    assert size.any_log10 == pytest.approx(3 * math.log10(anywhere))


def test_boundaries_between_neighbours_move_both_ways():
    space = small_space(servers=4, count=4)
    left, right = (space.placed(2, 1, Mode.OUTPUT, offset=o, contiguous=True) for o in (0, 1))
    start = Strategy((left, left, right, right))
    search = LocalSearch(space, Regions(space.graph, space.alike), start, 1.0)
    reached = {start.replace(change).configs for change in search.neighbourhood(BOUNDARIES)}
    assert reached == {
        (left, left, left, right), (left, left, left, left),
        (left, right, right, right), (right, right, right, right),
    }  # fmt: skip


def test_where_all_stand_together_there_are_no_boundaries():
    space = small_space(servers=4, count=4)
    search = LocalSearch(
        space, Regions(space.graph, space.alike), data_parallel(space), 1.0
    )  # fmt: skip
    assert list(search.neighbourhood(BOUNDARIES)) == []
