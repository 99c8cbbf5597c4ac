"""Which layers of a configuration have a sliding window, and how wide it is."""

from parallelism.transformers.attention import SlidingWindow
from parallelism.transformers.config_fields import ConfigFields

_FULL, _SLIDING, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def sliding_window(
    config: ConfigFields, layers: int, *, width: int = 0, every: int = 0
) -> SlidingWindow | None:
    """Return the sliding window of a decoder, from its width and the kinds of its layers.

    Parameters
    ----------
    config : ConfigFields
    layers : int
    width : int, optional
        The family's, where the file does not have the field; null says that there is none.
    every : int, optional
        By default each so many-th layer meets all keys; 0: none does.

    Returns
    -------
    SlidingWindow or None
        None where no layer slides.
    """
    width = _width(config, width)
    usual, every = every, _pattern(config, every)
    full = _full_layers(config, layers, width)
    made = tuple(range(every - 1, layers, every)) if every and width else ()
    if full is not None and width:
        kinds = (_named(full, layers), _named(made, layers))
        config.agree("layer_types", kinds[0], "sliding_window_pattern", kinds[1], usual=usual)
    full = made if full is None else full
    return SlidingWindow(width, full) if width and len(full) < layers else None


def window_of_all(
    config: ConfigFields, layers: int, *, width: int = 0, asked: bool = False
) -> SlidingWindow | None:
    """Return the window of every layer, in families whose classes do not look at kinds of layers.

    ``width`` is that of `sliding_window`; if ``asked``, there is one only with a true
    ``use_sliding_window``.
    """
    width = _width(config, width)
    if asked:
        width, _ = _if_asked(config, width)
    _kinds(config, layers, _SLIDING)  # refuses others than the classes take
    return SlidingWindow(width) if width else None


def late_window(
    config: ConfigFields, layers: int, late: int, *, asked: bool = True, early: bool = False
) -> SlidingWindow | None:
    """Return the window of layers from ``max_window_layers`` on.

    Parameters
    ----------
    config : ConfigFields
    layers : int
    late : int
        The family's ``max_window_layers``.
    asked : bool, optional
        Whether there is one only if ``use_sliding_window`` is true.
    early : bool, optional
        The class reads ``max_window_layers`` in another way, so that ``layer_types`` alone counts.
    """
    width = _width(config, 4096)
    first = config.count("max_window_layers", default=late, least=0)
    width, needs = _if_asked(config, width) if asked else (width, "sliding_window")
    full = _full_layers(config, layers, width, needs=needs)
    made = tuple(range(min(first, layers)))
    if full is not None and width and not early:
        kinds = (_named(full, layers), _named(made, layers))
        config.agree("layer_types", kinds[0], "max_window_layers", kinds[1], usual=late)
    full = made if full is None else full
    return SlidingWindow(width, full) if width and len(full) < layers else None


def window_without_positions(config: ConfigFields, layers: int) -> SlidingWindow | None:
    """Return the window of layers without rotary positions, if one is asked for (SmolLM3)."""
    width, needs = _if_asked(config, _width(config, 0))
    full = _full_layers(config, layers, width, needs=needs)
    if full is None:
        full = _rotary(config, layers)
    return SlidingWindow(width, full) if width and len(full) < layers else None


def chunks(config: ConfigFields, layers: int) -> SlidingWindow | None:
    """Return the chunks of layers with rotary positions (Llama 4)."""
    width = config.count(
        "attention_chunk_size", default=0 if "attention_chunk_size" in config.data else 8192
    )
    rotary = _rotary(config, layers)
    full = _full_layers(config, layers, width, _CHUNKED, "attention_chunk_size")
    if full is None:
        full = tuple(sorted(set(range(layers)) - set(rotary)))
    return SlidingWindow(width, full, chunked=True) if width and len(full) < layers else None


def _if_asked(config: ConfigFields, width: int) -> tuple[int, str]:
    """Return a window's width, and the field that sets it; ``use_sliding_window`` must be true."""
    if config.flag("use_sliding_window", False):
        return width, "sliding_window"
    return 0, "use_sliding_window"


def _full_layers(
    config: ConfigFields,
    layers: int,
    width: int,
    kind: str = _SLIDING,
    needs: str = "sliding_window",
) -> tuple[int, ...] | None:
    """Return the layers that ``layer_types`` says to meet all keys; None where it is not given.

    Parameters
    ----------
    config : ConfigFields
    layers, width : int
    kind : str, optional
        Of the family's layers with a window.
    needs : str, optional
        The field without which there is no width.

    Raises
    ------
    InputError
        If the family has no such kind, the list has another length than layers, or layers have a
        window in it but no width is given.
    """
    kinds = _kinds(config, layers, kind)
    if not kinds:
        return None
    full = tuple(i for i, one in enumerate(kinds) if one == _FULL)
    if len(full) < layers and not width:
        if config.data.get(needs) is None:
            raise config.missing(needs, f" with layers of {kind}")
        raise config.wrong(needs, f"layer_types has layers of {kind}; give true, or {_FULL}")
    return full


def _width(config: ConfigFields, usual: int) -> int:
    """Return the width that a file gives, else the family's; null and 0 say that there is none."""
    usual = 0 if "sliding_window" in config.data else usual
    return config.count("sliding_window", default=usual, least=0)


def _kinds(config: ConfigFields, layers: int, kind: str) -> list[str]:
    """Return ``layer_types``, all keys or ``kind`` for each layer; empty where it is not given."""
    kinds = config.words("layer_types", (_FULL, kind), "; plan with a model file")
    if kinds:
        config.check_length("layer_types", len(kinds), layers)
    return kinds


def _named(full: tuple[int, ...], layers: int) -> list[str]:
    """Return a kind for each layer, of those that meet all keys."""
    return [_FULL if layer in full else _SLIDING for layer in range(layers)]


def _rotary(config: ConfigFields, layers: int) -> tuple[int, ...]:
    """Return the layers with rotary positions, which ``no_rope_layers`` marks with 1."""
    every = config.count("no_rope_layer_interval", default=4)
    marks = config.indices("no_rope_layers")
    if marks and (len(marks) != layers or set(marks) - {0, 1}):
        raise config.wrong("no_rope_layers", f"give 0 or 1 for each of the {layers} layers")
    made = [int((i + 1) % every > 0) for i in range(layers)]
    if marks:
        config.agree("no_rope_layers", marks, "no_rope_layer_interval", made, usual=4)
    return tuple(i for i, mark in enumerate(marks or made) if mark)


def _pattern(config: ConfigFields, usual: int) -> int:
    """Return the period of layers that meet all keys; letters end with the one that does."""
    given = config.value("sliding_window_pattern")
    if isinstance(given, str):
        if not given or set(given[:-1]) - {"L"} or given[-1] != "G":
            raise config.wrong("sliding_window_pattern", "give a number, or letters such as LLLG")
        return len(given)
    # EXAONE's class writes 0 where there is no window.
    return config.count("sliding_window_pattern", default=usual, least=0)
