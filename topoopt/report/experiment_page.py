"""The report of an experiment's results folder: manifest, tables, figures, rows."""

import csv
import io
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.reading import parse_json, read_text
from topoopt.plan.document import Document, kind_of
from topoopt.problem.units import format_number
from topoopt.report.markup import Html, element, joined, table
from topoopt.report.page import Section, render_page
from topoopt.report.raster import data_uri

_MOST_ROWS = 2000
"""Rows of results that the page lists."""

_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Results:
    """What a results folder holds.

    Parameters
    ----------
    folder : Path
    manifest : dict
    head : tuple of str
    rows : tuple of tuple of str
        Of ``results.csv``.
    tables : str
        The Markdown of ``table.md``; empty if there is none.
    """

    folder: Path
    manifest: dict[str, Any]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    tables: str


def load_results(folder: str | Path) -> Results:
    """Read a results folder.

    Parameters
    ----------
    folder : str or Path

    Returns
    -------
    Results

    Raises
    ------
    InputError
        If the manifest or the results are missing or malformed.
    """
    folder = Path(folder)
    name = folder / "manifest.json"
    where = f"manifest {str(name)!r}"
    manifest = parse_json(read_text(name, "manifest"), where)
    if kind_of(manifest) is not Document.MANIFEST:
        raise InputError(f"{where} is not the manifest of an experiment; give its results folder")
    for key, kind in (("experiment", str), ("description", str), ("source", str), ("mode", str),
                      ("state", str), ("figures", list)):  # fmt: skip
        if not isinstance(manifest.get(key), kind):
            raise InputError(f"{where}: {key} is {manifest.get(key)!r}; run the experiment again")
    for figure in manifest["figures"]:
        if not isinstance(figure, str) or Path(figure).name != figure:
            raise InputError(f"{where}: figure {figure!r} is no file name; run it again")
    if not (folder / "results.csv").is_file() and manifest["state"] != "finished":
        raise InputError(f"{str(folder)!r} has no results yet ({manifest['state']}); run it first")
    rows = _read_csv(folder / "results.csv")
    tables = folder / "table.md"
    text = read_text(tables, "table") if tables.is_file() else ""
    return Results(folder, manifest, rows[0], rows[1:], text)


def _read_csv(path: Path) -> tuple[tuple[str, ...], ...]:
    text = read_text(path, "results file")
    try:
        rows = tuple(tuple(row) for row in csv.reader(io.StringIO(text), strict=True) if row)
    except csv.Error as error:
        raise InputError(f"results file {str(path)!r} is no CSV ({error}); run again") from None
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"results file {str(path)!r}: row {number} has {counted(len(row), 'cell')} for "
                f"{len(rows[0])} columns; run again"
            )
    return rows


def render_results(results: Results) -> str:
    """Return the page of an experiment's results.

    Parameters
    ----------
    results : Results

    Returns
    -------
    str
        An HTML document; the same for the same files.

    Raises
    ------
    InputError
        If a figure that the manifest names cannot be read.
    """
    manifest = results.manifest
    figures = [picture(results.folder, name) for name in _once(manifest["figures"])]
    sections = []
    if figures:
        sections.append(Section("figures", "Figures", joined(figures)))
    if results.tables:
        known = {manifest["description"], f"Source: {manifest['source']}"}
        sections.append(Section("tables", "Tables", markdown_html(results.tables, known)))
    sections += [
        Section("results", "All results", _rows(results)),
        Section("manifest", "Manifest", _manifest(manifest)),
    ]
    counts = manifest.get("case_counts")
    done = counts if isinstance(counts, dict) else {}
    shown = ", ".join(f"{count} {status}" for status, count in done.items())
    facts = [("Experiment", f"{manifest['experiment']} ({manifest['mode']} grid)")]
    facts += [("Source", manifest["source"])] if manifest["source"] else []
    facts += [("Cases", f"{shown or len(results.rows)}; {manifest['state']}")]
    return render_page(
        f"topoopt experiment: {manifest['experiment']}", manifest["description"], facts, sections
    )


