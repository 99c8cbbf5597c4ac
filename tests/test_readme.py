"""What README and docs promise: their examples run, their commands and keys exist."""

import ast
import dataclasses
import doctest
import importlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
import typing
from pathlib import Path

import numpy as np
import pytest
import typer
from cli_runs import topoopt as ran
from doc_pages import blocks, cells
from small_layouts import shared_layout_plan
from small_plans import shared_plan

import topoopt
from parallelism.device import RooflineModel, Server
from parallelism.models import PRESETS
from parallelism.transformers.presets import TRANSFORMERS
from topoopt.cli.app import app
from topoopt.evaluate.scoring import SEARCH_TOLERANCE
from topoopt.plan.plan import Plan
from topoopt.problem.cluster import Cluster
from topoopt.problem.effort import EFFORTS
from topoopt.problem.job import Job
from topoopt.problem.options import SearchOptions

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
DOCS = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
TUTORIALS = {path.name: path.read_text() for path in sorted((ROOT / "docs/tutorials").glob("*.md"))}
PAGES = {
    "README.md": README,
    **{f"docs/{name}": text for name, text in DOCS.items()},
    **{f"docs/tutorials/{name}": text for name, text in TUTORIALS.items()},
    **{
        name: (ROOT / name).read_text()
        for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
    },
    "experiments/README.md": (ROOT / "experiments" / "README.md").read_text(),
}
MOST_LINES = 150  # of README
FIRST_SCREEN = 60
SEPARATOR = "=== next block ==="


def marked(name, text=README):
    """The fenced block of a page between <!-- name --> and <!-- /name -->."""
    (shown,) = re.findall(rf"<!-- {name} -->\n```text\n(.*?)```\n<!-- /{name} -->", text, re.S)
    return shown


def python(program, directory):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=directory, capture_output=True, text=True,
    )  # fmt: skip


def numbers(text):
    """Times in seconds by the words before them, first of each line."""
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
    found = {}
    for words, value, unit in re.findall(r"^ *([a-z][a-z -]+?) +([\d.]+) (s|ms|us)\b", text, re.M):
        found[words] = float(value) * scale[unit]
    return found


