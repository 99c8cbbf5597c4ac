"""Limits of a transformer's counts, beyond which a number is a slip."""

from dataclasses import fields

from codesign_base import InputError

# No model is larger; what is comes of a slip, and loops over layers would not end.
MOST_LAYERS, MOST_WIDTH = 10_000, 2**31
MOST_GROUPS = 1024
"""Groups of experts."""
_COUNTS_OF_LAYERS = ("layers", "first_dense", "every", "mtp_layers")


def check_counts(what: str, record: object, least: dict[str, int]) -> None:
    """Raise an error for fields of a record that are no whole numbers within limits.

    Parameters
    ----------
    what : str
        The record, for messages.
    record : dataclass
    least : dict of str to int
        The least value of each field that is a count.

    Raises
    ------
    InputError
        If one is below its least value, too large or no whole number.
    """
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if field.name not in least:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least[field.name]:
            raise InputError(
                f"{what}: {field.name} is {value!r}; give a whole number of at least "
                f"{least[field.name]}"
            )
        most = MOST_LAYERS if field.name in _COUNTS_OF_LAYERS else MOST_WIDTH
        most = MOST_GROUPS if field.name == "groups" else most
        if value > most:
            raise InputError(f"{what}: {field.name} is {value}; give at most {most}")
