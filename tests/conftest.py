"""What a run of many tests in one process does once, where a command does it once a process."""

import functools
import gc
import os
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import is_hypothesis_test, settings

# How long a case takes says nothing on a busy machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
# Of the random cases that a test names (examples of hypothesis, or values of a parameter `seed`)
# the default suite draws so many; runs of slow tests draw all of them.
SHARE, LEAST = 1 / 4, 2

# The options of all commands are read from their functions: that takes longer than most commands.
_command = functools.cache(typer.main.get_command)
typer.main.get_command = typer.testing._get_command = _command

# Programs that tests start find a checkout that is not installed, as pytest does (`pythonpath`).
_paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))

# Workers that run tests side by side keep the cores busy: searches in them take no second process.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their marks
def pytest_collection_modifyitems(config, items):
    """Leave most random cases to runs of slow tests, in which all tests of such cases take part."""
    few = "not slow" in config.option.markexpr
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            if few:
                _draw_some(getattr(item.obj, "__func__", item.obj))
            else:
                item.add_marker(pytest.mark.slow)
        for mark in item.iter_markers("parametrize"):
            if mark.args[0] == "seed":
                seeds = list(mark.args[1])
                if not few or item.callspec.params["seed"] not in seeds[: _some(len(seeds))]:
                    item.add_marker(pytest.mark.slow)


@functools.cache  # tests of several parameters are items of one function
def _draw_some(test):
    named = test._hypothesis_internal_use_settings
    test._hypothesis_internal_use_settings = settings(named, max_examples=_some(named.max_examples))


def _some(count):
    return min(count, max(LEAST, round(SHARE * count)))


def pytest_collection_finish():
    """Look for garbage rarely, as the command line does, and not among what imports made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
