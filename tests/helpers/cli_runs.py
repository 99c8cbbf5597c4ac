"""A small model, and ways to run the command line on it."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from codesign_base import InputError
from topoopt.cli.app import app, main

SMALL = """
name: small
batch_per_gpu: 8
inputs:
  features: [64]
operators:
  - {name: table_0, kind: embedding, rows: 100_000, dim: 32, bag: 4}
  - {name: table_1, kind: embedding, rows: 100_000, dim: 32, bag: 4}
  - {name: bottom, kind: dense, inputs: [features], out_features: 64}
  - {name: concat, kind: concat, inputs: [bottom, table_0, table_1]}
  - {name: top_0, kind: dense, inputs: [concat], out_features: 128}
  - {name: top_1, kind: dense, inputs: [top_0], out_features: 1}
"""
CLUSTER = ("--servers", "4", "--degree", "2", "--bandwidth", "100Gbps")
# Steps alone would mean thorough effort, whose moves by packet trains take most of the time.
FAST = (*CLUSTER, "--steps", "12", "--effort", "quick")


def in_a_process(*arguments, directory="."):
    """Run the console script as a user does."""
    script = "import sys; from topoopt.cli import main; sys.argv[0] = 'topoopt'; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=directory, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def topoopt(*arguments, directory="."):
    """Run what the console script runs, in this process."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(output),
        redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr("sys.argv", ["topoopt", *arguments])
        # Messages name the program by its file, but where it runs as a module.
        patch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
        patch.chdir(directory)
        main()
    status = ended.value.code or 0
    return subprocess.CompletedProcess(arguments, status, output.getvalue(), errors.getvalue())


def inside(*arguments, directory="."):
    """Run a command in this process, with what `main` makes of its errors."""
    before = Path.cwd()
    os.chdir(directory)
    try:
        return CliRunner().invoke(app, [str(each) for each in arguments], prog_name="topoopt")
    finally:
        os.chdir(before)


def run(*arguments, directory="."):
    """Return the standard output of a command that succeeds."""
    result = inside(*arguments, directory=directory)
    assert result.exit_code == 0, (result.exception, result.output)
    return result.stdout


def refused(*arguments, directory="."):
    """Return the sentence of a refusal; the search must not have begun."""
    result = inside(*arguments, directory=directory)
    assert isinstance(result.exception, InputError), result.output
    assert result.stdout == ""
    message = str(result.exception)
    assert "\n" not in message and len(message) < 500
    assert "search" not in result.stderr and "starting" not in result.stderr
    return message
