"""What a run of many tests in one process does once, where a command does it once a process."""

import functools
import gc
import os
from pathlib import Path

import typer.main
import typer.testing
from hypothesis import settings

# How long a case takes says nothing on a busy machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# The options of all commands are read from their functions: that takes longer than most commands.
_command = functools.cache(typer.main.get_command)
typer.main.get_command = typer.testing._get_command = _command

# Programs that tests start find a checkout that is not installed, as pytest does (`pythonpath`).
_paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))


def pytest_collection_finish():
    """Look for garbage rarely, as the command line does, and not among what imports made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
