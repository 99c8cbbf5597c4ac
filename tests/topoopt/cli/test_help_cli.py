"""The command line says what it does, and starts quickly to say it."""

import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import topoopt as to
from topoopt.cli.app import app

PANELS = ("Plan", "Look closer", "Networks", "Experiments")


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), prog_name="topoopt")


def test_version_and_help():
    assert run("--version").stdout.strip() == to.__version__
    for command in ((), ("plan",), ("compare",), ("verify",), ("models",)):
        page = run(*command, "--help")
        assert page.exit_code == 0 and "Usage: topoopt" in page.stdout
    page = run("--help").output
    panels = [page.index(f"\n{panel}:\n") for panel in PANELS]
    assert panels == sorted(panels) and "\nCommands:" not in page


def test_help_shows_each_option_under_its_title_and_each_command_whole():
    page = run("plan", "--help").stdout
    titles = [line[:-1] for line in page.splitlines() if line[:1] > " " and line.endswith(":")]
    assert titles == ["Arguments", "Options", "Cluster", "Files", "Search", "Job"]
    for title, name in [("Options", "--help"), ("Cluster", "--degree"), ("Files", "--output")]:
        section = page.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert any(name in line.split() for line in section.replace(",", "").splitlines()), name
    for command in (("clos",), ("experiment",)):
        page = run(*command, "--help").stdout
        assert page.index("\nOptions:\n") < page.index("\nCommands:\n")
        assert "..." not in page.partition("\nCommands:\n")[2]


def test_every_option_of_every_command_is_explained():
    group = typer.main.get_command(app)
    for command in group.commands.values():
        assert command.help
        for parameter in command.params:
            assert parameter.help, f"{command.name} {parameter.name}"


@pytest.mark.parametrize(
    "arguments", [slow([]), slow(["--help"]), ["plan", "--help"], ["--version"]]
)
def test_help_starts_without_the_heavy_libraries(arguments):
    program = (
        "import sys\n"
        "from topoopt.cli import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numba', 'torch', 'scipy', 'networkx', 'rustworkx', 'sympy', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "topoopt", "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{to.__version__}\n"), done.stderr
    page = CliRunner().invoke(app, ["clos", "run", "--help"], prog_name="python -m topoopt")
    assert page.exit_code == 0 and "More options: python -m topoopt clos run" in page.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        slow("topoopt pla", {"plan"}),
        ("topoopt plan llama3-7", {"llama3-70b"}),
        slow("topoopt compare dlrm-1", {"dlrm-16"}),
    ],
)
def test_the_shell_completes_commands_and_models(words, found):
    given = {
        "_TOPOOPT_COMPLETE": "complete_bash", "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }  # fmt: skip
    code = "import sys; sys.argv[0] = 'topoopt'; from topoopt.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **given}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert set(done.stdout.split()) == found
