"""HTML made of escaped pieces: whatever is not markup already is text."""

import json
from collections.abc import Iterable
from html import escape
from typing import Any


class Html(str):
    """Text that is markup already, and is not escaped again."""

    __slots__ = ()


Child = str | Iterable[str]
_Attribute = str | int | float | bool | None

# Columns of a table that fit on a phone.
_FEW = 4
_VOID = frozenset({"br", "col", "hr", "image", "img", "input", "line", "link", "meta", "path"})


def as_html(content: str) -> Html:
    """Return markup as it is, and text with its special characters escaped.

    Lone surrogates, which a JSON file may smuggle into a name, become question marks: they have
    no UTF-8 form.
    """
    if isinstance(content, Html):
        return content
    return Html(escape(content.encode("utf-8", "replace").decode(), quote=True))


def element(tag: str, *children: Child, **attributes: _Attribute) -> Html:
    """Return an element.

    Parameters
    ----------
    tag : str
    *children : str or iterable of str
        `Html` goes in as it is, other text escaped.
    **attributes : str, number or bool
        A final underscore is dropped from names, others become hyphens; True stands for an
        attribute without a value, False and None for none.

    Returns
    -------
    Html
    """
    words = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.removesuffix("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{as_html(str(value))}"')
    opening = f"<{' '.join(words)}>"
    if tag in _VOID:
        return Html(f"{opening[:-1]}/>")
    return Html(f"{opening}{joined(*children)}</{tag}>")


def joined(*children: Child) -> Html:
    """Return pieces of markup and text one after the other, as markup."""
    parts = []
    for child in children:
        if isinstance(child, str):
            parts.append(as_html(child))
        else:
            parts += [as_html(part) for part in child]
    return Html("".join(parts))


def number(value: float, shown: str, **attributes: _Attribute) -> Html:
    """Return a number for readers and, with all digits, for programs: ``<data value=...>``."""
    return element("data", shown, value=repr(value), **attributes)


def data_script(name: str, content: Any) -> Html:
    """Return data for the page's script; no text in it can end the element."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return element("script", Html(text), type="application/json", id=name)


def table(
    head: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    words: frozenset[int] | set[int] = frozenset({0}),
    caption: str = "",
    kind: str = "",
) -> Html:
    """Return a table; on a narrow page one of many columns shows each row as a list.

    Parameters
    ----------
    head : iterable of str
    rows : iterable of iterable of str
        The first cell of a row is its heading.
    words : set of int
        Columns of words, aligned left; the others are aligned right.
    caption : str
        For readers that do not see the table; also the name of the part that scrolls.
    kind : str
        Its class in the style sheet.
    """
    head = tuple(head)
    many = len(head) > _FEW and kind != "legend"

    def cell(at: int, content: str, body: bool) -> Html:
        side = "w" if at in words else "n"
        if body and at:
            return element("td", content, class_=side, data_head=head[at] if many else None)
        of = head[at] if many and body else None
        return element("th", content, class_=side, scope="row" if body else "col", data_head=of)

    def row(cells: Iterable[str], body: bool) -> Html:
        return element("tr", (cell(at, content, body) for at, content in enumerate(cells)))

    made = element(
        "table",
        element("caption", caption, class_="unseen") if caption else "",
        element("thead", row(head, False)),
        element("tbody", (row(cells, True) for cells in rows)),
        class_=" ".join(filter(None, (kind, "many" if many else ""))) or None,
    )
    return element(
        "div", made, class_="scroll", tabindex=0, role="region", aria_label=caption or "table"
    )
