"""The Markov chain: its acceptance rule, its moves, and that it finds known optima."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import operator

from parallelism.graph import Mode, ModelGraph
from parallelism.search.mcmc import Acceptance, Chain, propose
from parallelism.search.named import data_parallel
from parallelism.search.space import StrategySpace
from parallelism.strategy import Strategy, check_legal

RULES = {"relative": Acceptance(), "absolute": Acceptance(absolute_alpha=0.05)}


def chain_space(servers, count=4, **kind):
    ops = tuple(operator(f"op{i}", (i - 1,) if i else ()) for i in range(count))
    return StrategySpace(ModelGraph("chain", ops, 1), servers, 24, **kind)


def probability(rule, current, proposed, progress):
    """The acceptance probability as the literature writes it."""
    if rule.absolute_alpha is not None:
        return math.exp(min(0.0, -rule.absolute_alpha * (proposed - current) * 1e3))
    temperature = rule.start ** (1 - progress) * rule.end**progress
    return math.exp(min(0.0, -(proposed / current - 1.0) / temperature))


@pytest.mark.parametrize("name", RULES)
@given(
    current=st.floats(1e-4, 1e2),
    factor=st.floats(0.5, 1.5),
    uniform=st.floats(0.0, 1.0, exclude_max=True),
    progress=st.floats(0.0, 1.0),
)
@settings(max_examples=120, deadline=None)
def test_threshold_accepts_exactly_when_a_number_drawn_is_below_the_probability(
    name, current, factor, uniform, progress
):
    rule, proposed = RULES[name], current * factor
    chance = probability(rule, current, proposed, progress)
    if math.isclose(chance, uniform, rel_tol=1e-6, abs_tol=1e-12):
        return
    limit = rule.threshold(current, uniform, progress)
    assert (proposed <= limit) == (uniform < chance)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_threshold_accepts_as_often_as_the_probability_says(name, progress):
    rule = RULES[name]
    rng = np.random.default_rng(7)
    draws = 20_000
    limits = np.array([rule.threshold(0.02, float(u), progress) for u in rng.random(draws)])
    for proposed in (0.019, 0.02, 0.0201, 0.021, 0.03):
        chance = probability(rule, 0.02, proposed, progress)
        accepted = float(np.mean(proposed <= limits))
        # Five standard deviations.
        assert abs(accepted - chance) <= 5 * math.sqrt(chance * (1 - chance) / draws) + 1e-12


def test_relative_acceptance_does_not_depend_on_the_scale():
    rule = Acceptance()
    for scale in (1e-6, 1.0, 1e6):
        limit = rule.threshold(scale, 0.3, 0.4)
        assert limit / scale == pytest.approx(rule.threshold(1.0, 0.3, 0.4), rel=1e-12)


def test_temperature_falls_and_a_number_of_zero_accepts_all():
    rule = Acceptance()
    limits = [rule.threshold(1.0, 0.5, p) for p in np.linspace(0, 1, 9)]
    assert limits == sorted(limits, reverse=True) and limits[-1] > 1.0
    assert rule.threshold(1.0, 0.0, 0.5) == math.inf


@given(
    servers=st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12]),
    count=st.integers(1, 5),
    sample_only=st.booleans(),
    plain=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_every_proposal_is_legal_and_changes_something(servers, count, sample_only, plain, seed):
    space = chain_space(servers, count, sample_only=sample_only)
    strategy = space.intern(data_parallel(space))
    rng = np.random.default_rng(seed)
    for _ in range(20):
        change = propose(space, strategy, rng, plain=plain)
        assert len({index for index, _ in change}) == len(change)
        assert all(strategy.configs[index] != config for index, config in change)
        strategy = strategy.replace(change)
        check_legal(space.graph, strategy, servers, space.batch)
        assert all(space.allows(i, c) for i, c in enumerate(strategy.configs))


def test_plain_moves_change_one_operator_or_copy_a_neighbour():
    space = chain_space(4, 6)
    rng = np.random.default_rng(3)
    strategy = space.intern(data_parallel(space))
    for _ in range(300):
        change = propose(space, strategy, rng, plain=True)
        if len(change) > 1:
            assert len({id(config) for _, config in change}) == 1
        strategy = strategy.replace(change)


def all_strategies(space):
    choices = []
    for index in range(len(space.graph.operators)):
        found = {}
        for sample, parameter, mode in space.degrees(index):
            for offset, contiguous, adjacent in itertools.product(
                range(space.servers), (False, True), (False, True)
            ):
                config = space.placed(
                    sample, parameter, mode, offset=offset, contiguous=contiguous,
                    adjacent=adjacent,
                )  # fmt: skip
                found[id(config)] = config
        choices.append(list(found.values()))
    return [Strategy(configs) for configs in itertools.product(*choices)]


def rugged_score(seed):
    """A cost without structure but what neighbours share: servers in common are cheaper."""
    weights = np.random.default_rng(seed).uniform(1.0, 2.0, size=(4, 40))

    def score(strategy, limit=math.inf):
        total = 0.0
        for index, config in enumerate(strategy.configs):
            key = config.sample * 7 + config.parameter * 3 + config.mode + sum(config.servers)
            total += weights[index, key % 40]
        for a, b in itertools.pairwise(strategy.configs):
            total += 0.3 * len(set(a.servers) ^ set(b.servers))
        return total if total <= limit else math.inf

    return score


@pytest.mark.parametrize("servers", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(5))
def test_the_chain_finds_the_optimum_of_a_small_space(servers, seed):
    space = chain_space(servers, 2)
    score = rugged_score(seed)
    optimum = min(score(strategy) for strategy in all_strategies(space))
    start = space.intern(data_parallel(space))
    chain = Chain.start(start, score(start))
    rng = np.random.default_rng(seed)
    steps = 3000 * servers
    for step in range(steps):
        change = propose(space, chain.strategy, rng)
        chain.step(change, score, rng, Acceptance(start=0.3, end=0.03), step / steps)
    assert chain.best_time == pytest.approx(optimum, rel=1e-12)
    assert score(chain.best) == chain.best_time


def run_chain(seed, plain, rule, steps=300):
    space = chain_space(4)
    score = rugged_score(1)
    start = space.intern(data_parallel(space))
    chain = Chain.start(start, score(start))
    rng = np.random.default_rng(seed)
    path = []
    for step in range(steps):
        change = propose(space, chain.strategy, rng, plain=plain)
        chain.step(change, score, rng, rule, step / steps)
        path.append((chain.strategy, chain.time))
        assert chain.best_time == min([score(start), *(time for _, time in path)])
        assert chain.time == score(chain.strategy)
    return path


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_the_same_seed_gives_the_same_chain(plain, name):
    first = run_chain(5, plain, RULES[name])
    assert first == run_chain(5, plain, RULES[name])
    assert first != run_chain(6, plain, RULES[name])
    assert any(before[0] != after[0] for before, after in itertools.pairwise(first))


def test_what_does_not_fit_is_never_accepted():
    space = chain_space(4)
    start = space.intern(data_parallel(space))
    chain = Chain.start(start, 1.0)
    rng = np.random.default_rng(0)
    for _ in range(200):
        # Infinitely hot: everything finite would be accepted.
        change = propose(space, chain.strategy, rng)
        chain.step(change, lambda *_: math.inf, rng, Acceptance(start=1e300, end=1e300))
    assert chain.strategy is chain.best is start and chain.time == chain.best_time == 1.0


def test_the_whole_space_is_reachable_by_plain_moves():
    space = chain_space(2, 2)
    everything = {
        tuple((c.sample, c.parameter, c.mode, c.servers) for c in s.configs)
        for s in all_strategies(space)
    }
    strategy = space.intern(data_parallel(space))
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(5000):
        strategy = strategy.replace(propose(space, strategy, rng, plain=True))
        seen.add(tuple((c.sample, c.parameter, c.mode, c.servers) for c in strategy.configs))
    assert seen == everything
    assert any(mode != Mode.OUTPUT for s in seen for _, _, mode, _ in s)
