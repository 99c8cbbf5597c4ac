"""Which layouts of a transformer are considered."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, fields
from reprlib import repr as brief
from typing import get_args

from codesign_base import InputError
from codesign_base.arguments import check_flags, python_number
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import (
    MOST_DEGREE,
    MOST_STAGE_PARTS,
    USUAL_MODULES,
    Layout,
    Module,
    PipelineScheduleName,
    Recompute,
)


@dataclass(frozen=True)
class Choices:
    """Which layouts are considered.

    Parameters
    ----------
    tensor, context, pipeline, expert, microbatch, virtual_stages, zero : tuple of int, optional
        The only values considered; by default all that are legal and usual (see
        `parallelism.transformers.enumeration.enumerate_layouts`; of ``zero`` 1 and 3, and 2 where
        `parallelism.transformers.family.LayoutFamily.layouts` says).
    expert_tensor : tuple of int, optional
        Tensor ranks that split an expert; by default 1 and the tensor degree.
    stage_layers : tuple of int, optional
        Layers of each part along the model: only layouts of so many parts are considered.
    recompute : tuple of {"none", "selective", "full", "modules"}
    replicate : tuple of int, optional
        Copies of sharded states; by default 1.
    modules : tuple of Module
        What recomputation by modules does again (`Layout`); by default all but whole parts.
    schedules : tuple of PipelineScheduleName
    across_servers : bool
        Tensor parallelism may span servers.

    Examples
    --------
    >>> from parallelism.transformers.choices import Choices
    >>> Choices(tensor=(1, 8), recompute=("none",)).tensor
    (1, 8)
    """

    tensor: tuple[int, ...] = ()
    context: tuple[int, ...] = ()
    pipeline: tuple[int, ...] = ()
    expert: tuple[int, ...] = ()
    microbatch: tuple[int, ...] = ()
    virtual_stages: tuple[int, ...] = ()
    zero: tuple[int, ...] = ()
    recompute: tuple[Recompute, ...] = ("none", "full")
    schedules: tuple[PipelineScheduleName, ...] = (
        "1f1b",
        "eager-1f1b",
        "interleaved",
        "breadth-first",
        "zero-bubble",
        "zero-bubble-v",
    )
    across_servers: bool = False
    expert_tensor: tuple[int, ...] = ()
    stage_layers: tuple[int, ...] = ()
    modules: tuple[Module, ...] = USUAL_MODULES
    replicate: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Iterable) and not isinstance(value, str | bytes | Set):
                value = tuple(map(python_number, value))
                object.__setattr__(self, each.name, value)
            if each.name != "across_servers":
                self._check_tuple(each.name, value)
        check_flags("layouts", self)
        for name in (
            "tensor", "context", "pipeline", "expert", "microbatch", "virtual_stages",
            "expert_tensor", "replicate",
        ):  # fmt: skip
            if any(not 1 <= value <= MOST_DEGREE for value in getattr(self, name)):
                raise _wrong(name, getattr(self, name), f"give 1 to {MOST_DEGREE}")
        for name, known in (
            ("zero", (0, 1, 2, 3)),
            ("recompute", get_args(Recompute)),
            ("schedules", get_args(PipelineScheduleName)),
            ("modules", get_args(Module)),
        ):
            value = getattr(self, name)
            if not (value or name == "zero") or not set(value) <= set(known):
                raise _wrong(name, value, f"give some of {', '.join(map(str, known))}")
        parts = self.stage_layers
        if len(parts) > MOST_STAGE_PARTS or any(
            not 0 <= layers <= MOST_STAGE_PARTS for layers in parts
        ):
            raise InputError(
                f"layouts: stage_layers is of {len(parts)} parts; give at most "
                f"{MOST_STAGE_PARTS}, of 0 to {MOST_STAGE_PARTS} layers",
                fields=("stage_layers",),
            )
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "stage_layers":
                continue
            if isinstance(value, tuple) and len(set(value)) < len(value):
                raise _wrong(each.name, value, "give each value once")

    def _check_tuple(self, name: str, value: object) -> None:
        words = {"recompute": "none", "schedules": "1f1b", "modules": "norms"}
        kind, example = (str, (words[name],)) if name in words else (int, (1, 2))
        if not isinstance(value, tuple) or any(
            not isinstance(one, kind) or isinstance(one, bool) for one in value
        ):
            raise InputError(f"layouts: {name} is {brief(value)}; give a tuple, such as {example}")

    @property
    def asked(self) -> dict[str, str]:
        """What differs from the default, by field, such as ``1, 2`` of ``context``."""
        return {
            each.name: ", ".join(map(str, value)) for each in fields(self)
            if isinstance(value := getattr(self, each.name), tuple) and value != each.default
        }  # fmt: skip

    def without_effect(self, layouts: Sequence[Layout]) -> list[str]:
        """Return the values that were asked for, but that none of some layouts has.

        Parameters
        ----------
        layouts : sequence of Layout
            All that are legal.

        Examples
        --------
        >>> Choices(context=(1, 2), zero=(1,)).without_effect([Layout(data=8)])
        ['context 2']
        """
        found = []
        for each in fields(self):
            name, asked = _OF_LAYOUTS.get(each.name, each.name), getattr(self, each.name)
            if not isinstance(asked, tuple) or asked == each.default or each.name in _NO_VALUES:
                continue
            # Without stages a schedule is nothing but a name.
            these = [one for one in layouts if one.pipeline > 1 or name != "schedule"]
            had = {getattr(layout, name) for layout in these}
            if missing := [value for value in asked if value not in had]:
                what = name if each.name == "schedules" else each.name.replace("_", " ")
                found.append(f"{what} {', '.join(map(str, missing))}")
        return found

    def allows(self, layout: Layout) -> bool:
        """Whether a layout has no value that is left out by what differs from the default."""
        if self.stage_layers != layout.stage_layers:
            return False
        for each in fields(self):
            asked = getattr(self, each.name)
            if not isinstance(asked, tuple) or asked == each.default or each.name in _NO_VALUES:
                continue
            if getattr(layout, _OF_LAYOUTS.get(each.name, each.name)) not in asked:
                return False
        return layout.recompute != "modules" or layout.modules == self.modules


@dataclass(frozen=True)
class LayoutSpace:
    """What the layouts of a transformer have to fill and to divide.

    Parameters
    ----------
    model : Transformer
    gpus : int
        All of them, each used.
    gpus_per_server : int
        Tensor groups stay within so many, and divide them, unless ``choices`` lets them span
        servers, of which they then fill several.
    batch : int
        Samples of an iteration.
    sequence : int
        Tokens of a sample.
    choices : Choices, optional
        Which of the layouts are considered.
    """

    model: Transformer
    gpus: int
    gpus_per_server: int
    batch: int
    sequence: int
    choices: Choices = Choices()


def _wrong(name: str, values: Sequence[object], remedy: str) -> InputError:
    """Return the error for values that cannot be considered."""
    told = brief(values) if len(values) > _MOST_TOLD else ", ".join(map(brief, values)) or "empty"
    return InputError(f"layouts: {name} is {told}; {remedy}", fields=(name,))


_MOST_TOLD = 6
"""Values that messages give one by one."""
_OF_LAYOUTS = {"schedules": "schedule", "expert_tensor": "expert_split"}
"""Where the field of `Layout` that has the values has another name."""
_NO_VALUES = ("modules", "stage_layers")
"""What is taken as a whole: a layout has all of it."""