@pytest.fixture(scope="module")
def first_hour(tmp_path_factory):
    """What each Python block of the README prints, run in order, and the folder of its files."""
    directory = tmp_path_factory.mktemp("readme")
    program = f"print({SEPARATOR!r})\n".join(blocks(README, "python"))
    done = python(program, directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(SEPARATOR + "\n"), directory


# Another processor may round and so search otherwise, but not find something else entirely.
ALIKE = {"rel": 0.1}


# By default the examples run with little effort only, below.
@pytest.mark.slow
@pytest.mark.parametrize(("block", "name"), [(0, "output"), (1, "layout")])
def test_the_plans_print_what_the_readme_shows(first_hour, block, name):
    shown, printed = marked(name).splitlines(), first_hour[0][block].splitlines()
    assert len(shown) == len(printed) == 6
    assert shown[0] == printed[0]
    assert [line.split()[0] for line in shown] == [line.split()[0] for line in printed]
    for before, now in zip(shown[1:4], printed[1:4], strict=True):
        quantities = [
            [float(number) for number in re.findall(r"([\d.]+)(?:x| m?s\b)", line)]
            for line in (before, now)
        ]
        assert quantities[0] == pytest.approx(quantities[1], **ALIKE), f"renew the README: {before}"


@pytest.mark.slow
def test_details_are_what_the_page_on_plans_shows(first_hour):
    plan = topoopt.load_plan(first_hour[1] / "plan.json")
    shown, printed = marked("output", DOCS["plans.md"]), plan.summary(details=True)
    assert shown.splitlines()[0] == printed.splitlines()[0]
    strip = re.compile(r"[^a-z]+")
    for part in (
        "packet time",
        "fluid time",
        "lower bound",
        "fabric ",
        "wiring:",
        "rings over",
        "seed ",
    ):
        assert part in shown
        assert part in printed
    before, now = numbers(shown), numbers(printed)
    assert {strip.sub(" ", key) for key in before} == {strip.sub(" ", key) for key in now}
    assert {"packet time", "fluid time", "compute", "lower bound", "topoopt", "fat-tree"} <= set(
        now
    )
    for key in ("packet time", "fluid time", "lower bound", "ideal-switch", "fat-tree"):
        assert before[key] == pytest.approx(now[key], **ALIKE), f"renew docs/plans.md: {key}"
    assert plan.baselines["fat-tree"].cost_usd == pytest.approx(54912)


@pytest.mark.slow
def test_the_picture_of_the_readme_is_that_of_its_plan(first_hour):
    drawn, shown = (
        (folder / "wiring.svg").read_text() for folder in (first_hour[1], ROOT / "docs")
    )
    for tag in ("<path ", "<circle ", "<text "):
        assert drawn.count(tag) == shown.count(tag) > 0
    assert drawn.split("<g ")[0] == shown.split("<g ")[0]


def test_first_screen():
    assert len(README.splitlines()) <= MOST_LINES
    first = "\n".join(README.splitlines()[:FIRST_SCREEN])
    assert first.startswith("# topoopt\n")
    setup, checks = blocks(first, "sh")[:2]
    for line in (setup, checks):
        assert line.count("\n") == 1
    assert "-c constraints.txt ." in setup
    assert "topoopt plan dlrm-16" in setup
    assert checks == "bash .ci/run\n"
    assert "```python" in first
    assert "<!-- output -->" in first


def test_the_workloads_are_those_that_the_program_lists():
    shown = marked("models", DOCS["models.md"])
    done = ran("models")
    head = shown.splitlines()[0]
    page = DOCS["transformers.md"]
    (rest,) = re.findall(r"<!-- transformers -->\n```text\n(.*?)```\n", page, re.S)
    assert rest.splitlines()[0] == head
    assert done.stdout == shown + "".join(rest.splitlines(keepends=True)[1:])
    assert len(shown.splitlines()) == len(PRESETS) + 1
    for text in (README, DOCS["models.md"]):
        assert f"{len(TRANSFORMERS)} transformers" in text


def commands():
    """Every command line of the pages: (page, words after topoopt)."""
    for page, text in PAGES.items():
        shell = "\n".join(blocks(text, "sh")).replace("\\\n", " ")
        inline = [re.sub(r"\s+", " ", code) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
        for line in (*re.split(r"\n|&&", shell), *inline):
            words = shlex.split(line.strip(), posix=True) if "topoopt " in line else []
            if words and words[0].endswith("topoopt"):
                yield page, words[1:]


def known_options(group=None, before=""):
    """Options of every command, by its name; of groups like clos, those of their commands."""
    known = {}
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            known |= known_options(command, f"{before}{name} ")
        else:
            options = {
                option
                for parameter in command.params
                for option in (*parameter.opts, *parameter.secondary_opts)
            }
            known[before + name] = options
    return known


def test_every_command_line_exists():
    known = known_options()
    seen = set()
    for page, words in commands():
        if not words or not words[0].replace("-", "").isalpha():
            continue
        two = " ".join(words[:2])
        if len(words) == 1 and any(name.startswith(f"{two} ") for name in known):
            continue  # a group, as in the table of commands
        name = two if two in known else words[0]
        assert name in known, f"{page}: topoopt {name}"
        seen.add(name)
        for word in words[1:]:
            if word.startswith("-"):
                assert word in known[name] | {"--help"}, f"{page}: topoopt {name} {word}"
    assert seen == set(known)


def test_every_option_that_a_page_names_exists():
    root = {name for option in typer.main.get_command(app).params for name in option.opts}
    known = set().union(root, *known_options().values())
    written = [file.read_text() for file in (ROOT / "topoopt" / "deploy").glob("*.py")]
    others = {  # of scripts, of the harness, of benchmarks; and of Megatron-LM
        "--quick", "--table", *re.findall(r"--[a-z-]+", "".join(written)),
    }  # fmt: skip
    named = {
        (page, option) for page, text in OF_TODAY.items()
        for option in re.findall(r"`(--[a-z-]+)", text)
    }  # fmt: skip
    assert {"--device", "--faithful", "--seconds", "--prices"} <= {option for _, option in named}
    for page, option in sorted(named):
        assert option in known | others, f"{page} names {option}"


def test_first_column_of_the_key_table_names_every_key_of_a_plan(small):
    section = DOCS["plans.md"].split("## Keys of a plan")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = {key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(json.loads((small / "plan.json").read_text()))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A directory with a real small plan, its traffic and its network."""
    directory = tmp_path_factory.mktemp("small")
    done = ran(
        "plan", "dlrm-16", "--servers", "4", "--degree", "2", "--bandwidth", "100Gbps",
        "--steps", "5", "--effort", "quick", "-o", "plan.json", "--save-traffic", "traffic.npz",
        "--save-network", "network.json", "--quiet", directory=directory,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return directory


SECTIONS = {
    "Plan": "Top level",
    "ClusterRecord": "`cluster`",
    "StrategyRecord": "`parallelization` of kind `operators`",
    "OperatorPlan": "`parallelization.operators`",
    "LayoutRecord": "`parallelization` of kind `layouts`",
    "Layout": "`parallelization.layout`",
    "MemoryUse": "`parallelization.stages`",
    "Link": "`links`",
    "RingRecord": "`rings`",
    "RouteTable": "`routes`",
    "BoundRecord": "`bound`, `parallelization_bound` and the bounds of a wiring",
    "GapRecord": "`gap_parts`",
    "Baseline": "`baselines`, one entry a fabric",
    "ReconfigurationRecord": "`baselines.reconfiguration`",
    "OperatorQuestion": "`job` of kind `operators`",
    "ModelRecord": "`job.model`, an operator graph",
    "ModelOperator": "`job.model.operators`",
    "LayoutQuestion": "`job` of kind `layouts`",
    "Transformer": "`job.model`, a transformer",
    "Attention": "`job.model.attention`",
    "LatentAttention": "`job.model.attention.latent`",
    "Indexer": "`job.model.attention.latent.indexer`",
    "SlidingWindow": "`job.model.window`",
    "LinearAttention": "`job.model.linear`",
    "Experts": "`job.model.experts`",
    "GpuRates": "`job.rates`",
    "Implementation": "`job.implementation`",
    "Choices": "`job.choices`",
    "Server": "`job.server`",
    "Accelerator": "`job.server.accelerator`",
    "SearchRecord": "`search`",
    "SearchOptions": "`search.options`",
    "Improvements": "`search.options.improvements`",
    "Reconfiguration": "`search.options.reconfiguration`",
    "ScheduleRecord": "`schedule`",
}


def records_of(annotation):
    """All dataclasses that an annotation names, and those that their fields name, by name."""
    found, waiting = {}, [annotation]
    while waiting:
        one = waiting.pop()
        waiting += typing.get_args(one)
        if dataclasses.is_dataclass(one) and one.__name__ not in found:
            found[one.__name__] = one
            hints = typing.get_type_hints(one)
            waiting += [hints[field.name] for field in dataclasses.fields(one)]
    return found


RECORDS = records_of(Plan)


@pytest.mark.parametrize("record", sorted(RECORDS))
def test_every_field_of_a_plan_is_documented(record):
    fields = {field.name for field in dataclasses.fields(RECORDS[record])}
    (section,) = re.findall(
        rf"^## {re.escape(SECTIONS[record])}$(.*?)(?=^## |\Z)", DOCS["plan-file.md"], re.M | re.S
    )
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert fields == {key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_section_is_of_a_record():
    assert set(SECTIONS) == set(RECORDS)
    headings = re.findall(r"^## (.*`.*)$", DOCS["plan-file.md"], re.M)
    assert sorted(headings) == sorted(set(SECTIONS.values()) - {"Top level"})


@pytest.mark.parametrize("plan", [shared_plan, shared_layout_plan])
def test_free_form_records_are_documented(plan):
    page, document = DOCS["plan-file.md"], plan().to_dict()
    bounds = (
        "bound", "parallelization_bound", "topology_bound", "routes_bound", "collective_bound",
    )  # fmt: skip
    terms = [document[name]["terms_s"] for name in bounds]
    compute = document["job"].get("compute", {})
    for key in {*compute, *document["search"]["counts"], *(key for each in terms for key in each)}:
        assert f"`{key}`" in page, key
    values = [document["fabric_model"], document["routing"], document["job"]["kind"]]
    values += [part["name"] for part in document["gap_parts"]]
    for value in (*values, compute.get("kind", "pipeline")):
        assert f"`{value}`" in page, value
    assert set(document["prices"]) == {"source", "usd_per_port_by_gbps"}
    assert f"`schema_version` is {document['schema_version']};" in page


def test_traffic_and_network_files_hold_what_is_documented(small):
    with np.load(small / "traffic.npz") as traffic:
        documented = set(re.findall(r"^\| `(\w+)` \|", DOCS["traffic-file.md"], re.M))
        assert documented == set(traffic.files)
    network = json.loads((small / "network.json").read_text())
    page = DOCS["network-file.md"]
    for key in {*network, *network["graph"], *network["nodes"][0], *network["edges"][0]}:
        assert f"`{key}`" in page, key


EXAMPLES = {name: found for name, text in DOCS.items() if (found := blocks(text, "python"))}
# What these need besides; a test below imports what they import.
UNTRIED = {"capture.md": "PyTorch", "clos.md": "flows of a live cluster", "validate.md": "data"}
SILENT = ("report.md",)  # writes a file
LONG = ("compare.md", "job-file.md", "layout-plans.md", "pareto.md")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
        for name in sorted(set(EXAMPLES) - set(UNTRIED))
    ],
)
def test_examples_of_the_docs_run(name, small, monkeypatch, capsys):
    monkeypatch.chdir(small)
    with_little_effort("\n".join(EXAMPLES[name]), monkeypatch)
    assert capsys.readouterr().out.strip() or name in SILENT


def with_little_effort(program, monkeypatch):
    """Run an example whose output is not compared: a search of little effort prints as much."""
    little = dataclasses.replace(EFFORTS["quick"], layouts=6)
    for effort in EFFORTS:
        monkeypatch.setitem(EFFORTS, effort, little)
    exec(compile(program, "an example", "exec", dont_inherit=True), {"__name__": "__main__"})


def test_the_examples_of_the_readme_run_on_a_few_servers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    program = "\n".join(blocks(README, "python"))
    fewer = re.sub(r"servers=\d+, degree=\d+", "servers=2, degree=2", program)
    with_little_effort(fewer.replace("llama3-8b", "gpt2"), monkeypatch)
    assert len(capsys.readouterr().out.splitlines()) == 13
    assert (tmp_path / "plan.json").exists() and (tmp_path / "wiring.svg").exists()


def test_the_example_of_the_package_runs():
    found = doctest.testmod(topoopt)
    assert found.attempted == 5
    assert found.failed == 0


def imported_names():
    """Every name of ours that an example imports: (page, dotted name)."""
    for page, text in PAGES.items():
        for node in ast.walk(ast.parse("\n".join((*blocks(text, "python"), *cells(text))))):
            if isinstance(node, ast.ImportFrom):
                yield from ((page, f"{node.module}.{alias.name}") for alias in node.names)


PACKAGES = ("codesign_base", "routing", "parallelism", "topoopt")
# The changelog says what things were called when it was written.
OF_TODAY = {page: text for page, text in PAGES.items() if page != "CHANGELOG.md"}


def test_every_module_and_function_that_a_page_names_exists():
    dotted = re.compile(rf"(?<![\w./])(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+")
    named = {(page, name) for page, text in OF_TODAY.items() for name in dotted.findall(text)}
    named |= {(page, name) for page, name in imported_names() if name.startswith(PACKAGES)}
    assert len(named) > 50
    for page, name in sorted(named):
        # There is a page routing.md.
        assert name.endswith(".md") or exists(name), f"{page} names {name}"


def exists(name):
    """Whether a dotted name is a module, or what a module holds."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:count]))
        except ModuleNotFoundError:
            continue
        for word in words[count:]:
            if not hasattr(found, word):
                return False
            found = getattr(found, word)
        return True
    return False


def test_every_path_that_a_page_names_exists():
    path = re.compile(rf"`((?:{'|'.join((*PACKAGES, 'docs', 'tests', 'benchmarks'))})/[^`\s]*)`")
    named = {(page, name) for page, text in OF_TODAY.items() for name in path.findall(text)}
    assert len(named) > 5
    for page, name in sorted(named):
        assert list(ROOT.glob(name.rstrip("/"))), f"{page} names {name}"


def test_the_price_page_shows_the_default_table_and_a_legal_file():
    prices = json.loads((ROOT / "topoopt" / "problem" / "prices.json").read_text())
    for component, points in prices["usd_per_port_by_gbps"].items():
        assert f"| `{component}` | {points['100']} | {points['200']} |" in DOCS["prices.md"]
    (example,) = blocks(DOCS["prices.md"], "json")
    from topoopt.problem.prices import PriceTable

    assert PriceTable.from_dict(json.loads(example)).source


def test_the_profile_page_shows_a_legal_file(tmp_path):
    from parallelism.profile_file import load_profile

    (example,) = blocks(DOCS["profile-file.md"], "json")
    path = tmp_path / "profile.json"
    path.write_text(example)
    assert load_profile(path).measurements


def test_documented_defaults_are_those_of_the_code():
    table = DOCS["defaults.md"]
    server, roofline = Server(), RooflineModel()
    cluster = Cluster(servers=2, degree=1, bandwidth="1Gbps")
    layouts = Job(topoopt.load_transformer("gpt2"), global_batch=8).server
    assert f"{server.gpus} A100 of 80 GB (`a100`); of transformers by layouts " in table
    assert f"layouts {layouts.gpus} H100 (`h100`)" in table
    assert server.accelerator.name == "a100-80gb"
    assert layouts.accelerator.name == "h100-sxm"
    assert "| links inside a server | 25e9 bytes/s" in table
    assert server.intra_bandwidth == 25e9
    assert f"roofline: {roofline.efficiency:g} of the FP32 peak" in table
    assert f"{roofline.memory_efficiency:g} of the memory bandwidth" in table
    assert f"{roofline.launch_overhead * 1e6:g} us a pass" in table
    assert (cluster.ports, cluster.hop_latency) == ("directed", 1e-6)
    normal = EFFORTS["normal"]
    assert SearchOptions().settled("operators", 16).spent == normal
    assert f"seed 0, {SearchOptions().chains} chains, normal effort" in table
    assert f"gained less than {normal.least_gain:.1%} (".replace("%", " %") in table
    assert f"{normal.layouts} layouts simulated, of task graphs up to " in table
    assert f"up to {SearchOptions().memory_bytes / 1e9:g} GB |" in table
    assert f"end within {SEARCH_TOLERANCE:.0%} of".replace("%", " %") in DOCS["fabric-model.md"]


def test_links_between_pages_exist():
    for page, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_public_names_stay_what_they_are_whatever_was_imported():
    # A submodule called like a function would replace it once somebody imports the submodule.
    program = """
import importlib, pkgutil, topoopt
for module in pkgutil.iter_modules(topoopt.__path__):
    importlib.import_module("topoopt." + module.name)
for name in topoopt.__all__:
    value = getattr(topoopt, name)
    assert name in ("models", "__version__") or callable(value), name
"""
    done = python(program, ".")
    assert done.returncode == 0, done.stderr
    assert "compare" in topoopt.__all__


ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()


def packages():
    """Rows of the table of packages: (layer, folders of the row)."""
    table = ARCHITECTURE.split("## Packages")[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("|")]
    package = ""
    for layer, first, what in rows[2:]:
        package = first.strip(" `/") or package
        within = [f"{package}/{name}" for name in re.findall(r"`(\w+)/`", what)]
        own = [package] if first.strip() else []
        yield (
            int(layer) if layer.strip() else None,
            own + [n for n in within if (ROOT / n).is_dir()],
        )


def test_the_architecture_names_every_package_once():
    named = [folder for _, folders in packages() for folder in folders]
    there = {
        str(path.parent.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert sorted(named) == sorted(there)


def test_the_architecture_orders_packages_as_the_contracts_do():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = [each["layers"] for each in project["tool"]["importlinter"]["contracts"][:2]]
    top, rooms = ([set(re.findall(r"\w+", layer)) for layer in each[::-1]] for each in layers)
    order = [*top[:-1], *({f"topoopt/{room}" for room in layer} for layer in rooms)]
    found = [set() for _ in order]
    for layer, folders in packages():
        if layer is not None:
            found[layer].add(folders[0])
    assert found == order


def test_the_architecture_fits_on_a_screen_and_a_half():
    lines = ARCHITECTURE.splitlines()
    assert len(lines) <= 95
    assert max(map(len, lines)) <= 110


def test_tables_of_results_are_those_that_the_experiments_wrote():
    shown = re.findall(
        r"<!-- table (\S+) -->\n\n(.*?)\n\n<!-- /table -->", DOCS["results.md"], re.S
    )
    assert {name.split("/")[0] for name, _ in shown} >= {"dedicated-cluster", "ring-choice"}
    for name, table in shown:
        written = (ROOT / "experiments" / "results" / name / "table.md").read_text().splitlines()
        assert len(table.splitlines()) > 2
        assert set(table.splitlines()) <= set(written), name


def test_figures_of_the_pages_exist():
    shown = [
        (page, path) for page, text in PAGES.items()
        for path in re.findall(r"!\[[^]]+\]\(([^)]+)\)|<img src=\"([^\"]+)\"", text)
    ]  # fmt: skip
    assert len([page for page, _ in shown if page == "README.md"]) == 2
    for page, paths in shown:
        assert ((ROOT / page).parent / "".join(paths)).is_file()


def test_the_gain_that_the_readme_names_is_the_largest_of_the_table():
    (table,) = re.findall(
        r"<!-- table dedicated-cluster/full -->(.*?)<!--", DOCS["results.md"], re.S
    )
    gains = [float(row.split("|")[4]) for row in table.strip().splitlines()[2:]]
    assert f"{max(gains):.3f} times as fast (BERT at 10 Gbps)" in re.sub(r"\s+", " ", README)


def test_what_the_readme_says_of_small_optima_is_what_the_experiment_wrote():
    written = (ROOT / "experiments/results/small-optima/quick/table.md").read_text()
    of = dict(re.findall(r"^\| (.*?) +\| (\S+) +\|$", written, re.M))
    found = float(of["search finds the optimum (within 0.01 %) or better"].removesuffix("%"))
    count = round(found / 100 * int(of["instances"]))
    assert f"**{count} of {of['instances']}** small jobs" in README
    assert of["largest excess"].replace("%", " %") + " more" in README
    assert f"{of['bound over optimum, least']} of it" in README


def test_what_the_readme_says_of_language_models_is_what_validation_finds():
    from topoopt.studies.validation.llm import validate_llm

    (found,) = (
        s for s in validate_llm().summaries if (s.quantity, s.role) == ("iteration time", "all")
    )
    said = re.sub(r"\s+", " ", README)
    assert f"**{found.mean:.1%}".replace("%", " %") in said
    assert f"mean error on {found.cases} published iteration times" in said
    assert f"the largest is {found.max:.1%}".replace("%", " %") in said
