"""Reports of comparisons and experiments, their pictures, and what is refused."""

import base64
import dataclasses
import json
import re
import shutil
import struct
import subprocess
import zlib
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from html_pages import Page, assert_safe
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_layouts import layout_job, shared_layout_plan
from small_plans import shared_plan, small_dlrm
from typer.testing import CliRunner

import topoopt as to
from topoopt.cli.app import app, main
from topoopt.codesign.comparison import parse_comparison
from topoopt.experiment import Experiment, Table, run_experiment
from topoopt.problem.options import SearchOptions
from topoopt.problem.units import format_bytes, format_number, format_time
from topoopt.report import render_report, write_report
from topoopt.report.raster import blocks, cell_texts, colour, levels, png_uri

NODE = shutil.which("node")
SCRIPT = Path(to.__file__).parent / "report" / "report.js"
STYLE = SCRIPT.with_suffix(".css").read_text()
HOSTILE = "</script><b onclick=alert(1)>\"'&|"


@lru_cache(maxsize=1)
def comparison():
    return to.compare(
        to.Job(small_dlrm()),
        to.Cluster(4, 2, "100Gbps"),
        SearchOptions(steps=5, effort="quick"),
        fabrics=("fat-tree", "expander"),
    )


@lru_cache(maxsize=1)
def layout_comparison():
    cluster, options = to.Cluster(4, 3, "100Gbps"), SearchOptions(simulated=2)
    return to.compare(layout_job(), cluster, options, fabrics=("fat-tree",))


@pytest.fixture(params=[comparison, layout_comparison], ids=["operators", "layouts"])
def found(request):
    return request.param()


def test_a_comparison_shows_every_fabric(found):
    page = Page(render_report(found))
    assert_safe(page)
    rows = page.tables["Iteration time and cost by fabric"][1:]
    assert [row[0] for row in rows] == [result.fabric for result in found.fabrics]
    for row, result in zip(rows, found.fabrics, strict=True):
        assert row[1] == format_time(result.time_s)
        assert row[2] == f"{result.relative_time:.2f}x"
        assert row[5] == result.strategy_origin
    assert repr(found.lower_bound_s) in {value for value, _ in page.data}
    assert format_time(found.fabrics[0].time_s) in page.text
    shown = Page(found._repr_html_())
    assert_safe(shown)
    assert shown.tables == page.tables
    assert shown.count("script") == 0
    noun = {"operators": "strategy", "layouts": "layout"}[found.kind]
    assert f"the best {noun} that was found" in page.text
    # Transformers have a global batch to be given, and no steps.
    assert ("--global-batch" in page.text) == (found.kind == "layouts")
    bounded = {"operators": "plan", "layouts": "layout that is considered"}[found.kind]
    assert f"the lower bound of any {bounded} on any wiring" in page.text
    assert ("of any layout that is considered" in found.summary()) == (found.kind == "layouts")
    # What it does not say is named, so that the command is not taken for all of it.
    for option in ("--effort", "--confirm", "--schedule"):
        assert option in page.text
    assert ("--simulated" in page.text) == (found.kind == "layouts")
    assert (f"--steps {found.steps}" in page.text) == (found.kind == "operators")
    # No command knows a model of one's own by its name.
    model = {"operators": "dlrm", "layouts": "config.json"}[found.kind]
    assert f"topoopt compare {model} --servers" in page.text
    told = f"config.json stands for the file of {found.model}" in page.text
    assert told == (found.kind == "layouts")
    assert noun in found.summary().splitlines()[2].split()


