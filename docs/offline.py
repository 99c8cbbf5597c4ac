"""Refuse a built site that loads anything from elsewhere: ``python docs/offline.py FOLDER``."""

import sys
from html.parser import HTMLParser
from pathlib import Path

# What a browser fetches by itself; links that a reader follows may go anywhere.
_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class _Loads(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what an element loads, but for links that only name another page."""
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("canonical", "author", "license"):
            return
        wanted = values.get(_LOADED.get(tag, ""))
        if wanted and (wanted.startswith(("http:", "https:", "//"))):
            self.found.append(wanted)


def loaded_from_elsewhere(page: str) -> list[str]:
    """Return what a page loads from other machines."""
    reader = _Loads()
    reader.feed(page)
    return reader.found


def main() -> None:
    """Check every page of a folder; exit status 1 if one loads something."""
    pages = sorted(Path(sys.argv[1]).rglob("*.html"))
    found = {page: loaded_from_elsewhere(page.read_text(encoding="utf-8")) for page in pages}
    for page, names in found.items():
        for name in names:
            print(f"{page} loads {name}", file=sys.stderr)
    print(f"{len(pages)} pages open offline" if not any(found.values()) else "not offline")
    sys.exit(1 if any(found.values()) or not pages else 0)


if __name__ == "__main__":
    main()
