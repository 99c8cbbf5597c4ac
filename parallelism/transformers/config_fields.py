"""A foreign configuration: fields are taken with their type, and what was left is known."""

from collections.abc import Iterable, Mapping
from typing import Any

from codesign_base import InputError
from parallelism.operators.shapes import LARGEST

_REQUIRED = object()


class ConfigFields:
    """Fields of one configuration, and which of them have been read.

    Parameters
    ----------
    data : dict
    where : str
        The file, for messages.
    kind : str
        The ``model_type``, for messages.
    """

    def __init__(self, data: dict[str, Any], where: str, kind: str) -> None:
        self.data = data
        self.where = where
        self.kind = kind
        self._taken: set[str] = set()

    def _find(self, names: Iterable[str]) -> tuple[str, Any]:
        """Return the first of some spellings that is given and not null."""
        names = tuple(names)
        self._taken.update(names)
        for name in names:
            if self.data.get(name) is not None:
                return name, self.data[name]
        return names[0], None

    def assume(self, **usual: Any) -> None:
        """Take what a family's class does where the file does not have a field at all."""
        self.data = usual | self.data

    def ignore(self, *names: str) -> None:
        """Take fields that are of no consequence beside others."""
        self._taken.update(names)

    def inside(self, name: str) -> "ConfigFields":
        """Return the fields of an object within the configuration."""
        _, value = self._find([name])
        if value is None:
            raise self.missing(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "give an object")
        return ConfigFields(value, f"{self.where}: field {name!r}", self.kind)

    def missing(self, name: str, beside: str = "") -> InputError:
        """Return the error for a field that is not there, and is needed beside others."""
        return InputError(
            f"{self.where}: field {name!r} is missing; a {self.kind} configuration{beside} needs it"
        )

    def wrong(self, name: str, remedy: str) -> InputError:
        """Return the error for a field with a value that cannot be used."""
        given = repr(self.data.get(name))
        shown = given if len(given) <= 60 else f"{given[:57]}..."
        return InputError(f"{self.where}: field {name!r} is {shown}; {remedy}")

    def count(self, *names: str, default: Any = _REQUIRED, least: int = 1) -> int:
        """Return a whole number; null counts as not given.

        Parameters
        ----------
        *names : str
            Spellings of the field, the usual one first.
        default : int, optional
            What the family takes where the field is not given; without one it is required.
        least : int, optional
        """
        name, value = self._find(names)
        if value is None:
            if default is _REQUIRED:
                raise self.missing(name)
            return int(default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            most = f" and at most {LARGEST}" if isinstance(value, int) and value > LARGEST else ""
            raise self.wrong(name, f"give a whole number of at least {least}{most}")
        return value

    def alike(self, *names: str, default: Any = _REQUIRED, least: int = 1) -> int:
        """Return a whole number that may be given once or, the same one, for each layer."""
        name, value = self._find(names)
        if not isinstance(value, list):
            return self.count(*names, default=default, least=least)
        if not value or any(entry != value[0] for entry in value):
            raise self.wrong(name, "only layers that are alike are known; give one number")
        one = ConfigFields({name: value[0]}, self.where, self.kind)
        return one.count(name, least=least)

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value, or what the family takes where it is not given."""
        _, value = self._find([name])
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "give true or false")
        return value

    def indices(self, name: str) -> list[int]:
        """Return a list of whole numbers, empty where it is not given."""
        _, value = self._find([name])
        if value is None:
            return []
        if not isinstance(value, list) or any(type(entry) is not int for entry in value):
            raise self.wrong(name, "give a list of layer numbers")
        return value

    def text(self, name: str) -> str:
        """Return a text, empty where it is not given."""
        _, value = self._find([name])
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(name, "give a text")
        return value

    def words(self, name: str) -> list[str]:
        """Return a list of words, empty where it is not given."""
        _, value = self._find([name])
        if value is None:
            return []
        if not isinstance(value, list) or any(type(entry) is not str for entry in value):
            raise self.wrong(name, "give a list of words")
        return value

    def expect(self, name: str, *allowed: Any, because: str) -> None:
        """Refuse a field that is given with any other value than these."""
        _, value = self._find([name])
        if value is not None and value not in allowed:
            raise self.wrong(name, because)

    def refuse(self, name: str, *values: Any) -> None:
        """Refuse values of a field that change the architecture of a family."""
        if self.data.get(name) in values:
            raise self._unknown(name)

    def refuse_leftovers(self, names: Mapping[str, tuple[object, ...]]) -> None:
        """Refuse fields that change the architecture but that nothing has read.

        Zero, false, null and empty values say that the feature is not used; so do the values beside
        a name, and lists of nothing else.
        """
        for name, harmless in names.items():
            value = self.data.get(name)
            entries = value if isinstance(value, list) else [value]
            if name in self._taken or not value:
                continue
            if any(entry not in harmless for entry in entries):
                raise self._unknown(name)

    def _unknown(self, name: str) -> InputError:
        """Return the error for a field with which a family is not known."""
        return self.wrong(
            name, f"{self.kind} models are not known with it; remove it, or plan with a model file"
        )
