"""A foreign configuration: fields are taken with their type, and what was left is known."""

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.operators.shapes import LARGEST
from parallelism.reading import shown
from parallelism.suggestions import misspelt

_REQUIRED = object()
# Longer values are not shown in messages.
_SHOWN = 60
# Spellings of the number of layers.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers")


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
        self._given = data  # without what `assume` adds
        self._taken: set[str] = set()
        self._asked: dict[tuple[str, ...], None] = {}  # spellings of each field, in their order
        self._inside: list[ConfigFields] = []

    def _find(self, names: Iterable[str]) -> tuple[str, Any]:
        """Return the first of some spellings that is given and not null.

        Raises
        ------
        InputError
            If another spelling is given with another value.
        """
        names = tuple(names)
        self._taken.update(names)
        self._asked[names] = None
        given = [name for name in names if self._given.get(name) is not None]
        given = given or [name for name in names if self.data.get(name) is not None]
        if not given:
            return names[0], None
        value = self.data[given[0]]
        for other in given[1:]:
            if self.data[other] != value:
                raise self.wrong(
                    other, f"{given[0]!r}, which says the same of {self.kind} models, is "
                    f"{self._shown(given[0])}; remove one of them",
                )  # fmt: skip
        return given[0], value

    def spelt(self, *names: str) -> str:
        """Return which spelling of a field was read and is given, else was read."""
        read = [name for name in names if name in self._taken]
        given = [name for name in read if self.data.get(name) is not None]
        return (*given, *read, *names)[0]

    def value(self, name: str) -> Any:
        """Return a field as it is, None where it is not given."""
        return self._find([name])[1]

    def assume(self, **usual: Any) -> None:
        """Take what a family's class does where the file does not have a field at all."""
        self.data = usual | self.data

    def assume_spelt(self, **others: str) -> None:
        """Take a field from the spelling that a family has for it, where the file has that.

        Raises
        ------
        InputError
            If a file has both, with different values.
        """
        found = {name: self._find((other, name))[1] for name, other in others.items()}
        self.data = self.data | {name: value for name, value in found.items() if value is not None}

    def ignore(self, *names: str) -> None:
        """Take fields that are of no consequence beside others."""
        self._taken.update(names)

    def inside(self, name: str) -> "ConfigFields":
        """Return the fields of an object within the configuration."""
        value = self.value(name)
        if value is None:
            raise self.missing(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "give an object")
        found = ConfigFields(value, f"{self.where}: field {name!r}", self.kind)
        self._inside.append(found)
        return found

    def missing(self, name: str, beside: str = "") -> InputError:
        """Return the error for a field that is not there, and is needed beside others."""
        return InputError(
            f"{self.where}: field {name!r} is missing; a {self.kind} configuration{beside} needs it"
        )

    def wrong(self, name: str, remedy: str) -> InputError:
        """Return the error for a field with a value that cannot be used."""
        return InputError(f"{self.where}: field {name!r} is {self._shown(name)}; {remedy}")

    def wrong_entry(self, name: str, place: int, remedy: str) -> InputError:
        """Return the error for an entry of a list, or a letter of a text, by its place from 0."""
        value = self.data[name]
        what = "letter" if isinstance(value, str) else "entry"
        return InputError(
            f"{self.where}: {what} {place} (from 0) of field {name!r} is {shown(value[place])}; "
            f"{remedy}"
        )

    def _shown(self, name: str) -> str:
        """Return a value as messages show it, of a long list the number of entries."""
        value = self.data.get(name)
        given = shown(value, _SHOWN)
        if not given.endswith("..."):
            return given
        if isinstance(value, list):
            return f"a list of {counted(len(value), 'entry', 'entries')}"
        return given

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
        only = "only layers that are alike are known; give one number"
        if not value:
            raise self.wrong(name, only)
        for place, entry in enumerate(value):
            if entry != value[0]:
                raise self.wrong_entry(name, place, f"the first is {value[0]!r}; {only}")
        one = ConfigFields({name: value[0]}, self.where, self.kind)
        return one.count(name, least=least)

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value, or what the family takes where it is not given."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "give true or false")
        return value

    def indices(self, name: str) -> list[int]:
        """Return a list of whole numbers, empty where it is not given."""
        return self._list(name, int, "give a list of layer numbers")

    def words(self, name: str, known: Iterable[str] | None = None, remedy: str = "") -> list[str]:
        """Return a list of words, empty where it is not given.

        ``known`` are the only words that may be in it, and ``remedy`` says what others would do.
        """
        found: list[str] = self._list(name, str, "give a list of words")
        allowed = found if known is None else list(known)
        for place, word in enumerate(found):
            if word not in allowed:
                *first, last = allowed
                only = f"only {', '.join(first)} and {last} are" if first else f"only {last} is"
                raise self.wrong_entry(name, place, f"{only} known{remedy}")
        return found

    def check_length(self, name: str, found: int, layers: int, remedy: str = "") -> None:
        """Refuse a list that names another number of layers than the model has."""
        if found != layers:
            of = next((n for n in _LAYERS if self.data.get(n) is not None), _LAYERS[0])
            raise self.wrong(
                name,
                f"it names {found} of {counted(layers, 'layer')} ({of}); give a kind for "
                f"each{remedy}",
            )

    def _list(self, name: str, kind: type, remedy: str) -> list[Any]:
        value = self.value(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(name, remedy)
        for place, entry in enumerate(value):
            if type(entry) is not kind:
                raise self.wrong_entry(name, place, remedy)
        return value

    def text(self, name: str) -> str:
        """Return a text, empty where it is not given."""
        value = self.value(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(name, "give a text")
        return value

    def expect(self, name: str, *allowed: Any, because: str) -> None:
        """Refuse a field that is given with any other value than these."""
        value = self.value(name)
        if value is not None and value not in allowed:
            raise self.wrong(name, because)

    def agree(
        self,
        listed: str,
        kinds: Sequence[object],
        other: str,
        made: Sequence[object],
        usual: object = None,
        same: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Refuse a field that says other kinds of layers than a list does.

        Classes take the list, and many write what they take by default beside it: a number that is
        the ``usual`` one says nothing.

        Parameters
        ----------
        listed : str
            The list.
        kinds : sequence
            What it says of each layer.
        other : str
            The other field, a number or a list.
        made : sequence
            What that says of each layer.
        usual : optional
            What the class takes for the other field where it is not given.
        same : mapping of str to str, optional
            Of words of the file, others that say the same.
        """
        value = self._given.get(other)
        if value is None or value == usual:
            return
        pairs = enumerate(zip(kinds, made, strict=True))
        apart = (i for i, two in pairs if len({same.get(str(one), one) for one in two}) == 2)
        if (layer := next(apart, None)) is None:
            return
        raise self.wrong(
            other, f"it makes layer {layer} (from 0) {made[layer]}, but field {listed!r} says "
            f"{kinds[layer]}; remove one of the two",
        )  # fmt: skip

    def refuse(self, name: str, *values: Any) -> None:
        """Refuse values of a field that change the architecture of a family."""
        if self.value(name) in values:
            raise self._unknown(name)

    def refuse_leftovers(
        self, names: Mapping[str, tuple[object, ...]], listed: Container[str], layers: int
    ) -> None:
        """Refuse fields that change the architecture but that nothing has read.

        Zero, false, null and empty values say that the feature is not used; so do the values beside
        a name, and lists of nothing else. Those ``listed`` are lists with an entry a layer.
        """
        for name, harmless in names.items():
            value = self.data.get(name)
            entries = value if isinstance(value, list) else [value]
            if name in self._taken or not value:
                continue
            if any(entry not in harmless for entry in entries):
                raise self._unknown(name)
            if name in listed:
                if not isinstance(value, list):
                    raise self.wrong(name, "give a list, with an entry for each layer")
                self.check_length(name, len(value), layers)

    def refuse_misspelt(self, others: Container[str]) -> None:
        """Refuse a field that nothing has read, nearly that of one that was asked for in vain.

        ``others`` are fields that are known although nothing of this family reads them.
        """
        for fields in (self, *self._inside):
            for names in fields._asked:
                if any(name in fields._given for name in names):
                    continue
                for given in fields._unread():
                    meant = [name for name in names if misspelt(given, name)]
                    if meant and given not in others:
                        raise fields.wrong(
                            given, f"{self.kind} models have no such field, and the file has no "
                            f"{meant[0]!r}; rename it, or remove it",
                        )  # fmt: skip

    def _unread(self) -> list[str]:
        """Return the fields that say something, but that nothing has read so far."""
        return [
            name for name, value in self._given.items()
            if value is not None and name not in self._taken
        ]  # fmt: skip

    def _unknown(self, name: str) -> InputError:
        """Return the error for a field with which a family is not known."""
        return self.wrong(
            name, f"{self.kind} models are not known with it; remove it, or plan with a model file"
        )
