"""A transformer with some of its fields replaced, and layers of the same kinds as before."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from codesign_base import InputError
from parallelism.suggestions import suggestion
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.limits import MOST_LAYERS

# Fields that list layers: themselves, in ``full_layers``, or in an indexer's ``shared``.
_LISTED = ("window", "linear", "without_feed_forward", "without_attention", "attention")


def override(model: Transformer, **changes: Any) -> Transformer:
    """Return a transformer with some of its fields replaced.

    Where ``layers`` is given, fewer layers are of the kinds that the first ones had (with a sliding
    window, with linear attention, of one part, without an indexer of their own), and more of them
    repeat the pattern, but for fields that are given, too.

    Raises
    ------
    InputError
        If a field does not exist, a value is out of range, or the kinds of layers have no pattern
        to repeat.
    """
    known = [field.name for field in fields(Transformer)]
    for name in changes:
        if name not in known:
            raise InputError(
                f"transformer {model.name!r} has no field {name!r}; {suggestion(name, known)}"
            )
    layers = changes.get("layers")
    if type(layers) is int and 0 < layers <= MOST_LAYERS and layers != model.layers:
        changes = _kinds_of(model, layers, [n for n in _LISTED if n not in changes]) | changes
    return replace(model, **changes)


def _kinds_of(model: Transformer, layers: int, names: list[str]) -> dict[str, Any]:
    """Return fields that list layers of a transformer with another number of layers."""
    values: Mapping[str, Any] = {name: getattr(model, name) for name in names}
    listed: dict[str, frozenset[int]] = {}
    for name, value in values.items():
        if name == "attention":
            if model.indexer is not None and model.indexer.shared:
                listed[name] = frozenset(model.indexer.shared)
        elif value:
            listed[name] = frozenset(getattr(value, "full_layers", value))
    known = [tuple(layer in found for found in listed.values()) for layer in range(model.layers)]
    if layers > model.layers:
        # What does not come twice is no pattern, such as a few full layers before all others.
        half = model.layers // 2
        period = next((p for p in range(1, half + 1) if known[p:] == known[:-p]), None)
        if period is None and any(known):
            raise _no_pattern(model, layers, list(listed))
        known = [known[layer % (period or 1)] for layer in range(layers)]
    found: dict[str, Any] = {}
    for place, name in enumerate(listed):
        these = tuple(layer for layer in range(layers) if known[layer][place])
        if isinstance(values[name], tuple):
            found[name] = these
        elif name == "attention":
            attention = model.attention
            assert attention.latent is not None
            assert attention.latent.indexer is not None
            indexer = replace(attention.latent.indexer, shared=these)
            found[name] = replace(attention, latent=replace(attention.latent, indexer=indexer))
        else:
            full = replace(values[name], full_layers=these)
            found[name] = full if len(these) < layers else None
    return found


def _no_pattern(model: Transformer, layers: int, names: list[str]) -> InputError:
    what = f"which of its {model.layers} layers slide has"
    if names != ["window"]:
        what = f"the order of its {model.layers} layers, which are of several kinds, has"
    return InputError(
        f"transformer {model.name!r}: layers is {layers}, but {what} no pattern that could be "
        f"repeated; give {', '.join(names)}, too"
    )
