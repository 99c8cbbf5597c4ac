"""Terms of the bound over all strategies: what precedes an AllReduce, and what follows."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from codesign_base.arrays import Floats
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode, ModelGraph
from parallelism.search.forest import SplitCosts
from topoopt.bounds.relaxation import (
    OwnCost,
    SharedCost,
    Wirings,
    least_moved,
    operator_degrees,
    own_costs,
    slice_shares,
)
from topoopt.bounds.tradeoff import Terms

# Operators of the heaviest path whose backward passes divide the iteration.
MOST_CUTS = 16
# The same where the model's edges have more pairs of configurations than so many, in all.
FEW_CUTS = 5
MANY_PAIRS = 5_000_000
# Operators of the path with most inputs, whose inputs' transfers are summed.
MOST_JOINTS = 2
# Edges of more pairs of configurations count nothing.
MOST_PAIRS = 300_000


def heaviest_path(graph: ModelGraph, length: Floats) -> list[int]:
    """Return the path of the model graph with the largest sum of lengths."""
    total = np.zeros(len(graph.operators))
    before = [-1] * len(graph.operators)
    for index, op in enumerate(graph.operators):
        if op.inputs:
            before[index] = max(op.inputs, key=lambda i: (total[i], -i))
        total[index] = length[index] + (total[before[index]] if op.inputs else 0.0)
    path = [int(total.argmax())]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return path[::-1]


def all_choices(builder: TaskGraphBuilder, wirings: Wirings) -> tuple[SplitCosts, list[int]]:
    """Return the costs of all configurations, and the heaviest path at its fastest."""
    graph = builder.graph
    alike = builder.representatives
    degrees = {i: operator_degrees(builder, i, wirings.memory) for i in sorted(set(alike))}
    own = {i: own_costs(builder, i, found, wirings) for i, found in degrees.items()}
    # What leaves too little memory for the smallest configurations of the others is in no plan.
    rest = sum(float(own[r][OwnCost.MEMORY].min()) for r in alike)
    for i, table in own.items():
        fits = np.flatnonzero(
            table[OwnCost.MEMORY] - table[OwnCost.MEMORY].min() + rest <= 1.0 + 1e-9
        )
        if fits.size:
            own[i] = table[:, fits]
            degrees[i] = tuple(degrees[i][at] for at in fits.tolist())
    fastest = np.array([(own[r][OwnCost.FORWARD] + own[r][OwnCost.BACKWARD]).min() for r in alike])
    path = heaviest_path(graph, fastest)
    reader = [min(readers, default=-1) for readers in graph.consumers]
    for a, b in pairwise(path):
        reader[a] = b
    tables: dict[tuple[float, int, int, tuple[float, ...] | None], Floats | None] = {}
    beside = [graph.inputs_side_by_side(index) for index in range(len(graph.operators))]
    shared: list[Floats | None] = []
    for index, to in enumerate(reader):
        if to < 0:
            shared.append(None)
            continue
        size = graph.output_bytes(index) * builder.batch
        made, read = degrees[alike[index]], degrees[alike[to]]
        shares = None
        if index in beside[to]:
            shares = slice_shares(*beside[to][index], graph.operators[to].features, read)
        key = (size, alike[index], alike[to], shares)
        if key not in tables:
            few = len(made) * len(read) <= MOST_PAIRS
            work = own[alike[index]][OwnCost.FORWARD_WORK]
            tables[key] = least_moved(size, made, read, wirings, work, shares) if few else None
        shared.append(tables[key])
    choices = SplitCosts(
        tuple(own[r] for r in alike), tuple(reader), tuple(shared),
        tuple(degrees[r] for r in alike),
    )  # fmt: skip
    return choices, path


def ancestors(inputs: Sequence[tuple[int, ...]], of: set[int]) -> set[int]:
    """Return some operators and all that lead to them."""
    return _linked(inputs, reversed(range(len(inputs))), of)


def descendants(graph: ModelGraph, of: int) -> set[int]:
    """Return an operator and all that it leads to."""
    return _linked(graph.consumers, range(len(graph.operators)), {of})


def _linked(links: Sequence[tuple[int, ...]], order: Iterable[int], of: set[int]) -> set[int]:
    found = set(of)
    for index in order:
        if index in found:
            found.update(links[index])
    return found


class TermBuilder:
    """Terms under construction.

    Parameters
    ----------
    operators : int
    """

    def __init__(self, operators: int) -> None:
        self.operators = operators
        self.names: list[str] = []
        self.own: list[Floats] = []
        self.shared: list[Floats] = []

    def add(self, name: str) -> tuple[Floats, Floats]:
        """Begin a term, and return its coefficients, to be filled in."""
        self.names.append(name)
        self.own.append(np.zeros((self.operators, len(OwnCost))))
        self.shared.append(np.zeros((self.operators, len(SharedCost))))
        return self.own[-1], self.shared[-1]

    def terms(self) -> Terms:
        """Return all of them."""
        return Terms(tuple(self.names), np.array(self.own), np.array(self.shared))


def _add_chain(
    path: list[int],
    own: Floats,
    shared: Floats,
    start: int,
    stop: int,
    *,
    last_part: bool = False,
) -> None:
    """Count the path forward from its operator ``start``, and back to ``stop``."""
    into, out = SharedCost.INTO_READER, SharedCost.FROM_PRODUCER
    if last_part:
        into, out = out, into
    for place, index in enumerate(path):
        own[index, OwnCost.FORWARD] += place >= start
        own[index, OwnCost.BACKWARD] += place >= stop
        if place + 1 < len(path):
            shared[index, into] += place >= start
            shared[index, out] += place >= stop


def add_rings(own: Floats, shared: Floats, choices: SplitCosts, above: set[int], at: int) -> None:
    """Count all that rings and gradient transfers carry of an operator and what leads to it."""
    for index in above:
        own[index, OwnCost.RING] += 1.0
    for index in above - {at}:
        shared[index, SharedCost.NETWORK] += choices.reader[index] in above


def all_terms(graph: ModelGraph, choices: SplitCosts, path: list[int]) -> Terms:
    """Return the terms whose trade-off bounds the iteration time of everything."""
    count = len(graph.operators)
    inputs = [op.inputs for op in graph.operators]
    rows = TermBuilder(count)
    own, shared = rows.add("compute")
    own[:, OwnCost.WORK] = 1.0
    own, shared = rows.add("network")
    own[:, OwnCost.RING] = 1.0
    shared[:, SharedCost.NETWORK] = 2.0

    def chain(own: Floats, shared: Floats, start: int, stop: int, last_part: bool) -> None:
        _add_chain(path, own, shared, start, stop, last_part=last_part)

    def last_rings(own: Floats, at: int) -> None:
        for index in ancestors(inputs, {at}):
            own[index, OwnCost.LAST_RING] += 1.0

    end = len(path) - 1
    apart = apart_of(graph)
    pairs = sum(table[0].size for table in choices.shared if table is not None)
    cuts = MOST_CUTS if pairs <= MANY_PAIRS else FEW_CUTS
    for cut in sorted({round(x) for x in np.linspace(0, end, cuts)}):
        at = path[cut]
        name = graph.operators[at].name
        own, shared = rows.add(f"network after {name}")
        chain(own, shared, 0, cut, False)
        add_rings(own, shared, choices, ancestors(inputs, {at}), at)
        own, shared = rows.add(f"chain to {name}")
        chain(own, shared, 0, cut, False)
        own[at, OwnCost.TAIL] += 1.0
        if at in apart:
            continue
        own, shared = rows.add(f"last chain to {name}")
        chain(own, shared, 0, cut, True)
        own[at, OwnCost.TAIL] += 1.0
        own, shared = rows.add(f"last rings after {name}")
        chain(own, shared, 0, cut, True)
        last_rings(own, at)
        own, shared = rows.add(f"last rings after work of {name}")
        below = descendants(graph, at)
        for index in ancestors(inputs, below):
            own[index, OwnCost.FORWARD_WORK] += 1.0
        for index in below:
            own[index, OwnCost.BACKWARD_WORK] += 1.0
        last_rings(own, at)
    joints = [place for place in range(end + 1) if choices.reader.count(path[place]) > 1]
    joints = sorted(joints, key=lambda place: -choices.reader.count(path[place]))[:MOST_JOINTS]
    for start in sorted({*joints, end}):
        fed = ancestors(inputs, {path[start]})
        joined = [place for place in range(start, end + 1) if path[place] not in apart]
        for stop in sorted({*joined[:1], *joined[-1:]}):
            names_of = [graph.operators[path[place]].name for place in (start, stop)]
            own, shared = rows.add(f"network before {names_of[0]}, last rings after {names_of[1]}")
            for index in fed:
                shared[index, SharedCost.NETWORK] += choices.reader[index] in fed
            chain(own, shared, start, stop, True)
            last_rings(own, path[stop])
    return rows.terms()


def apart_of(graph: ModelGraph) -> set[int]:
    """Return the operators whose last backward pass not all inputs need wait for.

    A slice of a concatenation reads some of the inputs only, so that gradients of others do not
    wait for it, nor for what follows it slice by slice; they do for the operator that needs all
    slices, and for its readers. So of these operators, and of all that leads to them, nothing is
    said that begins with the last of them to finish.
    """
    sliced = [bool(graph.inputs_side_by_side(i)) for i in range(len(graph.operators))]
    # What still works on slices, or is the first to need all.
    after = list(sliced)
    onward = list(sliced)
    for index, op in enumerate(graph.operators):
        if any(onward[source] for source in op.inputs):
            after[index] = True
            onward[index] = onward[index] or op.split(Mode.CHANNEL) is not None
    inputs = [op.inputs for op in graph.operators]
    return ancestors(inputs, {i for i, found in enumerate(after) if found})


def trade_off(builder: TaskGraphBuilder, wirings: Wirings) -> tuple[SplitCosts, Terms]:
    """Return the costs of every configuration, and the terms that they add up to."""
    choices, path = all_choices(builder, wirings)
    return choices, all_terms(builder.graph, choices, path)
