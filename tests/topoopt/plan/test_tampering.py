"""No small change of a plan file goes unnoticed, but for a few that cannot change a claim."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import pytest
from small_plans import (
    shared_bidirectional_layout_plan,
    shared_confirmed_layout_plan,
    shared_layout_plan,
    small_dlrm,
    solve,
)
from tampering import changes, nodes, noticed, replaced

from codesign_base import InputError
from parallelism.transformers.layout import Layout
from parallelism.transformers.placement import Placement
from topoopt.plan import time_checks
from topoopt.plan.plan import parse_plan


@lru_cache(maxsize=1)
def operator_plan():
    """Return a plan of operators beside fixed, random and reconfigurable fabrics."""
    baselines = ("ideal-switch", "fat-tree", "expander", "ocs-reconfig")
    model = small_dlrm(2, bottom_layers=1, top_layers=1)
    return solve(model, 4, method="alternating", baselines=baselines)


@lru_cache(maxsize=1)
def bidirectional_plan():
    """Return a plan of operators with rings and transfers on bidirectional ports."""
    return solve(small_dlrm(2, bottom_layers=1, top_layers=1), 4, 3, ports="bidirectional")


@lru_cache(maxsize=1)
def confirmed_plan():
    """Return a plan of operators that packets chose."""
    model = small_dlrm(2, bottom_layers=1, top_layers=1)
    return solve(model, 4, method="alternating", confirm="packet")


BIDIRECTIONAL = (bidirectional_plan, shared_bidirectional_layout_plan)
PLANS = (
    operator_plan, confirmed_plan, shared_layout_plan, shared_confirmed_layout_plan,
    *BIDIRECTIONAL,
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change of a document: where, of what kind, from what to what."""

    document: dict
    path: tuple
    kind: str
    before: object
    after: object

    @property
    def field(self):
        return ".".join(str(step) for step in self.path)

    @property
    def parent(self):
        node = self.document
        for step in self.path[:-1]:
            node = node[step]
        return node


@dataclass(frozen=True)
class Free:
    """Changes that verification accepts, and why they change no claim."""

    field: str
    why: str
    when: Callable[[Change], bool] = lambda change: True


FREE = (
    Free(
        r"version|notes(\.\d+)?|baselines\.[^.]+\.note|job\.model\.(name|source)|prices\.source"
        r"|job\.server\.accelerator\.source|job\.rates\.fitted",
        "words for the reader; nothing is worked out from them",
    ),
    Free(
        r"search|search\.options|search\.(steps|converged|interrupted|counts\.wired)"
        r"|search\.options\.(seconds|chains|method|faithful|schedule|simulated|memory_bytes|effort)"
        r"|search\.options\.(parameter_splits|improvements\.\w+)|search\.counts\.candidates",
        "how long and by what means was sought: the plan claims its own time, and the bound of "
        "all plans, not that such a search finds it; what follows from these (routings, starting "
        "strategies, schedule) is recomputed",
    ),
    Free(
        r"origin|baselines\.[^.]+\.origin",
        "how a parallelization was found: 'search' says nothing of it, and a name is accepted "
        "only where the parallelization is the one of that name",
        lambda change: change.after == "search" or named_alike(change),
    ),
    Free(
        r"seed",
        "what is drawn by it (random wirings, single paths, delays of packets) is drawn again: "
        "it is free only where nothing is",
    ),
    Free(
        r"job\.model\.(batch_per_gpu|sequence)",
        "what a job of the model has if it does not say; this one says, in job and global_batch",
    ),
    Free(
        r"job\.model\.parallel",
        "whether attention and feed-forward part read the same input: their work is the same, "
        "and the norms, which differ, are counted by layer_norms",
    ),
    Free(
        r"job\.model\.mtp_repeated",
        "whether modules for multi-token prediction are one, of a model with at most one",
        lambda change: change.document["job"]["model"]["mtp_layers"] <= 1,
    ),
    Free(
        r"job\.model\.operators\.\d+(\.(forward_flops|backward_flops|forward_bytes|backward_bytes"
        r"|parameters|profile_key|output_shape(\.\d+)?|inputs|splits(\.\w+)?))?",
        "the question, where the answer does not depend on it: arithmetic of what memory bounds, "
        "bytes of what arithmetic bounds, splits that are not used; every time, bound and byte "
        "is worked out again from the changed question, and is the stated one",
    ),
    Free(
        r"job\.server\.accelerator(\.(fp32|tf32|bf16|fp16|fp8)_flops)?",
        "peaks of precisions that the job does not compute in",
        lambda change: change.kind != "drop" and "memory" not in str(different(change)),
    ),
    Free(
        r"job\.rates\.(fp8_efficiency|accelerator\.fp8_flops)",
        "of FP8 products, of which the job has none",
    ),
    Free(
        r"job\.server\.accelerator(\.memory_bytes)?|job\.memory_reserve",
        "a limit that does not bind: what fits is worked out with the changed one, and is the same",
        lambda change: not different(change) or "memory_bandwidth" not in different(change),
    ),
    Free(
        r"job\.implementation\.stack",
        "the name of the numbers beside it, which are what counts",
    ),
    Free(
        r"job\.implementation\.(overlap_(pipeline|tensor|context|expert)|copies|selective)",
        "what the estimates assume that order a search, where simulations find what overlaps; and "
        "of sharded weights, tensor groups and recomputation that the layouts do not have",
    ),
    Free(
        r"job\.implementation\.(load_imbalance|forwarded_tokens|fp8_dispatch|scatter_gather"
        r"|gathered_(inputs|logits)|collective_s|dispatch_s|casts"
        r"|fp8_(gather|scatter|weights)|delayed_scaling)",
        "of experts, of messages of and between several tensor ranks, and of products in FP8: the "
        "model has none of the first, the layouts none of the others",
    ),
    Free(
        r"job\.choices\.\w+(\.\d+)?",
        "which layouts are considered: as many as stated are, as many fit, the plan's are among "
        "them, and the bound over all of them is the stated one",
    ),
    Free(
        r"prices\.usd_per_port_by_gbps(\.[a-z-]+(\.\d+)?)?",
        "prices of parts at rates that nothing here is bought at: every cost is worked out from "
        "the changed table, and is the stated one",
    ),
    Free(
        r"cluster\.ports",
        "links that are equal both ways are a wiring of either kind of port, and no time, cost or "
        "bound depends on which",
        lambda change: equal_both_ways(change.document),
    ),
    Free(
        r"(baselines\.[^.]+\.)?parallelization\.operators\.\d+\.servers(\.\d+)?",
        "parts moved to servers that are as good for them: the plan is another one then, and true, "
        "as its memory, times, bytes and bounds are worked out from the changed strategy",
    ),
    Free(
        r"parallelization\.order",
        "an exchange of servers that maps the wiring onto itself: the same plan, with its servers "
        "named otherwise",
        lambda change: is_symmetry(change),
    ),
    Free(
        r"job\.server\.intra_bandwidth",
        "of the links inside servers, which have one GPU each",
        lambda change: change.parent["gpus"] == 1,
    ),
)


