"""Every small change of a JSON document, and whether one of a plan's is noticed."""

import json
from functools import cache
from itertools import pairwise

from codesign_base import InputError
from topoopt.plan.plan import parse_plan
from topoopt.plan.rebuild import rebuild
from topoopt.plan.verify import _STAGES

# Words of which any may stand for another of its row, besides words that mean nothing.
VOCABULARIES = (
    ("directed", "bidirectional"),
    ("ecmp", "k-shortest", "mcf", "balanced", "single"),
    ("none", "selective", "full"),
    ("1f1b", "eager-1f1b", "gpipe", "interleaved", "breadth-first", "zero-bubble", "zero-bubble-v"),
    ("layernorm", "rmsnorm"),
    ("barrier", "next-forward"),
    ("ready", "critical-path"),
    ("fair", "transfers-first", "critical-path"),
    ("sgd", "momentum", "adam"),
    ("output", "reduction", "heads", "channel"),
    ("context", "data", "pipeline"),
    ("search", "plan", "data-parallel", "hybrid"),
    ("compute", "chain", "hop", "ports", "link", "distance", "pipeline", "injection", "simulation"),
    ("joint", "alternating", "sequential", "strategy-only", "topology-only"),
    ("plain", "fused", "compute", "barrier", "auto"),
    ("operators", "layouts"),
    ("fp32", "tf32", "bf16", "fp16"),
    ("ideal-switch", "fat-tree", "oversubscribed-fat-tree", "expander", "sip-ml", "ocs-reconfig"),
    ("paper", "artifact", "packet"),
)


def nodes(value, path=()):
    """Yield every node of a document with its path, containers before what they hold."""
    yield path, value
    if isinstance(value, dict):
        for key, part in value.items():
            yield from nodes(part, (*path, key))
    elif isinstance(value, list):
        for key, part in enumerate(value):
            yield from nodes(part, (*path, key))


def changes(value):
    """Yield what a node may be changed to, each with a word for the kind of change."""
    if isinstance(value, dict):
        yield from _mapping_changes(value)
    elif isinstance(value, list):
        yield from _list_changes(value)
    else:
        yield from _leaf_changes(value)


def _mapping_changes(value):
    for key in value:
        yield "drop", {k: v for k, v in value.items() if k != key}
        yield "duplicate", {**value, f"{key}2": value[key]}
    for one, other in pairwise(value):
        if value[one] != value[other]:
            yield "exchange", {**value, one: value[other], other: value[one]}


def _list_changes(value):
    for place, part in enumerate(value):
        yield "drop", value[:place] + value[place + 1 :]
        yield "duplicate", [*value[: place + 1], *value[place:]]
        if place and value[place - 1] != part:
            yield "exchange", [*value[: place - 1], part, value[place - 1], *value[place + 1 :]]


def _leaf_changes(value):
    if value is None:
        yield from (("number", 1), ("number", 1.5), ("text", "other"))
        return
    yield "null", None
    if isinstance(value, bool):
        yield "flip", not value
    elif isinstance(value, int):
        yield from (("more", value + 1), ("less", value - 1))
    elif isinstance(value, float):
        yield from (("more", value * 1.01 or 0.01), ("less", value * 0.99 or 1e-9))
    else:
        yield "text", value + "x"
        for words in VOCABULARIES:
            if value in words:
                yield from (("word", word) for word in words if word != value)


def replaced(document, path, new):
    """Return a document with another node at a path; everything else is shared."""
    if not path:
        return new
    key, *rest = path
    if isinstance(document, list):
        return [*document[:key], replaced(document[key], rest, new), *document[key + 1 :]]
    return {**document, key: replaced(document[key], rest, new)}


class Watched:
    """A plan that notes which of its fields are read."""

    def __init__(self, plan):
        self._plan, self.read = plan, set()

    @property
    def __class__(self):
        return type(self._plan)

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(self._plan, name)


@cache
def readers(plan):
    """Return what is rebuilt, the fields that this reads, and those of each check, by name.

    A check is a function of the plan and what is rebuilt: of a plan that differs in other fields
    it finds what it found before, and what is rebuilt is what was.
    """
    watched = Watched(plan())
    rebuilt = rebuild(watched)
    found = {}
    for stage in _STAGES:
        for _, check in stage:
            each = Watched(plan())
            check(each, rebuilt)
            found[check] = each.read
    return rebuilt, watched.read, found


def noticed(plan, document, path, after):
    """Say whether the loader or a check refuses a change."""
    try:
        tampered = parse_plan(json.dumps(replaced(document, path, after)))
    except InputError as error:
        assert "\n" not in str(error)
        return True
    rebuilt, by_rebuilding, by_check = readers(plan)
    # Of a change of the whole document any field.
    anything = not path or path[0] in by_rebuilding
    try:
        if anything:
            rebuilt = rebuild(tampered)
        for check, read in by_check.items():
            if anything or path[0] in read:
                check(tampered, rebuilt)
    except Exception:
        return True
    return False
