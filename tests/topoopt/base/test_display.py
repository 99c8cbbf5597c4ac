"""Pages of notebooks: who registers them, and when they are loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from topoopt.base.display import displayed, register

ROOT = Path(__file__).resolve().parents[3]


class Shown:
    def __init__(self, name):
        self.name = name


class Special(Shown):
    pass


def test_an_object_is_shown_by_the_page_of_its_nearest_class():
    register("html", Shown, lambda what: f"<p>{what.name}</p>")
    assert displayed("html", Special("a")) == "<p>a</p>"
    register("html", Special, lambda what: f"<b>{what.name}</b>")
    assert displayed("html", Special("a")) == "<b>a</b>"
    assert displayed("html", Shown("a")) == "<p>a</p>"


def test_an_object_without_a_page_is_named():
    with pytest.raises(LookupError, match="nothing shows a int as html"):
        displayed("html", 3)


def test_pages_are_loaded_when_an_object_is_first_shown():
    program = """if True:
        import sys
        from pathlib import Path
        import topoopt
        from topoopt.experiment.run import ExperimentRun
        assert not any(name.startswith("topoopt.report") for name in sys.modules)
        run = ExperimentRun(Path("here"), (), "# name (quick)", 1, 0, 0, 0)
        assert "1 case computed" in run._repr_html_()
        assert "topoopt.report.notebook" in sys.modules
    """
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
