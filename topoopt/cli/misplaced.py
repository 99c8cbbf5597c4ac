"""A file of one kind where a command takes another: what it is, and which commands take it."""

from collections.abc import Sequence
from pathlib import Path

from codesign_base import InputError
from parallelism.reading import parse_json, parse_yaml, read_text
from parallelism.transformers.huggingface import is_config
from topoopt.plan.document import Document, kind_of

MODEL, JOB, GRAPH, TRAFFIC = "a model", "a job", "a task graph", "a traffic file"
_PLANNED = ("plan", "pareto", "compare")
TAKEN_BY: dict[str, tuple[str, ...]] = {
    MODEL: (*_PLANNED, "space", "profile"),
    JOB: ("plan",),
    GRAPH: ("simulate", "wire", "export"),
    TRAFFIC: ("route",),
    Document.PLAN: ("report", "verify", "simulate", "what-if", "export", "deploy", "wire"),
    Document.COMPARISON: ("report",),
    Document.MANIFEST: ("report",),
    Document.NETWORK: ("route", "collective"),
    Document.ROUTES: (),
}
"""Which commands take each kind of file as what they are about."""
_OPTIONS: dict[str, tuple[str, ...]] = {
    Document.NETWORK: ("compare --fabrics", "simulate --fabric")
}
"""Options that take a file beside what the command is about."""


def misplaced_file(words: Sequence[str]) -> str:
    """Return one sentence about a file that a command does not take, or nothing.

    Parameters
    ----------
    words : sequence of str
        Of the command line, from the command on; only those before the first option count.
    """
    command = words[0] if words else ""
    if command not in {each for commands in TAKEN_BY.values() for each in commands}:
        return ""
    for place, word in enumerate(words[1:]):
        if word.startswith("-"):
            break
        kind = _kind_of_file(Path(word))
        # The second file of `route` is traffic, which is no other's first.
        if kind and (command not in TAKEN_BY[kind] or (place == 0) == (kind == TRAFFIC)):
            takers = [f"`topoopt {name}`" for name in (*TAKEN_BY[kind], *_OPTIONS.get(kind, ()))]
            if not takers:
                return f"{word!r} is {kind}, which no command takes; give another file"
            listed = " and ".join([", ".join(takers[:-1]), takers[-1]] if takers[1:] else takers)
            takes = "takes" if len(takers) == 1 else "take"
            if place > 0 and command != "route" and command in TAKEN_BY[kind]:
                return (
                    f"{word!r} is {kind}, which `topoopt {command}` takes first, but "
                    f"{words[place]!r} comes before it; give that as an option, or leave it out"
                )
            order = ""
            if command == "route":
                order = {Document.NETWORK: " first", TRAFFIC: " second, after the network"}.get(
                    kind, ""
                )
            return f"{word!r} is {kind}, which `topoopt {command}` does not take here; " + (
                f"{listed} {takes} it{order}"
            )
    return ""


def _kind_of_file(path: Path) -> str:
    """Return what a file is, told by its suffix and its first fields; empty if it is not known."""
    suffix = path.suffix.lower()
    if not path.is_file():
        return ""
    if suffix in (".fbuf", ".npz"):
        return GRAPH if suffix == ".fbuf" else TRAFFIC
    if suffix not in (".json", ".yaml", ".yml"):
        return ""
    try:
        text = read_text(path, "file")
        data = parse_json(text, "file") if suffix == ".json" else parse_yaml(text, "file")
    except InputError:
        return ""
    if is_config(data) or (isinstance(data, dict) and "operators" in data):
        return MODEL
    kind = kind_of(data)
    # Comparisons have a model and servers, as jobs have.
    if kind is Document.OTHER and isinstance(data, dict) and {"model", "servers"} <= set(data):
        return JOB
    return kind if kind in TAKEN_BY else ""
