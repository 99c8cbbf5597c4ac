"""Verification accepts what the optimizer writes and rejects whatever was tampered with."""

import json
import re
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_plans import shared_bidirectional_plan, shared_document, shared_plan, small_mlp, solve
from tampering import noticed
from tamperings import (
    TAMPERINGS,
    cost_removed,
    degree_lowered,
    iteration_time_changed,
    link_above_the_degree,
    lower_bound_changed,
    ring_of_two_cycles,
    ring_visits_a_server_twice,
    route_does_not_conserve_flow,
    sample_degree_does_not_divide_the_batch,
    two_parts_on_one_server,
)

import topoopt as to
from topoopt.plan.plan import parse_plan
from topoopt.plan.verify import load_sound_plan, verify_plan

# Words, and how the search went: nothing that could be recomputed.
DESCRIPTIVE = (
    r"notes\.\d+", r"version", r"job\.model\.name",
    r"search\.(steps|interrupted|converged|restart|first_seed)", r"search\.(options|counts)\..*",
    r"baselines\.[^.]+\.note", r"prices\.source", r"job\.server\.accelerator\.(name|source)",
    r"job\.model\.batch_per_gpu", r"seed",
)  # fmt: skip
# The question. Where the answer does not depend on a number (peaks of unused precisions,
# arithmetic of memory-bound operators, ...), the plan answers the changed question, too.
QUESTION = (
    r"job\.model\.operators\.\d+\.(forward_flops|backward_flops|forward_bytes|backward_bytes)",
    r"job\.model\.operators\.\d+\.(parameters|profile_key|splits\.\w+)",
    r"job\.server\.accelerator\.(tf32|bf16|fp16|fp32|fp8)_flops",
    r"job\.server\.accelerator\.memory_(bytes|bandwidth)", r"job\.server\.intra_bandwidth",
    r"prices\.usd_per_port_by_gbps\.[a-z-]+\.\d+",
    r"baselines\.[^.]+\.reconfiguration\.(delay|window)_s",
)  # fmt: skip
FREE = re.compile("|".join(DESCRIPTIVE + QUESTION))


@pytest.mark.parametrize("plan", [shared_plan, shared_bidirectional_plan])
def test_plans_are_accepted_by_every_check(plan):
    verdict = verify_plan(plan())
    assert verdict.ok and not verdict.failures and not verdict.skipped
    assert verdict.checks == (
        "structure", "parallelization", "question", "search", "ports", "rings", "routes", "times",
        "packets", "bounds", "costs", "starts", "baselines",
    )  # fmt: skip


def test_the_shared_plans_hold_what_the_tamperings_change():
    plan = shared_plan()
    assert len(plan.rings) >= 2 and plan.transfer_bytes > 0 and len(plan.baselines) == 6
    assert any(op.sample == op.parameter == 1 for op in plan.parallelization.operators)


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
def test_a_tampered_plan_is_rejected_by_name(tamper):
    document = shared_document()
    expected = tamper(document)
    assert document != shared_document()
    verdict = verify_plan(parse_plan(json.dumps(document)))
    assert not verdict.ok
    assert {failure.split(":")[0] for failure in verdict.failures} & expected, verdict.failures
    assert all("\n" not in failure for failure in verdict.failures)


def test_there_are_more_than_ten_tamperings():
    assert len(TAMPERINGS) > 50


def test_one_way_links_are_refused_where_ports_are_bidirectional():
    document = json.loads(solve(small_mlp(), 5, 1).to_json())
    assert len(document["links"]) == 5
    document["cluster"]["ports"] = "bidirectional"
    verdict = verify_plan(parse_plan(json.dumps(document)))
    assert any("has no equal link back" in failure for failure in verdict.failures)


def test_a_plan_of_one_server_is_checked_too():
    document = json.loads(solve(small_mlp(), 1).to_json())
    for field, value in (("cost_usd", 5.0), ("degree_allreduce", 1), ("bandwidth_tax", 2.0)):
        tampered = {**document, field: value}
        assert not verify_plan(parse_plan(json.dumps(tampered))).ok
    document["links"].append(
        {
            "source": 0,
            "target": 1,
            "cables": 1,
            "rings": 0,
            "capacity_bytes_per_s": 1e9,
            "latency_s": 1e-6,
        }
    )
    assert not verify_plan(parse_plan(json.dumps(document))).ok


def test_later_checks_are_skipped_and_named():
    document = shared_document()
    link_above_the_degree(document)
    verdict = verify_plan(parse_plan(json.dumps(document)))
    assert "baselines" in verdict.skipped and "baselines" not in verdict.checks
    document = shared_document()
    document["job"]["model"]["operators"][0]["kind"] = "magic"
    verdict = verify_plan(parse_plan(json.dumps(document)))
    assert verdict.checks == ("structure",) and len(verdict.skipped) == 12


