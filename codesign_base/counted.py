"""Counts with their nouns."""


def counted(count: object, noun: str, plural: str = "") -> str:
    """Return a count with its noun, which is in the singular after 1.

    Parameters
    ----------
    count : object
        A number, or its text: so that what is shown as 1 counts as one.
    noun : str
    plural : str, optional
        By default the noun with an s.

    Returns
    -------
    str

    Examples
    --------
    >>> counted(1, "server"), counted(f"{1024:,}", "server"), counted(2, "switch", "switches")
    ('1 server', '1,024 servers', '2 switches')
    """
    return f"{count} {noun if str(count) == '1' else plural or noun + 's'}"
