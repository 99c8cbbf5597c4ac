"""Limits of a transformer's counts, beyond which a number is a slip."""

from dataclasses import fields
from itertools import pairwise

from codesign_base import InputError
from codesign_base.arguments import python_numbers, told

# No model is larger; what is comes of a slip, and loops over layers would not end.
MOST_LAYERS, MOST_WIDTH = 10_000, 2**31
MOST_GROUPS = 1024
"""Groups of experts."""
_COUNTS_OF_LAYERS = ("layers", "first_dense", "every", "mtp_layers")


def check_count_fields(what: str, record: object, least: dict[str, int]) -> None:
    """Raise an error for fields of a record that are no whole numbers within limits.

    Numbers of NumPy become Python's first, those of all other fields, too.

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
    python_numbers(record)
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


def check_layer_numbers(what: str, layers: object, count: int = MOST_LAYERS) -> None:
    """Raise an error for what is no tuple of layer numbers in ascending order.

    Parameters
    ----------
    what : str
        The field, for messages.
    layers : object
    count : int, optional
        Layers of the model.

    Raises
    ------
    InputError
        If it is something else, or names layers that there are not.
    """
    if (
        not isinstance(layers, tuple)
        or any(type(layer) is not int for layer in layers)
        or any(a >= b for a, b in pairwise((-1, *layers)))
    ):
        raise InputError(
            f"{what} is {told(layers)}; give a tuple of layer numbers from 0 in ascending order"
        )
    if layers[-1:] >= (count,):
        raise InputError(f"{what} names layer {layers[-1]} of {count}; give numbers below")
