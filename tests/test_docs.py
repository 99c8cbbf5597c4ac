"""The documentation site: made from the code, complete, and its examples run."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from doc_pages import cells

import topoopt
from topoopt.cli.app import app
from topoopt.topology.zoo.registry import FABRICS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
# Times operators on this machine, for minutes.
NEEDS = {"profile_operators"}
PACKAGES = ("codesign_base", "routing", "parallelism", "topoopt")


def of_docs(name):
    specification = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate():
    return of_docs("generate")


PUBLIC = sorted(set(topoopt.__all__) - {"__version__", "models"})


# One that runs: what reads a file of yours does not.
EXAMPLE = re.compile(r"^ *>>> (?!.*# doctest: \+SKIP)", re.M)
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if EXAMPLE.search(path.read_text()) and path.name != "__init__.py"
)


@pytest.fixture(scope="module")
def planned_once():
    """Plans by what was asked: many examples ask for the same one."""
    plan, plans = topoopt.co_optimize, {}

    def remembered(*asked, **named):
        key = repr((asked, sorted(named.items())))
        if key not in plans:
            plans[key] = plan(*asked, **named)
        return plans[key]

    return remembered


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_every_example_of_a_docstring_runs(name, tmp_path, monkeypatch, planned_once):
    if name.endswith("torch_capture"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(topoopt, "co_optimize", planned_once)
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.parametrize("name", [*PUBLIC, "models.get_model"])
def test_public_names_have_examples(name):
    what = topoopt
    for word in name.split("."):
        what = getattr(what, word)
    # Of its own, not what a class inherits; the test above runs it.
    assert ">>> " in (what.__doc__ or "")
    assert what.__module__ in WITH_EXAMPLES or what.__module__ == "codesign_base.errors"


IMPORTED = re.compile(r"from ((?:routing|parallelism)[.\w]*) import (.*)")


def named_by_pages():
    """Functions of lower packages that docs and tutorials call or name."""
    dotted = re.compile(r"(?:routing|parallelism)(?:\.\w+)+")
    for path in (*DOCS.glob("*.md"), *TUTORIALS):
        text = path.read_text()
        yield from dotted.findall(text)
        yield from (
            f"{module}.{name}"
            for module, names in IMPORTED.findall(text)
            for name in re.findall(r"\w+", names)
        )


def test_functions_that_pages_name_have_examples():
    seen = set()
    for name in set(named_by_pages()):
        module, _, last = name.rpartition(".")
        try:
            what = getattr(importlib.import_module(module), last, None)
        except ImportError:  # a module's own name, or an attribute of a class
            continue
        if inspect.isfunction(what) and last not in NEEDS:
            seen.add(last)
            assert ">>> " in (what.__doc__ or ""), name
    assert {"min_congestion", "best_paths", "traffic_of", "space_size"} <= seen


def test_the_page_of_python_lists_every_public_name_once(generate):
    listed = [name for names in generate.GROUPS.values() for name in names]
    assert sorted(listed) == PUBLIC
    page = generate.api_page()
    assert all(f"topoopt.{name}\n" in page for name in listed)
    for module in generate.MODULES:
        assert importlib.import_module(module).__doc__


def test_the_page_of_commands_has_every_option_with_its_default(generate):
    page = generate.command_page()
    sections = re.split(r"^## `topoopt (.*?)`$", page, flags=re.M)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    seen = 0
    for name, command in typer.main.get_command(app).commands.items():
        if hasattr(command, "commands"):
            assert {f"{name} {below}" for below in command.commands} <= set(found)
            continue
        for parameter in command.params:
            seen += 1
            if parameter.opts[0].startswith("-"):
                assert f"`{parameter.opts[0]}`" in found[name]
    assert seen > 150
    assert "| `--chains` | 3 | Search chains" in found["plan"]
    assert "| `--servers` | required | Number of servers. |" in found["plan"]


@pytest.mark.slow
def test_the_gallery_shows_every_fabric_and_its_commands_draw_them(generate, tmp_path):
    assert set(generate.EXAMPLES) == set(FABRICS)
    generate.write_pages(tmp_path)
    gallery = (tmp_path / "gallery.md").read_text()
    assert not re.search(r"(?<!`)--\w", re.sub("`topoopt [^`]*`", "", gallery))
    for name in FABRICS:
        assert gallery.count(f"_generated/topologies/{name}.svg") == 1
        network = generate.example(name).network
        picture = ElementTree.parse(tmp_path / "topologies" / f"{name}.svg")
        circles = picture.findall(".//{http://www.w3.org/2000/svg}circle")
        assert len(circles) == network.hosts
    from typer.testing import CliRunner

    words = generate.example_command("leaf-spine").split()[1:-1]
    drawn = tmp_path / "drawn.svg"
    assert CliRunner().invoke(app, [*words, str(drawn)]).exit_code == 0
    assert drawn.read_text() == (tmp_path / "topologies" / "leaf-spine.svg").read_text()


def test_every_page_is_in_a_table_of_contents():
    named = set()
    for path in DOCS.rglob("*.md"):
        if "_build" in path.parts or "_generated" in path.parts:
            continue
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", path.read_text(), re.M | re.S):
            named |= {line for line in block.splitlines() if line and not line.startswith(":")}
    pages = {
        str(path.relative_to(DOCS).with_suffix("")) for path in (*DOCS.glob("*.md"), *TUTORIALS)
    }
    assert pages - named == {"index"}
    assert {name for name in named - pages if not name.startswith("_generated/")} == set()


def test_no_page_has_the_name_of_one_that_sphinx_makes():
    """Sphinx writes its own search page over a page of that name, and says nothing."""
    made = {"search", "genindex", "modindex", "py-modindex"}
    assert not made & {path.stem for path in DOCS.glob("*.md")}


def test_what_a_page_loads_from_elsewhere_is_found():
    loads = of_docs("offline").loaded_from_elsewhere
    assert loads('<script src="https://x/y.js"></script><img src="//z/a.png">') == [
        "https://x/y.js", "//z/a.png",
    ]  # fmt: skip
    assert (
        loads('<a href="https://x">x</a><img src="a.png"><link rel="canonical" href="https://x">')
        == []
    )


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_use_public_names_that_exist(path):
    program = "\n".join(cells(path.read_text()))
    used = {
        node.attr for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "to"
    }  # fmt: skip
    assert used and used <= set(topoopt.__all__)


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run_from_top_to_bottom(path, tmp_path):
    if path.stem == "pytorch":
        pytest.importorskip("torch")
    program = "import matplotlib\nmatplotlib.use('Agg')\n" + "\n".join(cells(path.read_text()))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_pipelines_call_the_scripts():
    import yaml

    github = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    gitlab = yaml.safe_load((ROOT / ".gitlab-ci.yml").read_text())
    for name, script in (("checks", "bash .ci/run"), ("docs", "bash .ci/docs")):
        assert script in [step.get("run") for step in github[name]["steps"]]
        assert gitlab[name]["script"] == [script]
    for name in ("run", "docs"):
        assert (ROOT / ".ci" / name).stat().st_mode & 0o100


def test_the_citation_is_of_this_version():
    import yaml

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == topoopt.__version__
    assert cited["preferred-citation"]["year"] == 2023
