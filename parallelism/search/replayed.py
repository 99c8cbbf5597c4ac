"""Iterators of moves in objects that are pickled: counted, made again, and gone through."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any


class Replayed(ABC):
    """Goes through an iterator, which cannot be pickled: a copy goes to the same place of another.

    Attributes
    ----------
    _moves : iterator or None
        Under way; None before it begins.
    _taken : int
        How many were taken of it.
    """

    _moves: Iterator[Any] | None
    _taken: int

    @abstractmethod
    def _begin(self) -> Iterator[Any]:
        """Return the iterator from its beginning; it depends on the other attributes alone."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the iterator, of which the count is known."""
        return {**vars(self), "_moves": self._moves is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go to the same place."""
        under_way = state.pop("_moves")
        vars(self).update(state, _moves=None)
        if under_way:
            self._moves = islice(self._begin(), self._taken, None)
