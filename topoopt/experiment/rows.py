"""Rows: the inputs of a case, and what came of it, by name."""

from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = dict[str, Value]
