"""Pages of the site that are made from the code, so that they cannot differ from it.

``write_pages`` writes the reference of the command line and of the Python names, and a gallery of
topologies; `conf.py` calls it before the site is built.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from topoopt.cli.app import app
from topoopt.report.picture import network_picture
from topoopt.topology.zoo.registry import FABRICS, build_fabric

# What Python names do, in the order in which a newcomer needs them; the test of these pages fails
# if a public name is missing.
GROUPS = {
    "The question": ("Job", "Cluster", "Server", "SearchOptions", "Grid", "Limits"),
    "Models": ("load_transformer", "load_model", "capture", "RooflineModel", "ProfileModel"),
    "Answers": ("co_optimize", "compare", "explore", "sweep"),
    "Plans": ("Plan", "load_plan", "verify_plan", "write_report"),
    "Errors": ("InputError", "InfeasibleError"),
}
MODULES = (
    "parallelism.models",
    "parallelism.importers.profiling",
    "routing.multicommodity",
    "topoopt.bandwidth",
    "topoopt.codesign.comparison",
    "topoopt.codesign.exploration",
    "topoopt.codesign.pareto",
    "topoopt.fabric",
    "topoopt.studies.failures",
    "topoopt.studies.repairs",
    "topoopt.studies.server_failures",
    "topoopt.studies.validation",
    "topoopt.topology.network_file",
    "topoopt.topology.zoo.registry",
)
"""Modules behind the commands, whose names the pages use."""

# One small example of each fabric: servers, ports, and further options.
EXAMPLES: dict[str, dict[str, Any]] = {
    "totient": {"servers": 16, "degree": 4},
    "cayley": {"servers": 16, "degree": 4},
    "annealed": {"servers": 16, "degree": 4},
    "expander": {"servers": 16, "degree": 4},
    "xpander": {"servers": 20, "degree": 4},
    "de-bruijn": {"servers": 16, "degree": 2},
    "kautz": {"servers": 12, "degree": 2},
    "torus": {"dims": "4x4"},
    "twisted-torus": {"dims": "2x4x4"},
    "hypercube": {"servers": 16},
    "full-mesh": {"servers": 8},
    "product": {"dims": "RI(4)_FC(4)"},
    "ideal-switch": {"servers": 8, "degree": 4},
    "fat-tree": {"servers": 16, "degree": 4},
    "leaf-spine": {"servers": 16, "degree": 4, "group": 4},
    "rail": {"servers": 16, "degree": 4, "group": 4},
    "rail-only": {"servers": 16, "degree": 4},
    "hamming-mesh": {"dims": "2x2x2x2"},
    "dragonfly": {"servers": 16, "degree": 2},
}
ROOT = Path(__file__).resolve().parents[1]
_RATE = 12.5e9


def write_pages(folder: Path) -> None:
    """Write all generated pages and pictures into a folder."""
    (folder / "topologies").mkdir(parents=True, exist_ok=True)
    _write(folder / "cli.md", command_page())
    _write(folder / "api.md", api_page())
    _write(folder / "gallery.md", gallery_page())
    scripts = (ROOT / "experiments" / "README.md").read_text().replace("(../docs/", "(../")
    _write(folder / "experiments.md", scripts.replace("# Experiments", "# Scripts of experiments"))
    for name in FABRICS:
        _write(folder / "topologies" / f"{name}.svg", network_picture(example(name).network))


def _write(path: Path, text: str) -> None:
    """Write a file only if that changes it, so that builds stay incremental."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def example(name: str) -> Any:
    """Build the gallery's example of a fabric."""
    asked = {"servers": None, "degree": None, **EXAMPLES[name]}
    return build_fabric(name, asked.pop("servers"), asked.pop("degree"), _RATE, **asked)


def example_command(name: str) -> str:
    """Return the command that draws it."""
    options = " ".join(f"--{key} '{value}'" if "(" in str(value) else f"--{key} {value}"
                       for key, value in EXAMPLES[name].items())  # fmt: skip
    return f"topoopt topology {name} {options} -o {name}.svg"


def gallery_page() -> str:
    """Return the page that shows every fabric of the zoo."""
    figures = [
        f":::{{figure}} _generated/topologies/{name}.svg\n:alt: {name}\n\n**{name}**: "
        # As code, for two dashes would become one.
        + re.sub(r"(--[a-z-]+)", r"`\1`", what)
        + "\n\n"
        f"`{example_command(name)}`\n:::"
        for name, what in FABRICS.items()
    ]
    return "::::{container} gallery\n" + "\n\n".join(figures) + "\n::::\n"


def api_page() -> str:
    """Return the page of the names in `topoopt`, and of the modules behind the commands."""
    parts = ["# Python", "Names of `topoopt` itself; `import topoopt as to` is usual."]
    for title, names in GROUPS.items():
        parts += [f"## {title}", _summary([f"topoopt.{name}" for name in names])]
    parts += ["## Modules behind the commands", _summary(MODULES)]
    return "\n\n".join(parts) + "\n"


def _summary(names: Any) -> str:
    lines = "\n".join(names)
    return (
        "```{eval-rst}\n.. autosummary::\n   :toctree: api\n\n   "
        + lines.replace("\n", "\n   ")
        + "\n```"
    )


def commands(group: Any = None, before: str = "topoopt") -> Iterator[tuple[str, Any]]:
    """Yield every command of the command line with its full name."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before} {name}")
        else:
            yield f"{before} {name}", command


def command_page() -> str:
    """Return the page of all commands with all their options."""
    parts = [
        "# Command line",
        "Made from the program itself. `topoopt COMMAND --help` says the same in the terminal.",
    ]
    for name, command in commands():
        parts += [f"## `{name}`", _prose(command.help or "")]
        panels: dict[str, list[str]] = {}
        for parameter in command.params:
            panel = getattr(parameter, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append(_row(parameter))
        for panel, rows in panels.items():
            head = "| option | default | |\n|---|---|---|"
            parts.append(f"**{panel}**\n\n{head}\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _prose(text: str) -> str:
    """Return a command's help, its example as code."""
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
    return "\n\n".join(
        f"```sh\n{each.removeprefix('Example: ')}\n```" if each.startswith("Example: ") else each
        for each in paragraphs
    )


def _row(parameter: Any) -> str:
    words = ", ".join(f"`{name}`" for name in parameter.opts)
    if not words.startswith("`-"):
        words = f"`{(parameter.metavar or parameter.name).upper()}`"
    shown = parameter.show_default
    default = "required" if parameter.required else parameter.default
    if isinstance(shown, str):
        default = shown
    if default is None or default is False or callable(default):
        default = ""
    text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    return f"| {words} | {default} | {text} |"


def public_names() -> set[str]:
    """Return the names that the page of Python lists."""
    return {name for names in GROUPS.values() for name in names}