def named_alike(change):
    """Whether an origin is another name of the same parallelization."""
    return change.after == "plan" or change.before == "plan"


def different(change):
    """Return the keys under which an exchange changed a mapping."""
    if not isinstance(change.before, dict):
        return []
    return [key for key, value in change.before.items() if change.after.get(key) != value]


@pytest.fixture(autouse=True)
def bounds_once(monkeypatch):
    """Bound each job once: most changes are of something else, and this takes longest."""
    for name in ("fitting_bounds", "least_bound"):
        monkeypatch.setattr(time_checks, name, once_a_job(getattr(time_checks, name)))


def once_a_job(bound):
    found = {}

    def remembered(family, *rest):
        # Shown with every field that they have, numbers to the last digit; of what fits follows.
        job = repr((family, rest[:1]))
        if job not in found:
            found[job] = bound(family, *rest)
        return found[job]

    return remembered


def equal_both_ways(document):
    cables = {(link["source"], link["target"]): link["cables"] for link in document["links"]}
    return all(cables.get((b, a)) == count for (a, b), count in cables.items())


def is_symmetry(change):
    """Whether another order of axes moves ranks to servers that are wired alike."""
    layout = Layout(**change.parent["layout"])
    gpus = change.document["job"]["server"]["gpus"]
    before, after = (
        Placement(layout, gpus, tuple(order)).home.ravel()
        for order in (change.before, change.after)
    )
    name = dict(zip(before.tolist(), after.tolist(), strict=True))
    cables = {(x["source"], x["target"]): x["cables"] for x in change.document["links"]}
    return all(cables.get((name[a], name[b])) == count for (a, b), count in cables.items())


@cache
def document_of(plan):
    return json.loads(plan().to_json())


def every_change(plan):
    document = document_of(plan)
    # Differences of two times, which are compared as exactly as the times themselves.
    least = 1e-9 * document["iteration_time_s"]
    for path, before in nodes(document):
        for kind, after in changes(before):
            if kind == "exchange" and rounding(before, after):
                continue
            seconds = path and path[-1] in ("seconds", "exposed_communication_s")
            if seconds and kind in ("more", "less") and abs(after - before) <= least:
                continue
            yield Change(document, path, kind, before, after)


def rounding(before, after):
    """Whether an exchange moved numbers only that differ by rounding."""
    pairs = (
        zip(before, after, strict=True)
        if isinstance(before, list)
        else ((before[key], after[key]) for key in before)
    )
    return all(
        a == b or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-9 * abs(a))
        for a, b in pairs
    )