def _once(names: list[str]) -> list[str]:
    """Return one file a figure, the SVG where it comes in several kinds."""
    chosen: dict[str, str] = {}
    for name in names:
        stem, kind = Path(name).stem, Path(name).suffix.lower()
        if kind in _KINDS and (stem not in chosen or kind == ".svg"):
            chosen[stem] = name
    return list(chosen.values())


def picture(folder: Path, name: str) -> Html:
    """Return a figure's file as a picture inside the page; scripts in it cannot run.

    Parameters
    ----------
    folder : Path
    name : str

    Raises
    ------
    InputError
        If it cannot be read, or is neither SVG nor PNG.
    """
    kind = _KINDS.get(Path(name).suffix.lower())
    if kind is None:
        raise InputError(f"figure {name!r} is neither SVG nor PNG; draw it as one of them")
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise InputError(
            f"figure {str(folder / name)!r} cannot be read ({error.strerror}); run it again"
        ) from None
    title = re.sub(r"[-_]+", " ", Path(name).stem)
    image = element("img", src=data_uri(kind, content), alt=title)
    scroll = element("div", image, class_="scroll")
    return element("figure", scroll, element("figcaption", title), class_="picture")


def markdown_html(text: str, known: Collection[str] = ()) -> Html:
    """Return the tables of ``table.md`` and their headings as markup.

    Parameters
    ----------
    text : str
        As `topoopt.experiment.tables.to_markdown` writes it: headings, paragraphs, tables.
    known : collection of str
        Paragraphs to leave out, because they are said elsewhere.
    """
    parts: list[Html] = []
    title = ""
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if lines and all(line.lstrip().startswith("|") for line in lines) and len(lines) > 1:
            cells = [_cells(line) for line in lines]
            words = {i for i, rule in enumerate(cells[1]) if not rule.endswith(":")}
            parts.append(table(cells[0], cells[2:], words=words | {0}, caption=title or "Results"))
        elif match := re.fullmatch(r"(#+) (.*)", block.strip()):
            title = match[2]
            if len(match[1]) > 1:
                parts.append(element("h3", title))
        elif " ".join(lines) not in known:
            parts.append(element("p", " ".join(lines)))
    return joined(parts)


def _cells(line: str) -> list[str]:
    inside = line.strip().removeprefix("|").removesuffix("|")
    return [re.sub(r"\\(.)", r"\1", cell).strip() for cell in re.split(r"(?<!\\)\|", inside)]


def _rows(results: Results) -> Html:
    shown = results.rows[:_MOST_ROWS]
    used = [
        at for at, name in enumerate(results.head)
        if name not in ("status", "message") or len({row[at] for row in results.rows}) > 1
    ]  # fmt: skip
    words = {
        at for at, column in enumerate(used)
        if not all(_is_number(row[column]) for row in results.rows)
    }  # fmt: skip
    rows = [[_value(row[column]) for column in used] for row in shown]
    about = f"{counted(len(results.rows), 'row')} of results.csv"
    if len(shown) < len(results.rows):
        about += f", of which the first {len(shown)} are shown"
    return joined(
        element("p", f"{about}; the file has all digits.", class_="note"),
        table(
            [results.head[c] for c in used],
            rows,
            words=words | {0},
            caption="All results",
            kind="rows",
        ),
    )


def _is_number(text: str) -> bool:
    return text == "" or re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", text) is not None


def _value(text: str) -> str:
    if re.fullmatch(r"-?[0-9]+\.[0-9]*(e[+-]?[0-9]+)?|-?[0-9]+e[+-]?[0-9]+", text):
        return element("data", format_number(float(text)), value=text)
    return text


def _manifest(manifest: dict[str, Any]) -> Html:
    rows = []
    for key, value in manifest.items():
        if key in ("cases", "description", "columns", "figures"):
            continue
        if isinstance(value, dict):
            text = ", ".join(f"{name} {part}" for name, part in value.items())
        elif isinstance(value, list):
            text = ", ".join(map(str, value))
        else:
            text = "" if value is None else str(value)
        rows.append((key.replace("_", " "), text))
    return table(("field", "value"), rows, words={0, 1}, caption="What the results were made with")
