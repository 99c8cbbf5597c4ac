"""Tensors of a model under construction, and the checks that every builder step shares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from codesign_base import InputError

# Beyond this no byte or FLOP count is a plausible model, and products could leave float range.
LARGEST = 10**15
MOST_OPERATORS = 100_000


@dataclass(frozen=True, slots=True)
class Tensor:
    """One sample's value: its shape, and the operator that makes it.

    Parameters
    ----------
    shape : tuple of int
        ``(features,)``, ``(positions, features)`` or ``(channels, height, width)``.
    operator : int or None
        Index of the producer; None for a model input.
    """

    shape: tuple[int, ...]
    operator: int | None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        """Extent of the feature axis: the first of an image, else the last."""
        return self.shape[0] if len(self.shape) == 3 else self.shape[-1]

    @property
    def positions(self) -> int:
        """Number of feature vectors: 1, sequence positions, or pixels."""
        return self.elements // self.channels


def check_counts(where: str, least: int = 1, most: int = LARGEST, **numbers: int) -> None:
    """Check that numbers are integers of at least ``least`` and at most ``most``.

    Parameters
    ----------
    where : str
        What the numbers belong to, named in the message.
    least, most : int, optional
    **numbers : int
        Name and value of each.

    Raises
    ------
    InputError
        Naming the first number that is not.
    """
    for name, value in numbers.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not least <= value <= most:
            to = "1e15" if most == LARGEST else most
            raise InputError(
                f"{where}: {name} is {value!r}; give a whole number from {least} to {to}"
            )


def check_list(where: str, **lists: Sequence[int]) -> None:
    """Check that values are non-empty lists of positive whole numbers of one length.

    Raises
    ------
    InputError
        Naming the first value that is not.
    """
    for name, values in lists.items():
        if not isinstance(values, list | tuple) or not values:
            raise InputError(f"{where}: {name} is {values!r}; give a list of whole numbers")
        for value in values:
            check_counts(where, **{f"a value of {name}": value})
    if len({len(values) for values in lists.values()}) > 1:
        lengths = " and ".join(f"{len(values)} {name}" for name, values in lists.items())
        raise InputError(f"{where}: {lengths}; give equally many")


def check_shape(where: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Check the shape of one sample.

    Raises
    ------
    InputError
        If it has no or more than three axes, or an extent below 1.
    """
    if not 1 <= len(shape) <= 3:
        raise InputError(
            f"{where}: shape {list(shape)} has {len(shape)} axes; give [features], "
            "[positions, features] or [channels, height, width], without the batch"
        )
    for extent in shape:
        check_counts(where, extent=extent)
    return tuple(shape)


def windows(where: str, x: Tensor, kernel: int, stride: int, padding: int) -> tuple[int, int]:
    """Return how many positions a square window takes along height and width of an image.

    Parameters
    ----------
    where : str
        The operator, named in messages.
    x : Tensor
        ``(channels, height, width)``.
    kernel : int
        Height and width of the window.
    stride : int
        From one position to the next.
    padding : int
        Added on every side.

    Returns
    -------
    tuple of int

    Raises
    ------
    InputError
        If a number is out of range, the tensor is not an image, or the window is wider than the
        padded input.
    """
    check_counts(where, kernel=kernel, stride=stride)
    check_counts(where, 0, padding=padding)
    if len(x.shape) != 3:
        raise InputError(
            f"{where}: input {list(x.shape)} is not an image; give [channels, height, width]"
        )
    for extent in x.shape[1:]:
        if kernel > extent + 2 * padding:
            raise InputError(
                f"{where}: kernel {kernel} is wider than the input of {extent} with padding "
                f"{padding}; use a larger input or a smaller kernel"
            )
    rows, columns = ((extent + 2 * padding - kernel) // stride + 1 for extent in x.shape[1:])
    return rows, columns