def one_of_each(found):
    """Yield the first change of each kind of each field; list entries are one field."""
    seen = set()
    for change in found:
        field = tuple("*" if isinstance(step, int) else step for step in change.path)
        word = change.after if change.kind == "word" else None
        key = (field, change.kind, word, type(change.before))
        if key not in seen:
            seen.add(key)
            yield change


def asked_before(change, plan):
    """Whether an earlier plan has the part of the question that is changed, word for word."""
    if change.path[:1] not in (("job",), ("prices",)):
        return False
    section, *key = change.path[:2]
    asked = [document_of(each)[section] for each in PLANS[: PLANS.index(plan) + 1]]
    *before, now = [part[key[0]] if key else part for part in asked if not key or key[0] in part]
    return now in before


# What is worked out again from a plan's strategy and wiring alone, whoever chose them.
WIRED = {
    "parallelization", "links", "rings", "routes", "degree_allreduce", "degree_transfer",
    "bandwidth_tax", "memory_per_gpu_bytes", "bound", "parallelization_bound", "topology_bound",
    "routes_bound", "collective_bound", "gap_parts",
}  # fmt: skip


def tried_elsewhere(change, plan):
    """Whether the same check meets the same change of another plan; the slow test tries it, too."""
    if change.path[:2] == ("baselines", "ideal-switch"):
        # Of each kind a plan has it alone.
        return len(document_of(plan)["baselines"]) > 1
    chosen_by_packets = plan in (confirmed_plan, shared_confirmed_layout_plan)
    return chosen_by_packets and change.path[:1] != () and change.path[0] in WIRED


def unargued(plan, found):
    """Return the changes that go unnoticed and are not on the list."""
    return [
        f"{change.field}: {change.kind} {change.before!r} -> {change.after!r}"[:200]
        for change in found
        if not noticed(plan, change.document, change.path, change.after) and not argued(change)
    ]


def argued(change):
    """Whether a change is on the list, or exchanges two fields that are each on it."""
    if any(allows(free, change) for free in FREE):
        return True
    exchanged = different(change) if change.kind == "exchange" else []
    return bool(exchanged) and all(
        argued(
            Change(
                change.document, (*change.path, key), "other", change.before[key], change.after[key]
            )
        )
        for key in exchanged
    )


def allows(free, change):
    return re.fullmatch(free.field, change.field) is not None and free.when(change)


@pytest.mark.parametrize(
    "plan",
    [pytest.param(p, marks=pytest.mark.slow if p in BIDIRECTIONAL else ()) for p in PLANS],
    ids=lambda plan: plan.__name__,
)
@pytest.mark.parametrize("each", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_every_kind_of_change_of_every_field_is_refused(plan, each):
    """By default one in eight of them."""
    found = [
        change
        for change in one_of_each(every_change(plan))
        if not asked_before(change, plan) and not tried_elsewhere(change, plan)
    ]
    assert len(found) > 200
    assert unargued(plan, found[::each]) == []


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.__name__)
def test_every_change_of_every_entry_is_refused(plan):
    assert unargued(plan, every_change(plan)) == []


@pytest.mark.parametrize("version", [1, 2])
def test_plan_files_of_versions_before_are_refused_in_a_sentence(version):
    earlier = {"kind": "transformer plan", **document_of(shared_layout_plan)}
    earlier["schema_version"] = version
    with pytest.raises(InputError, match=f"schema_version {version}.*so plan again$") as refused:
        parse_plan(json.dumps(earlier))
    assert "\n" not in str(refused.value)


def test_a_plan_file_of_a_version_to_come_asks_for_it():
    later = document_of(shared_layout_plan) | {"schema_version": 99}
    with pytest.raises(InputError, match="install a newer topoopt, or plan again"):
        parse_plan(json.dumps(later))


def test_a_field_left_to_its_default_is_missing():
    document = document_of(shared_layout_plan)
    less = {k: v for k, v in document["job"]["implementation"].items() if k != "flash"}
    with pytest.raises(InputError, match=r"field 'job\.implementation\.flash' is missing"):
        parse_plan(json.dumps(replaced(document, ("job", "implementation"), less)))


def test_the_list_names_no_time_cost_link_ring_route_or_fabric():
    words = r"_s$|seconds|cost|links|rings|routes|routing|fabric|degree|named_strategies"
    known = {
        ".".join(map(str, path)) for plan in PLANS for path, _ in nodes(document_of(plan)) if path
    }
    # Free text may be anywhere; how baselines were found is no name of theirs.
    free = {field for field in known for each in FREE[1:] if re.fullmatch(each.field, field)}
    # A budget of seconds is no time of the plan; it has no messages of tensor groups or experts.
    assert {field for field in free if re.search(words, field)} <= {
        "search.options.seconds", "job.implementation.collective_s",
        "job.implementation.dispatch_s",
    }  # fmt: skip
