"""Tables of the documentation, for tests that hold pages against code and results."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def rows(page, first):
    """Cells of the table of a page whose head begins so, from its second line on."""
    lines = (DOCS / page).read_text().splitlines()
    (head,) = (place for place, line in enumerate(lines) if line.startswith(first))
    found = []
    for line in lines[head + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in re.split(r" \|(?= )", line.strip("|"))])
    assert len(found) > 1
    return found
