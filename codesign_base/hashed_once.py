"""Hashes of large records that are asked for again and again."""

from typing import Any, TypeVar

T = TypeVar("T")
_KEY = "_known_hash"


def hashed_once(cls: type[T]) -> type[T]:
    """Let each instance of a frozen dataclass keep its hash once it is worked out.

    Parameters
    ----------
    cls : type
        Without slots. What is pickled or copied does not hold the hash: strings have others in
        other processes.

    Returns
    -------
    type
        The same.
    """
    plain = cls.__hash__

    def hash_once(self: Any) -> int:
        known: int | None = self.__dict__.get(_KEY)
        if known is None:
            known = plain(self)
            self.__dict__[_KEY] = known
        return known

    def state(self: Any) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _KEY}

    for name, method in (("__hash__", hash_once), ("__getstate__", state)):
        setattr(cls, name, method)
    return cls
