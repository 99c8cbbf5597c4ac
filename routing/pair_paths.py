"""From weighted links to explicit paths: the unit flow of a pair, taken apart exactly."""

import itertools
from collections import deque
from collections.abc import Iterator

from codesign_base import InputError
from routing.network import Network, NodePath
from routing.routes import Routes

_NOTHING = 1e-9


def pair_paths(
    network: Network, routes: Routes, source: int, target: int
) -> list[tuple[NodePath, float]]:
    """Return paths and shares that load the links just as the route of one pair does.

    The share left on the links is sent along a shortest path over them (fewest hops, then
    lowest nodes) until none is left; should that leave a cycle, along a longest path instead.

    Parameters
    ----------
    network : Network
    routes : Routes
    source, target : int

    Returns
    -------
    list of (tuple of int, float)
        Nodes of each path with both ends, and its share; the shares sum to 1 within rounding.
        At most as many as the pair uses links. Empty if the pair has no route.

    Raises
    ------
    InputError
        If the weights are no unit flow from source to target, or only one with a cycle.
    """
    links, weights = routes.row(source, target)
    if not links.size:
        return []
    flow = dict(
        zip(
            zip(network.source[links].tolist(), network.target[links].tolist(), strict=True),
            weights.tolist(),
            strict=True,
        )
    )
    if weights.min() == 1.0:
        # One path: each node has one next.
        chain = _chain(dict(flow.keys()), source, target)
        if len(chain) == len(flow) + 1:
            return [(chain, 1.0)]
    for longest in (False, True):
        paths, left = _taken_apart(flow, source, target, longest)
        if left <= _NOTHING * len(flow):
            return paths
    raise InputError(
        f"the route of {source}->{target} is no set of paths (weights that do not add up to one "
        "unit, or a cycle); route that pair over paths"
    )


def _chain(follow: dict[int, int], source: int, target: int) -> NodePath:
    nodes = [source]
    while nodes[-1] != target and nodes[-1] in follow and len(nodes) <= len(follow):
        nodes.append(follow[nodes[-1]])
    return tuple(nodes) if nodes[-1] == target else ()


def _taken_apart(
    flow: dict[tuple[int, int], float], source: int, target: int, longest: bool
) -> tuple[list[tuple[NodePath, float]], float]:
    """Return the paths of a flow, and how much they leave: of the unit, or on any link."""
    left = dict(flow)
    unit = 1.0
    paths = []
    while unit > _NOTHING:
        out: dict[int, list[int]] = {}
        for a, b in sorted(left):
            out.setdefault(a, []).append(b)
        path = (_longest if longest else _shortest)(out, source, target)
        if not path:
            break
        steps = list(itertools.pairwise(path))
        share = min(unit, *(left[step] for step in steps))
        paths.append((path, share))
        unit -= share
        for step in steps:
            left[step] -= share
            if left[step] <= _NOTHING:
                del left[step]
    return paths, max(unit, sum(left.values()))


def _shortest(out: dict[int, list[int]], source: int, target: int) -> NodePath:
    back = {source: -1}
    queue = deque([source])
    while queue and target not in back:
        node = queue.popleft()
        for after in out.get(node, ()):
            if after not in back:
                back[after] = node
                queue.append(after)
    if target not in back:
        return ()
    path = [target]
    while path[-1] != source:
        path.append(back[path[-1]])
    return tuple(reversed(path))


def _longest(out: dict[int, list[int]], source: int, target: int) -> NodePath:
    """Return a longest loopless path; one pair's route has few links, so all of them are few."""
    best: NodePath = ()
    for path in _simple_paths(out, source, target):
        if len(path) > len(best):
            best = path
    return best


def _simple_paths(out: dict[int, list[int]], source: int, target: int) -> Iterator[NodePath]:
    stack: list[tuple[NodePath, int]] = [((source,), 0)]
    for _ in range(100_000):
        if not stack:
            return
        path, at = stack.pop()
        if path[-1] == target:
            yield path
            continue
        choices = out.get(path[-1], [])
        if at < len(choices):
            stack.append((path, at + 1))
            if choices[at] not in path:
                stack.append(((*path, choices[at]), 0))
