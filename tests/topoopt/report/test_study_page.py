"""The report of a folder of plans: every plan is there, and each row leads to its page."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from html_pages import Page, assert_safe
from small_plans import shared_plan, small_dlrm
from typer.testing import CliRunner

import topoopt as to
from topoopt.cli.app import app
from topoopt.report import render_report, write_report

FEW = to.SearchOptions(steps=5, confirm="none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    job = to.Job(small_dlrm())
    clusters = [to.Cluster(servers=4, degree=d, bandwidth="100Gbps") for d in (1, 2)]
    to.sweep({"a & b": job}, clusters, FEW, folder=folder)
    (folder / "store.json").write_text('{"schema": "another"}')
    return folder


def rows(page):
    """Of each row the page that it leads to, and its text."""
    for row in re.findall(r"<tr>(.*?)</tr>", page, re.S):
        for link in re.findall(r'<a href="([^"#]+)"', row):
            yield unescape(link), unescape(re.sub(r"<[^>]+>", " ", row)), "<strong>" in row


@pytest.mark.slow
def test_every_plan_has_a_row_and_a_page(folder, tmp_path):
    write_report(folder, tmp_path / "all.html")
    page = (tmp_path / "all.html").read_text()
    # Nothing but the pages of the plans, beside it, is led to.
    assert_safe(Page(page.replace('href="all-plans/', 'href="#')))
    plans = [to.load_plan(path) for path in sorted(folder.glob("a*.json"))]
    found = list(rows(page))
    assert len(found) == len(plans) == 2
    times = sorted(plan.time_s / plan.global_batch for plan in plans)
    shown = [float(v) for v in re.findall(r'<data value="([^"]+)" class="value"', page)]
    assert shown == times
    assert ">global batch</th>" in page
    for link, text, _ in found:
        assert str(plans[0].global_batch) in text
        assert (tmp_path / link).read_text() == render_report(folder / f"{Path(link).stem}.json")
        ports = text.replace("\N{NO-BREAK SPACE}", " ")
        (plan,) = (p for p in plans if f"{p.cluster.degree} x 100 Gbps" in ports)
        assert f"4x{plan.cluster.degree}-" in link
    assert not (tmp_path / "all-plans" / "store.html").exists()


def test_plans_that_something_cheaper_matches_are_not_in_bold(tmp_path):
    plan = shared_plan()
    (tmp_path / "in").mkdir()
    plan.save(tmp_path / "in" / "one.json")
    plan.save(tmp_path / "in" / "two.json")
    write_report(tmp_path / "in", tmp_path / "x.html")
    found = list(rows((tmp_path / "x.html").read_text()))
    assert [bold for _, _, bold in found] == [True, False]
    assert ">seed</th>" not in (tmp_path / "x.html").read_text()  # all have the same


def test_seeds_are_told_where_they_differ(tmp_path):
    (tmp_path / "in").mkdir()
    for seed in (0, 1):
        replace(shared_plan(), seed=seed).save(tmp_path / "in" / f"{seed}.json")
    write_report(tmp_path / "in", tmp_path / "x.html")
    assert ">seed</th>" in (tmp_path / "x.html").read_text()


def test_different_models_of_one_name_are_not_compared(tmp_path):
    """Eight tables instead of four take longer a sample, whatever they cost."""
    (tmp_path / "in").mkdir()
    cluster = to.Cluster(servers=2, degree=1, bandwidth="100Gbps")
    for name, tables in (("few", 2), ("many", 4)):
        job = to.Job(to.models.dlrm(tables=tables, batch_per_gpu=32))
        to.co_optimize(job, cluster, FEW, baselines=()).save(tmp_path / "in" / f"{name}.json")
    write_report(tmp_path / "in", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert [bold for _, _, bold in rows(page)] == [True, True]
    assert "2 plans of 2 models." in page
    for title in ("dlrm (1 of 2 of this name)", "dlrm (2 of 2 of this name)"):
        assert title in page


def test_plans_of_one_model_by_several_batches_are_compared(tmp_path):
    (tmp_path / "in").mkdir()
    cluster = to.Cluster(servers=2, degree=1, bandwidth="100Gbps")
    for batch in (32, 64):
        job = to.Job(to.models.dlrm(tables=2, batch_per_gpu=batch))
        to.co_optimize(job, cluster, FEW, baselines=()).save(tmp_path / "in" / f"{batch}.json")
    write_report(tmp_path / "in", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert [bold for _, _, bold in rows(page)] == [True, False]


def test_the_command_writes_the_same_and_refuses_a_folder_without_plans(folder, tmp_path):
    write_report(folder, tmp_path / "a.html")
    run = CliRunner().invoke(app, ["report", str(folder), "-o", str(tmp_path / "b.html")])
    assert run.exit_code == 0, run.output
    texts = [(tmp_path / name).read_text() for name in ("a.html", "b.html")]
    assert texts[0].replace("a-plans", "b-plans") == texts[1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(to.InputError, match=r"manifest\.json nor plans"):
        write_report(tmp_path / "empty", tmp_path / "c.html")
    (tmp_path / "d-plans").write_text("in the way")
    with pytest.raises(to.InputError, match="d-plans"):
        write_report(folder, tmp_path / "d.html")
    assert not (tmp_path / "c.html").exists() and not (tmp_path / "d.html").exists()


def test_a_folder_of_plans_has_no_one_wiring_to_draw(tmp_path):
    shared_plan().save(tmp_path / "one.json")
    with pytest.raises(to.InputError, match="holds plans, which have a wiring each; give one of"):
        write_report(tmp_path, tmp_path / "wiring.svg")
    assert not (tmp_path / "wiring.svg").exists()