def test_a_comparison_leads_to_the_page_of_its_plan(tmp_path):
    plan = tmp_path / "best.json"
    compared = to.compare(
        to.Job(small_dlrm()), to.Cluster(4, 2, "100Gbps"), SearchOptions(steps=5, confirm="none"),
        fabrics=("fat-tree",), plan_file=plan,
    )  # fmt: skip
    assert compared.fabrics[0].iteration_time_s == to.load_plan(plan).iteration_time_s
    write_report(compared, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert '<a href="a-plans/best.html">topoopt</a>' in page
    assert_safe(Page(page.replace('href="a-plans/', 'href="#')))
    assert (tmp_path / "a-plans" / "best.html").read_text() == render_report(plan)
    # From a file, with the plan moved along with it, it is the same.
    there = tmp_path / "there"
    there.mkdir()
    plan.rename(there / "best.json")
    text = json.dumps(dataclasses.asdict(compared))
    (there / "found.json").write_text(text)
    write_report(there / "found.json", there / "a.html")
    assert (there / "a.html").read_text() == page
    # Another plan, or none, is refused before anything is written.
    shared_plan().save(there / "best.json")
    with pytest.raises(to.InputError, match="not the one of the comparison"):
        write_report(there / "found.json", there / "b.html")
    (there / "best.json").unlink()
    with pytest.raises(to.InputError, match="put it beside the comparison"):
        write_report(there / "found.json", there / "b.html")
    assert not (there / "b.html").exists()


def test_the_command_compare_writes_its_plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["compare", "dlrm-16", "--servers", "4", "--degree", "2", "--bandwidth", "100Gbps"]
    asked += ["--steps", "5", "--confirm", "none", "--fabrics", "fat-tree", "--json", "-q"]
    run = CliRunner().invoke(app, [*asked, "--save-plan", "plan.json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["plan"] == "plan.json"
    assert to.load_plan("plan.json").baselines.keys() == {"fat-tree"}
    refused = CliRunner().invoke(app, [*asked, "--save-plan", "no/such/plan.json"])
    assert isinstance(refused.exception, to.InputError)


def test_a_comparison_comes_back_from_its_file(tmp_path, found):
    file = tmp_path / "c.json"
    found.save(file)
    assert parse_comparison(file.read_text()) == found
    assert json.loads(file.read_text()) == found.to_dict()
    assert [row["fabric"] for row in found.to_dict()["fabrics"]] == [
        result.fabric for result in found.fabrics
    ]
    assert render_report(file) == render_report(found)
    with pytest.raises(to.InputError, match="path is None"):
        found.save(None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"servers": 0}, "field 'servers' is 0"),
        ({"lower_bound_s": -1.0}, "field 'lower_bound_s' is -1.0"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"fabrics": []}, "lists no fabric"),
        ({"fabrics": [{"fabric": "x"}]}, "'fabrics.0.iteration_time_s' is missing; compare again"),
        ({"steps": "5"}, "field 'steps' is '5'"),
        ({"kind": "models"}, "field 'kind' is 'models'"),
    ],
)
def test_a_wrong_comparison_is_refused(change, message):
    document = dataclasses.asdict(comparison()) | change
    with pytest.raises(to.InputError, match=message):
        parse_comparison(json.dumps(document))


def case(number: int, seed: int) -> dict[str, object]:
    return {"time_s": number / 3 + seed, "word": HOSTILE if number else "plain"}


def tabulate(rows):
    cells = tuple((row["number"], row["word"], row["time_s"]) for row in rows)
    return [Table(("number", "word", "time_s"), cells, HOSTILE)]


def draw(rows):
    from matplotlib.figure import Figure

    return {"curve": Figure((1, 1)), "other": Figure((1, 1))}


EXPERIMENT = Experiment(
    name="two-numbers", description=f"Numbers {HOSTILE}", source="nowhere, figure 1",
    grid={"number": [0, 1, 2], "seed": [3]}, case=case, columns=("time_s", "word"),
    tabulate=tabulate, draw=draw,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_experiment(EXPERIMENT, tmp_path_factory.mktemp("run"))


def test_an_experiment_shows_tables_figures_rows_and_manifest(run):
    page = Page(render_report(run))
    assert_safe(page)
    assert EXPERIMENT.description in page.text
    assert page.text.count(EXPERIMENT.description) == 1
    rows = page.tables["All results"]
    assert rows[0] == ["number", "seed", "time_s", "word"]
    assert [row[3] for row in rows[1:]] == ["plain", HOSTILE, HOSTILE]
    assert [row[2] for row in rows[1:]] == [format_number(n / 3 + 3) for n in range(3)]
    assert [float(value) for value, _ in page.data] == [n / 3 + 3 for n in range(3)]
    table = page.tables[HOSTILE]
    assert table[0] == ["number", "word", "time_s"]
    assert [row[1] for row in table[1:]] == ["plain", HOSTILE, HOSTILE]
    images = page.of("img")
    # One picture a figure: the SVG where there are both.
    assert [image["alt"] for image in images] == ["curve", "other"]
    assert [image["src"].split(";")[0] for image in images] == [
        "data:image/svg+xml",
        "data:image/svg+xml",
    ]
    manifest = dict(map(tuple, page.tables["What the results were made with"][1:]))
    assert manifest["experiment"] == "two-numbers"
    assert manifest["case counts"] == "ok 3"


def test_a_results_folder_and_its_manifest_give_the_same_page(run):
    text = render_report(run)
    assert render_report(run.output) == text
    assert render_report(run.output / "manifest.json") == text
    shown = Page(run._repr_html_())
    assert_safe(shown)
    assert shown.count("script") == 0
    assert shown.tables[HOSTILE] == Page(text).tables[HOSTILE]


@pytest.fixture
def folder(run, tmp_path):
    """A copy of the results that may be spoilt, and a function that changes its manifest."""
    copy = tmp_path / "results"
    shutil.copytree(run.output, copy)

    def change(**fields):
        document = json.loads((copy / "manifest.json").read_text()) | fields
        (copy / "manifest.json").write_text(json.dumps(document))

    return copy, change


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"figures": ["../curve.svg"]}, r"figure '\.\./curve\.svg' is no file name"),
        ({"figures": ["gone.svg"]}, "gone.svg' cannot be read"),
        ({"figures": 3}, "figures is 3"),
        ({"schema": "other/1"}, "is not the manifest of an experiment"),
        ({"description": None}, "description is None"),
    ],
)
def test_a_wrong_manifest_is_refused(folder, fields, message):
    path, change = folder
    change(**fields)
    with pytest.raises(to.InputError, match=message):
        render_report(path)


