"""Which layers of a configuration have a sliding window, and how wide it is."""

from parallelism.transformers.architecture import SlidingWindow
from parallelism.transformers.config_fields import ConfigFields

_KINDS = ("full_attention", "sliding_attention", "chunked_attention")
_ONLY = f"only {', '.join(_KINDS)} are known; plan with a model file"


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
    width = config.count("sliding_window", default=0 if "sliding_window" in config.data else width)
    every = _pattern(config, every)
    full = full_layers(config, layers, width)
    if full is None:
        full = tuple(range(every - 1, layers, every)) if every and width else ()
    return SlidingWindow(width, full) if width and len(full) < layers else None


def late_window(
    config: ConfigFields, layers: int, late: int, *, asked: bool = True
) -> SlidingWindow | None:
    """Return the window of layers from ``max_window_layers`` on.

    Parameters
    ----------
    config : ConfigFields
    layers : int
    late : int
        The family's ``max_window_layers``; 0: all layers slide.
    asked : bool, optional
        Whether there is one only if ``use_sliding_window`` is true.
    """
    width = config.count("sliding_window", default=0 if "sliding_window" in config.data else 4096)
    first = config.count("max_window_layers", default=late, least=0) if late else 0
    width = width if not asked or config.flag("use_sliding_window", False) else 0
    full = full_layers(config, layers, width)
    full = tuple(range(min(first, layers))) if full is None else full
    return SlidingWindow(width, full) if width and len(full) < layers else None


def chunks(config: ConfigFields, layers: int) -> SlidingWindow | None:
    """Return the chunks of layers with rotary positions (Llama 4)."""
    width = config.count(
        "attention_chunk_size", default=0 if "attention_chunk_size" in config.data else 8192
    )
    every = config.count("no_rope_layer_interval", default=4)
    rotary = config.indices("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    full = full_layers(config, layers, width)
    if full is None:
        full = tuple(i for i in range(layers) if i >= len(rotary) or not rotary[i])
    return SlidingWindow(width, full, chunked=True) if width and len(full) < layers else None


def full_layers(config: ConfigFields, layers: int, width: int) -> tuple[int, ...] | None:
    """Return the layers that ``layer_types`` says to meet all keys; None where it is not given.

    Raises
    ------
    InputError
        If a kind is not known, the list has another length than layers, or layers slide in it but
        no width is given.
    """
    kinds = config.words("layer_types")
    if not kinds:
        return None
    if any(kind not in _KINDS for kind in kinds):
        raise config.wrong("layer_types", _ONLY)
    if len(kinds) != layers:
        raise config.wrong(
            "layer_types", f"it names {len(kinds)} of {layers} layers; give a kind for each"
        )
    full = tuple(i for i, kind in enumerate(kinds) if kind == _KINDS[0])
    if len(full) < layers and not width:
        raise config.missing(
            "attention_chunk_size" if "chunked_attention" in kinds else "sliding_window"
        )
    return full


def _pattern(config: ConfigFields, usual: int) -> int:
    """Return the period of layers that meet all keys; letters end with the one that does."""
    given = config.data.get("sliding_window_pattern")
    if isinstance(given, str):
        if not given or set(given[:-1]) - {"L"} or given[-1] != "G":
            raise config.wrong("sliding_window_pattern", "give a number, or letters such as LLLG")
        return len(given)
    return config.count("sliding_window_pattern", default=usual)
