"""Terms of the bound over all strategies where a schedule cuts the batch or overlaps iterations.

Microbatches shorten chains: an operator works on one while another travels. What they leave is
that a part makes all of its M passes one after another, between the first that reaches it and
the last that leaves it; that an AllReduce of gradients waits for all samples, and so for all
device time that these need before; and what each resource does in all.

A part of an operator reads from, and sends gradients to, the same parts of its neighbours in
every microbatch, since all microbatches are divided among the sample shards alike. So along a
path of the model there are parts that pass all M microbatches on to each other.
"""

import numpy as np

from codesign_base.arrays import Floats
from parallelism.graph import ModelGraph
from parallelism.search.forest import SplitCosts
from topoopt.bounds.relaxation import OwnCost, SharedCost
from topoopt.bounds.space_terms import (
    MOST_CUTS,
    TermBuilder,
    add_rings,
    ancestors,
    apart_of,
    descendants,
)
from topoopt.bounds.tradeoff import Terms

# Places of the heaviest path that bound an iteration of microbatches.
_CUTS = 5


def _places(path: list[int], count: int) -> list[int]:
    return sorted({round(x) for x in np.linspace(0, len(path) - 1, count)})


def _passes(
    path: list[int],
    own: Floats,
    shared: Floats,
    begin: int,
    turn: int,
    end: int,
    repeated: tuple[int, float, float],
) -> None:
    """Count forward passes from place ``begin`` to ``turn``, and backward ones back to ``end``.

    ``repeated``: a place, and how many forward and backward passes are counted there instead.
    """
    at, forward, backward = repeated
    for place, index in enumerate(path):
        own[index, OwnCost.FORWARD] += begin <= place <= turn
        own[index, OwnCost.BACKWARD] += end <= place <= turn
        shared[index, SharedCost.INTO_READER] += begin <= place < turn
        shared[index, SharedCost.FROM_PRODUCER] += end <= place < turn
        if place == at:
            own[index, OwnCost.FORWARD] += forward - 1.0
            own[index, OwnCost.BACKWARD] += backward - 1.0


def _in_all(rows: TermBuilder, microbatches: int) -> None:
    """Count what devices and links do in a whole iteration."""
    own, _ = rows.add("compute")
    own[:, OwnCost.WORK] = 1.0
    for passes in (OwnCost.FORWARD_WORK, OwnCost.BACKWARD_WORK):
        own[:, passes] = microbatches - 1.0
    own, shared = rows.add("network")
    own[:, OwnCost.RING] = 1.0
    shared[:, SharedCost.NETWORK] = 2.0 * microbatches


def steady_terms(graph: ModelGraph, path: list[int], microbatches: int = 1) -> Terms:
    """Return bounds of the period of iterations that overlap.

    Parameters
    ----------
    graph : ModelGraph
    path : list of int
        Operators, each an input of the next.
    microbatches : int
        Of which the costs are.

    Returns
    -------
    Terms
        ``compute`` and ``network``: of all devices and of all links. ``turn of X``: the next
        forward pass of a part waits for its update, that for its AllReduce, and that for its
        last backward pass, which ends a chain that its first forward pass began: on along the
        path to its end, and back (see `topoopt.bounds.turns`). ``turn of X, passes of Y``: on to
        Y only, whose part makes all its passes, and back.
    """
    rows = TermBuilder(len(graph.operators))
    _in_all(rows, microbatches)
    end = len(path) - 1
    for cut in _places(path, MOST_CUTS):
        name = graph.operators[path[cut]].name
        own, shared = rows.add(f"turn of {name}")
        _passes(path, own, shared, cut, end, cut, (cut, 1.0, 1.0))
        own[path[cut], OwnCost.TAIL] += 1.0
        if microbatches > 1:
            own, shared = rows.add(f"turn of {name}, its passes")
            _passes(path, own, shared, cut, cut, cut, (cut, microbatches, microbatches))
            own[path[cut], OwnCost.TAIL] += 1.0
    return rows.terms()