BUILT = (
    link_above_the_degree, degree_lowered, ring_of_two_cycles, ring_visits_a_server_twice,
    route_does_not_conserve_flow, two_parts_on_one_server, sample_degree_does_not_divide_the_batch,
)  # fmt: skip
SAID = (iteration_time_changed, lower_bound_changed, cost_removed)


@pytest.mark.parametrize("change", [*BUILT, *SAID], ids=lambda change: change.__name__)
def test_a_plan_that_cannot_be_built_is_not_loaded_to_be_built(change, tmp_path):
    document = shared_document()
    named = "|".join(sorted(change(document)))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    if change in SAID:
        assert load_sound_plan(path) == parse_plan(json.dumps(document))
        return
    with pytest.raises(to.InputError, match=rf"plan\.json' is wrong: ({named}): .*, or plan again"):
        load_sound_plan(path)


def leaves(node, path=()):
    if isinstance(node, dict):
        for key, part in node.items():
            yield from leaves(part, (*path, key))
    elif isinstance(node, list):
        for key, part in enumerate(node):
            yield from leaves(part, (*path, key))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield path, node


def by_field(document):
    """Group leaves by field, so that fields with few numbers are drawn as often as others."""
    groups = {}
    for path, value in leaves(document):
        key = tuple("*" if isinstance(step, int) else step for step in path)
        groups.setdefault(key, []).append((path, value))
    return [groups[key] for key in sorted(groups)]


# Neither at import, which would plan in every worker.
document_of = cache(shared_document)


@cache
def fields_of(plan):
    return by_field(document_of(plan))


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_changed_number_is_refused_or_does_not_matter(data):
    plan = data.draw(st.sampled_from((shared_plan, shared_bidirectional_plan)))
    path, value = data.draw(st.sampled_from(data.draw(st.sampled_from(fields_of(plan)))))
    if isinstance(value, int):
        choices = [value + 1, value - 1, 2 * value + 3, -value - 1, 0, 10**9, 10**30]
    else:
        choices = [value * 1.001, value * 2, value / 2, 0.0, -value - 1.0, value + 1.0, 1e300]
    changed = data.draw(st.sampled_from([c for c in choices if c != value]))
    name = ".".join(str(step) for step in path)
    seen = noticed(plan, document_of(plan), path, changed)
    assert seen or FREE.fullmatch(name), (name, value, changed)


def test_a_plan_file_is_verified_by_name(tmp_path):
    shared_plan().save(tmp_path / "plan.json")
    assert verify_plan(tmp_path / "plan.json").ok
    assert verify_plan(str(tmp_path / "plan.json")).ok
    with pytest.raises(to.InputError, match="does not exist"):
        verify_plan(tmp_path / "none.json")


def test_progress_names_each_check_before_it_begins() -> None:
    begun: list[str] = []
    result = verify_plan(shared_plan(), progress=begun.append)
    assert begun == list(result.checks)


def test_starts_that_could_not_be_faster_by_as_much_as_counts_are_left_out() -> None:
    """A plan of 34 servers is next to its bound before dense layers are split."""
    job = to.Job(to.models.get_model("vgg16"))
    cluster, options = to.Cluster(34, 4, "100Gbps"), to.SearchOptions(effort="quick")
    plan = to.co_optimize(job, cluster, options, baselines=("ideal-switch",))
    assert "dense-2" not in plan.named_strategies_s
    assert to.verify_plan(plan).ok
    usual = {k: v for k, v in plan.named_strategies_s.items() if k != "data-parallel"}
    (failure,) = to.verify_plan(replace(plan, named_strategies_s=usual)).failures
    assert failure == "starts: named_strategies_s lacks data-parallel"


MIXED = """
name: mixed
batch_per_gpu: 32
inputs: {x: [64]}
operators:
- {name: many, kind: embedding, rows: 100000, dim: 64}
- {name: few, kind: embedding, rows: 1000, dim: 64}
- {name: dense, kind: dense, inputs: [x], out_features: 64}
- {name: all, kind: concat, inputs: [many, few, dense]}
- {name: top, kind: dense, inputs: [all], out_features: 256}
"""


def test_packet_trains_may_prefer_an_expander_whose_flows_are_slower_than_a_start(tmp_path) -> None:
    """A plan of few servers has a packet time, by which it takes over the expander's wiring."""
    (tmp_path / "mixed.yaml").write_text(MIXED)
    job = to.Job(to.load_model(tmp_path / "mixed.yaml"))
    options = to.SearchOptions(steps=5, method="alternating")
    plan = to.co_optimize(job, to.Cluster(4, 3, "10Gbps"), options)
    starts = [seconds for seconds in plan.named_strategies_s.values() if seconds is not None]
    assert plan.search.options.confirm == "none" and plan.iteration_time_s > min(starts)
    assert to.verify_plan(plan).ok
    alone = to.co_optimize(job, to.Cluster(4, 3, "10Gbps"), options, baselines=())
    assert alone.iteration_time_s <= min(starts)
