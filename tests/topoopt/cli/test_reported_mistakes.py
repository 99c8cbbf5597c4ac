"""Mistakes that ended in tracebacks, or in sentences about something else."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cli_runs import topoopt
from small_plans import shared_layout_plan, shared_plan

import topoopt as to
from codesign_base import InputError
from parallelism.transformers.implementation import get_stack
from topoopt.codesign.designs import parse_counts
from topoopt.report.plan_page import sums
from topoopt.report.wiring import _about
from topoopt.studies.shared.sharing import share


def said(*arguments):
    done = topoopt(*map(str, arguments))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_absurd_factors_of_a_stack_are_refused():
    for value in (1e300, float("inf"), 0.5):
        with pytest.raises(InputError, match=r"load_imbalance is .*; give 1 to 1e"):
            get_stack("megatron-core", load_imbalance=value)


def test_absurd_ranges_are_refused_before_they_are_counted_out():
    with pytest.raises(InputError, match="at most 1024 numbers"):
        parse_counts("1..100000000", "degree", doubling=False)
    assert parse_counts("1..1024", "degree", doubling=False)[-1] == 1024
    assert parse_counts("1..100000000", "servers", doubling=True)[-1] == 2**26


def test_spaces_are_counted_up_to_the_servers_of_a_cluster():
    message = said("space", "dlrm-16", "--servers", 99_999_999)
    assert "servers is 99999999; at most 4096 are supported" in message


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ("dlrm-16", "jobs is 'dlrm-16'; give pairs of a model and its servers"),
        ([("dlrm-16", 4, 1)], "is no pair; give a model and its servers"),
        ([("dlrm-16", "4")], "servers of job 'dlrm-16' is '4'; give a whole number"),
        ([(to.Job(to.models.dlrm(tables=2)), 4)], "model of a job is of type Job; give a name"),
    ],
)
def test_jobs_that_share_are_pairs(jobs, message):
    with pytest.raises(InputError, match=message):
        share(jobs, to.Cluster(4, 2, "100Gbps"))


def test_a_missing_job_file_is_named_rather_than_the_options_that_it_would_hold():
    assert "file 'jobb.yaml' does not exist; check the path" in said("plan", "jobb.yaml")


def test_an_option_is_named_by_its_first_word():
    assert "--gpus (Possible options: --gpus-per-server)" in said("plan", "dlrm-16", "--gpus", 4)
    assert "Possible options: --bandwidth" in said("plan", "dlrm-16", "--bandwith", "1Gbps")


def test_a_plan_is_not_written_under_the_name_of_a_page(tmp_path):
    page = tmp_path / "plan.html"
    message = said(
        "plan", "dlrm-16", *["--servers", "4", "--degree", "2", "--bandwidth", "1Gbps", "-o"], page
    )
    assert "is JSON; give a name that ends in .json" in message and not page.exists()


def test_a_model_by_name_is_not_shown_at_length():
    with pytest.raises(InputError, match=r"^model is of type Job; give a name, such as 'dlrm-16'$"):
        to.models.get_model(to.Job(to.models.dlrm(tables=2)))


@pytest.mark.parametrize("path", [5, None, b"plan.json"])
def test_plans_are_saved_under_paths(path):
    with pytest.raises(InputError, match="path is "):
        shared_plan().save(path)


def test_a_job_file_with_a_misspelt_model_is_told_so(tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text("modle: dlrm-16\nservers: 4\ndegree: 2\nbandwidth: 100Gbps\n")
    assert "unknown field 'modle'; did you mean 'model'" in said("plan", job)
    job.write_text("servers: 4\ndegree: 2\nbandwidth: 100Gbps\n")
    assert "has no model" in said("plan", job)


def test_a_task_graph_is_no_plan_to_export(tmp_path):
    graph = tmp_path / "a.fbuf"
    graph.write_bytes(b"\x10\x00\x00\x00")
    words = said("export", graph, "--format", "megatron", "-o", tmp_path / "x")
    assert "is a task graph" in words and "chakra or astra-sim" in words


def test_nothing_is_said_of_rings_that_reduce_nothing():
    plan = shared_layout_plan()
    text = plan.summary(details=True)
    assert plan.allreduce_bytes > 0 and "for AllReduce rings" in text
    still = replace(plan, allreduce_bytes=0.0)
    (wiring,) = [line for line in still.summary().splitlines() if line.startswith("wiring")]
    assert "AllReduce ring" not in wiring
    assert "only connect them (nothing is reduced between servers)" in wiring
    assert "nothing is reduced" not in plan.summary()
    assert "0 B along rings and" in re.sub("<[^>]*>", "", str(sums(still)))
    assert "AllReduce rings and" in re.sub("<[^>]*>", "", str(sums(plan)))
    drawing = SimpleNamespace(seats=(), links=plan.links)
    assert "The rings only connect servers: nothing is reduced" in _about(still, drawing)
    assert "nothing is reduced" not in _about(plan, drawing)
    assert "for rings + " in still.summary(details=True)


def test_utilisation_is_of_the_time_and_peak_that_it_says():
    plan = replace(shared_layout_plan(), packet_time_s=None)
    assert "critical path), model FLOP utilisation" in plan.summary()
    packets = replace(plan, packet_time_s=1.01 * plan.iteration_time_s)
    used = f"model FLOP utilisation {plan.model_flops_utilisation:.1%})"
    assert f"% compute on the critical path, {used}" in packets.summary()
    stack = get_stack("megatron-core", precision="fp8")
    fp8 = replace(plan, job=replace(plan.job, implementation=stack))
    assert "of the BF16 peak" in fp8.summary() and "of the BF16 peak" not in plan.summary()


def test_one_server_is_compared_with_nothing_for_a_reason():
    plan = to.co_optimize(
        to.Job(to.models.dlrm(tables=2, batch_per_gpu=4)),
        to.Cluster(1, 1, "100Gbps"),
        to.SearchOptions(steps=2),
    )
    assert "nothing: one server needs no network" in plan.summary()
