"""Read a page back: a strict parser that knows what it met."""

import json
from html.parser import HTMLParser

VOID = {"br", "col", "hr", "image", "img", "input", "line", "link", "meta", "path"}


class Page(HTMLParser):
    """The elements of a page.

    ``elements`` holds (tag, attributes) in order; ``tables`` rows of cell texts by caption;
    ``data`` the (value, text) of every data element; ``scripts`` the JSON of data scripts by id.
    """

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.data, self.scripts, self.tables, self.words = [], [], {}, {}, []
        self._open, self._cells, self._value = [], None, None
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"
        self.text = "".join(self.words)

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} repeats an attribute"
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self._open.append((tag, attributes))
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._cells = self._rows[-1]
        elif tag == "caption":
            self._caption = ""
        elif tag == "data":
            self._value = (attributes["value"], "")

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID, f"{tag} closes itself"
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        opened, _ = self._open.pop()
        assert opened == tag, f"{tag} closes {opened}"
        if tag in ("td", "th"):
            self._cells = None
        elif tag == "table":
            self.tables.setdefault(self._caption, self._rows)
        elif tag == "data":
            self.data.append(self._value)
            self._value = None

    def handle_data(self, data):
        inside = self._open[-1] if self._open else ("", {})
        if inside[0] == "script":
            if inside[1].get("type") == "application/json":
                self.scripts[inside[1]["id"]] = json.loads(data)
            return
        if inside[0] == "style":
            return
        self.words.append(data)
        if self._cells is not None:
            self._cells[-1] += data
        if inside[0] == "caption":
            self._caption += data
        if self._value is not None:
            self._value = (self._value[0], self._value[1] + data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)

    def of(self, tag, **attributes):
        """Return the attributes of the elements of this tag that have these ones."""
        return [
            found for name, found in self.elements
            if name == tag and all(found.get(k.strip("_")) == v for k, v in attributes.items())
        ]  # fmt: skip


def assert_safe(page):
    """Nothing is fetched from elsewhere, and no attribute holds a program."""
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "srcset", "data", "action", "poster"):
                assert value.startswith(("#", "data:")), (tag, value)
                assert not value.startswith("data:text/html"), (tag, value)
            assert "javascript:" not in (value or "").lower() or name in ("data-tip", "aria-label")
    assert page.count("iframe") == page.count("object") == page.count("embed") == 0


__all__ = ["Page", "assert_safe"]
