"""Where the published job files of Clos experiments lie, if they are here."""

from published_data import published_data


def clos_data():
    """Return the folder; it may not exist."""
    return published_data("clos")