def test_wrong_results_are_refused(folder):
    path, change = folder
    (path / "results.csv").write_text("a,b\n1\n")
    with pytest.raises(to.InputError, match="row 2 has 1 cell for 2 columns"):
        render_report(path)
    (path / "results.csv").unlink()
    with pytest.raises(to.InputError, match=r"results\.csv' does not exist"):
        render_report(path)
    change(state="running")
    with pytest.raises(to.InputError, match="has no results yet"):
        render_report(path)


def test_without_tables_the_rows_remain(folder):
    path, change = folder
    change(figures=[])
    (path / "table.md").unlink()
    page = Page(render_report(path))
    assert page.count("img") == 0
    assert list(page.tables) == ["All results", "What the results were made with"]


@pytest.mark.parametrize("plan_of", [shared_plan, shared_layout_plan])
def test_the_command_writes_the_page_whole_or_not_at_all(tmp_path, plan_of):
    plan = tmp_path / "plan.json"
    plan_of().save(plan)
    done = CliRunner().invoke(app, ["report", str(plan), "-o", str(tmp_path / "plan.html")])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"report written to {tmp_path / 'plan.html'}\n"
    assert (tmp_path / "plan.html").read_text() == render_report(plan_of())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.html", "plan.json"]


@pytest.mark.parametrize(
    ("name", "content", "output", "message"),
    [
        ("gone.json", None, "p.html", "does not exist"),
        ("cut.json", '{"schema_version": 3,', "p.html", "is not valid JSON"),
        ("other.json", '{"nodes": []}', "p.html", "is a network, which `topoopt report` does not"),
        (
            "designs.json",
            '{"objective": "time", "frontier": [], "designs": []}',
            "p.html",
            "is the answer of topoopt pareto, which has no plans; give the folder of its --save-p",
        ),
        ("list.json", "[]", "p.html", "is neither a plan nor a comparison"),
        ("old.json", '{"schema_version": 2}', "p.html", "has schema_version 2"),
        ("c.json", '{"fabrics": [], "model": "a", "servers": 4}', "w.svg", "has no wiring"),
        ("empty.json", "", "p.html", "is empty"),
        ("other.json", "{}", "none/p.html", "does not exist; create it first"),
        ("other.json", "{}", "other.json", "is also read"),
    ],
)
def test_wrong_input_ends_in_one_sentence_and_status_2(
    tmp_path, monkeypatch, capsys, name, content, output, message
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_text(content)
    monkeypatch.setattr("sys.argv", ["topoopt", "report", name, "-o", output])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


def test_what_has_no_report_is_refused():
    with pytest.raises(to.InputError, match="its subject is 3; give a plan"):
        write_report(3, "x.html")


def decoded(uri):
    """Decode an indexed PNG without filters, chunk by chunk."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(name + content)
        chunks[name] = content
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 3, 0, 0, 0]
    assert len(chunks[b"PLTE"]) == 768
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:]


MATRICES = arrays.arrays(
    np.float64, st.integers(1, 12).map(lambda n: (n, n)),
    elements=st.one_of(st.just(0.0), st.floats(1.0, 1e12)),
)  # fmt: skip


@given(MATRICES, st.integers(1, 5), st.booleans())
@settings(max_examples=80, deadline=None)
def test_pictures_hold_the_matrix(matrix, size, logarithmic):
    summed = blocks(matrix, size)
    cells = -(-len(matrix) // size)
    assert summed.shape == (cells, cells)
    for i in range(cells):
        for j in range(cells):
            part = matrix[i * size : (i + 1) * size, j * size : (j + 1) * size]
            assert summed[i, j] == pytest.approx(part.sum())
    positive = summed[summed > 0]
    low, high = (positive.min(), positive.max()) if positive.size else (0.0, 0.0)
    steps = levels(summed, low, high, logarithmic)
    assert ((steps == 0) == (summed == 0)).all()
    assert (decoded(png_uri(steps)) == steps).all()
    if positive.size:
        assert steps[summed == high].min() == 255
        order = np.argsort(summed.ravel(), kind="stable")
        assert (np.diff(steps.ravel()[order].astype(int)) >= 0).all()
    texts: dict[str, int] = {"before": 0}
    which = np.frombuffer(base64.b64decode(cell_texts(summed, texts)), "<u2")
    assert [list(texts)[i] for i in which] == [format_bytes(v) for v in summed.ravel()]


def test_the_ramp_darkens_evenly():
    light = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(colour, np.linspace(0, 1, 50))]
    assert all(a > b for a, b in pairwise(light))
    assert colour(0.0) == (232, 241, 248)


@pytest.mark.skipif(NODE is None, reason="node checks the script's syntax")
def test_the_script_is_well_formed():
    subprocess.run([NODE, "--check", str(SCRIPT)], check=True)


def brightness(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_stand_out_in_both_themes():
    # Web Content Accessibility Guidelines 2.1, success criteria 1.4.3 and 1.4.11.
    light, dark = re.findall(r":root \{(.*?)\n *\}", STYLE, re.S)[:2]
    themes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text)) for text in (light, dark)]
    assert set(themes[0]) == set(themes[1])
    pairs = [
        (word, ground, 4.5) for word in ("ink", "soft", "accent") for ground in ("page", "panel")
    ]
    pairs += [("on", part, 4.5) for part in ("blue", "grey")] + [("page", "ink", 4.5)]
    pairs += [(part, "panel", 3.0) for part in ("blue", "grey", "mark", "red", "accent")]
    for theme in themes:
        for first, second, least in pairs:
            high, low = sorted(map(brightness, (theme[first], theme[second])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= least, (first, second)


def test_the_script_puts_words_in_as_text():
    script = SCRIPT.read_text()
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
    ):
        assert way not in script


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("plan_of", [shared_plan, shared_layout_plan], ids=["strategy", "layout"])
def test_a_browser_shows_the_page(tmp_path, plan_of, width, dark):
    path = tmp_path / "plan.html"
    write_report(plan_of(), path)
    page = Browser(tmp_path / "profile")
    try:
        page.open(path, width=width, dark=dark)
        assert page.run("document.documentElement.scrollWidth") <= width
        back = page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, back[4:-1].split(","))) < 380) == dark
        tip = (
            "(({hidden, textContent}) => hidden ? '' : textContent)(document.querySelector('#tip'))"
        )
        for query, words in (
            ("#wiring circle[data-s='2']", "server 2: sends"),
            ("#traffic svg.map[data-map=Both]", "to server"),
            ("#timeline [data-lane='0']", "(critical path)"),
            (".piece.p-compute", "compute: "),
        ):
            page.move(1, 1)
            page.move(*page.centre(query))
            assert words in page.run(tip), query
        page.run("document.querySelector('[data-ring=\"0\"]').click()")
        hidden = page.run("document.querySelectorAll('#wiring path.off').length")
        first, *others = [{*pairwise((*ring.order, ring.order[0]))} for ring in plan_of().rings]
        assert hidden == len(first.difference(*others))
        page.run("document.querySelector('#wiring .stage').focus()")
        for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
            page.key(key)
        assert "Gbps" in page.run("document.querySelector('#wiring .readout').textContent")
        before = page.run("document.querySelector('[data-lane]').getAttribute('viewBox')")
        page.run("document.querySelector('#timeline [data-zoom=in]').click()")
        after = page.run("document.querySelector('[data-lane]').getAttribute('viewBox')")
        assert float(after.split()[2]) == float(before.split()[2]) / 2
        assert page.errors == []
        assert [url for url in page.requests if not url.startswith("data:")] == [f"file://{path}"]
    finally:
        page.close()


def test_a_comparison_with_rewired_fabrics_names_the_options_that_it_does_not_record():
    for fabric, told in (("ocs-reconfig", True), ("expander", False)):
        cluster = to.Cluster(servers=2, degree=1, bandwidth="100Gbps")
        options = to.SearchOptions(steps=0, confirm="none")
        found = to.compare(to.Job(small_dlrm()), cluster, options, fabrics=(fabric,))
        assert ("--reconfiguration-delay" in render_report(found)) is told
