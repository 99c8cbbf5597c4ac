"""Tables of plain text."""

from collections.abc import Collection, Iterable, Sequence


def dollars(cost: float | None) -> str:
    """Return a price for a table, "-" where there is none."""
    return "-" if cost is None else f"${cost:,.0f}"


def ended(lines: Iterable[object]) -> str:
    """Return lines as one text, each of them ended; nothing of none."""
    return "".join(f"{line}\n" for line in lines)


def table_lines(rows: Sequence[tuple[str, ...]], left: Collection[int] = (0,)) -> list[str]:
    """Align rows of cells.

    Parameters
    ----------
    rows : sequence of tuple of str
    left : collection of int
        Columns of words, aligned left; the others are aligned right.

    Returns
    -------
    list of str
    """
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if c in left else cell.rjust(width)
            for c, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