def microbatch_terms(
    graph: ModelGraph, choices: SplitCosts, path: list[int], microbatches: int
) -> Terms:
    """Return bounds of an iteration of several microbatches, with a barrier after it.

    Parameters
    ----------
    graph : ModelGraph
    choices : SplitCosts
        Of one microbatch.
    path : list of int
        Operators, each an input of the next.
    microbatches : int

    Returns
    -------
    Terms
        ``compute``, ``network``: as in `steady_terms`.

        ``chain to X``: down the path, back to X, and its AllReduce and update, with all passes
        of one operator on the way (the one with most to do): of its forward passes all follow
        the first way down to it, of its backward passes all precede the last way back, or both
        lie between the way down to it and the way back from there.

        ``rings after chain to X``: no gradient of X, or of what leads to it, is summed before a
        part of X has made its last backward pass; so all rings of these come after that chain,
        and the last microbatch's gradients that are sent between them.

        ``rings after work of X``: before the first of those sums device time is spent on all
        samples, on all that X leads to and on what that reads. Such a sum is of all sample
        shards, and so needs gradients for every sample of at least one parameter shard of X,
        whose passes are made. An operator after X that reads its whole input sends back a
        partial sum of that input's gradient from each of its shards, so that all of these are
        needed; one that reads slices is needed in one shard at least. Of what is read, all
        shards that make partial sums are needed, and all that a whole input is made of; nothing
        is said of what a concatenation reads, of which a slice may not need it.

        ``last rings after work of X``: after the last backward pass of X one shard at least of
        each is not yet summed, and all of that work is done whatever is sliced.
    """
    count = len(graph.operators)
    inputs = [op.inputs for op in graph.operators]
    rows = TermBuilder(count)
    _in_all(rows, microbatches)
    end, many = len(path) - 1, float(microbatches)
    seconds = [float(choices.own[i][OwnCost.WORK].min()) for i in path]
    most = int(np.argmax(seconds))

    def chains(cut: int) -> list[tuple[str, int, tuple[int, float, float]]]:
        found = [("forward", end, (most, many, 1.0))]
        if most >= cut:
            found += [("backward", end, (most, 1.0, many)), ("both", most, (most, many, many))]
        return [*found, ("its own", cut, (cut, many, many))]

    for cut in _places(path, _CUTS):
        at = path[cut]
        name = graph.operators[at].name
        above = ancestors(inputs, {at})
        for kind, turn, repeated in chains(cut):
            own, shared = rows.add(f"chain to {name} ({kind})")
            _passes(path, own, shared, 0, turn, cut, repeated)
            own[at, OwnCost.TAIL] += 1.0
            own, shared = rows.add(f"rings after chain to {name} ({kind})")
            _passes(path, own, shared, 0, turn, cut, repeated)
            add_rings(own, shared, choices, above, at)
    joined = [
        () if graph.inputs_side_by_side(i) else op.inputs for i, op in enumerate(graph.operators)
    ]
    apart = apart_of(graph)
    for cut in _places(path, MOST_CUTS):
        at = path[cut]
        name = graph.operators[at].name
        above = ancestors(inputs, {at})
        below = descendants(graph, at)
        needed = ancestors(joined, below)
        own, shared = rows.add(f"rings after work of {name}")
        for index in needed:
            if index == at:
                own[index, OwnCost.FORWARD_SHARD] += many
                own[index, OwnCost.BACKWARD_SHARD] += many
            elif index in below:
                own[index, OwnCost.FORWARD_NEEDED] += many
                own[index, OwnCost.BACKWARD_NEEDED] += many
            elif choices.reader[index] in needed and choices.shared[index] is not None:
                shared[index, SharedCost.FORWARD_READ] += many
            else:
                own[index, OwnCost.FORWARD_SHARD] += many
        for index in above:
            own[index, OwnCost.RING] += 1.0
        if at in apart:
            continue
        own, shared = rows.add(f"last rings after work of {name}")
        for index in ancestors(inputs, below):
            own[index, OwnCost.FORWARD_WORK] += many
        for index in below:
            own[index, OwnCost.BACKWARD_WORK] += many
        for index in above:
            own[index, OwnCost.LAST_RING] += 1.0
    return rows.terms()
