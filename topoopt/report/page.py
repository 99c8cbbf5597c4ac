"""The page around the sections: head, style, script, contents."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from topoopt.base.version import installed_version
from topoopt.report.markup import Html, element, joined

# Nothing may be fetched, whatever the page holds.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Parameters
    ----------
    name : str
        Its anchor.
    title : str
    body : Html
    """

    name: str
    title: str
    body: Html


def render_page(
    title: str, answer: str, facts: Sequence[tuple[str, str]], sections: Sequence[Section]
) -> str:
    """Return a whole HTML document.

    Parameters
    ----------
    title : str
        Also the text above the answer.
    answer : str
        One sentence.
    facts : sequence of (str, str)
        What was asked: names and words.
    sections : sequence of Section

    Returns
    -------
    str
    """
    version = installed_version()
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"topoopt {version}"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(resource("report.css"))),
    )
    header = element(
        "header",
        element("p", title, class_="title"),
        element("h1", answer),
        fact_list(facts),
        element(
            "nav",
            (element("a", section.title, href=f"#{section.name}") for section in sections),
            aria_label="Sections",
        ),
    )
    body = element(
        "body",
        header,
        element("main", (_section(section) for section in sections)),
        element("footer", f"Made by topoopt {version}."),
        element("div", id="tip", role="tooltip", hidden=True),
        element("script", Html(resource("report.js"))),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def fact_list(facts: Sequence[tuple[str, str]]) -> Html:
    """Return pairs of names and words as a list."""
    pairs = (element("div", element("dt", name), element("dd", words)) for name, words in facts)
    return element("dl", pairs, class_="facts")


def _section(section: Section) -> Html:
    heading = element("h2", section.title)
    return element("section", joined(heading, section.body), id=section.name)


def resource(name: str) -> str:
    """Return the text of a file beside this module, such as the style sheet."""
    return files("topoopt.report").joinpath(name).read_text(encoding="utf-8")
