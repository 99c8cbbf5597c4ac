"""Settings of the documentation site: ``python -m sphinx -W docs docs/_build/html``."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402

import topoopt  # noqa: E402

generate.write_pages(HERE / "_generated")

project = "topoopt"
author = "The topoopt authors"
project_copyright = "the topoopt authors"
version = release = topoopt.__version__
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
exclude_patterns = ["_build", "_generated/gallery.md"]
suppress_warnings = ["config.cache"]
html_theme = "pydata_sphinx_theme"
html_title = "topoopt"
html_css_files = ["site.css"]
html_static_path = ["_static"]
html_show_sourcelink = False
# A page without others in its section has no menu of them.
html_sidebars = {"gallery": [], "search": [], "genindex": [], "py-modindex": []}
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nitpicky = False
# Letters from which a cell of a table counts as text.
_WORDY = 60

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False


def _inside(_app: object, _page: str, source: list[str]) -> None:
    """Point links that leave this folder, as they read in a checkout, to pages of the site."""
    text = source[0].replace("(../experiments/README.md)", "(_generated/experiments.md)")
    source[0] = re.sub(r"\[([^]]+)\]\(\.\./experiments/results(?:/[\w./-]+\.md)?\)", r"`\1`", text)


def _wordy(_app: object, tree: nodes.document, _page: str) -> None:
    """Mark cells of many words, which narrow screens would show one word a line."""
    for cell in tree.findall(nodes.entry):
        if len(cell.astext()) > _WORDY:
            cell["classes"].append("wordy")


def setup(app: object) -> None:
    """Connect what Sphinx calls."""
    app.connect("source-read", _inside)  # type: ignore[attr-defined]
    app.connect("doctree-resolved", _wordy)  # type: ignore[attr-defined]


# Tutorials run when the site is built; what they print is what this version prints.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 280
nb_merge_streams = True
# A tutorial that needs PyTorch is shown without results where PyTorch is not installed.
nb_execution_excludepatterns = [] if find_spec("torch") else ["tutorials/pytorch.md"]
