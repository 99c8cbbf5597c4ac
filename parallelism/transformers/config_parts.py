"""What configurations of many families spell alike: widths, heads, plain decoders."""

from typing import Any

from codesign_base import InputError
from parallelism.transformers.attention import Attention
from parallelism.transformers.config_fields import ConfigFields
from parallelism.transformers.config_windows import sliding_window, window_of_all
from parallelism.transformers.limits import MOST_LAYERS


def layers_of(config: ConfigFields, *names: str) -> int:
    """Return the number of layers, which lists over all layers can be made of.

    Raises
    ------
    InputError
        If there are more than any model has.
    """
    layers = config.count(*names or ("num_hidden_layers",))
    if layers > MOST_LAYERS:
        raise InputError(f"{config.where}: {layers} layers; give at most {MOST_LAYERS} layers")
    return layers


def body_of(config: ConfigFields) -> dict[str, Any]:
    """Read what nearly all decoders spell alike."""
    return {
        "layers": layers_of(config),
        "hidden": config.count("hidden_size"),
        "feed_forward": config.count("intermediate_size"),
        "vocabulary": config.count("vocab_size"),
    }


def modules_of(config: ConfigFields, *names: str) -> int:
    """Return the modules for multi-token prediction, which ``use_mtp`` may leave out.

    ``names`` are spellings that the family has besides the usual one.
    """
    used = config.flag("use_mtp", True)
    if not used:
        names = (*names, "num_mtp_modules")
    return used * config.count("num_nextn_predict_layers", *names, default=0, least=0)


def heads_of(config: ConfigFields, hidden: int, width: int | None = None) -> tuple[int, int]:
    """Return heads and their width, which by default share the hidden width."""
    heads = config.count("num_attention_heads", "n_head", "num_heads", "n_heads")
    if width is None and hidden % heads:
        raise config.wrong(
            "num_attention_heads", f"it does not divide hidden_size {hidden}; give a divisor, "
            "or head_dim",
        )  # fmt: skip
    return heads, hidden // heads if width is None else width


def grouped_queries(
    config: ConfigFields,
    hidden: int,
    *,
    head_dim: int | None = None,
    kv_default: bool = False,
    **more: Any,
) -> Attention:
    """Read grouped-query attention; ``head_dim`` is the family's own where the file has none."""
    given = config.count("head_dim", default=head_dim or 0)
    heads, width = heads_of(config, hidden, given or None)
    default = {"default": heads} if kv_default else {}
    return Attention(heads, config.count("num_key_value_heads", **default), width, **more)


def llama(
    config: ConfigFields, *, biased: bool = False, tied: bool = False, **attention: Any
) -> dict[str, Any]:
    """Return a plain decoder whose biases the file chooses, of attention and feed-forward part.

    ``biased`` and ``tied`` are what the family takes where the file does not say.
    """
    body = body_of(config)
    bias = config.flag("attention_bias", biased)
    given = {"kv_default": True, "query_bias": bias, "output_bias": bias} | attention
    return body | {
        "attention": grouped_queries(config, body["hidden"], **given),
        "gated": True,
        "bias": config.flag("mlp_bias", False),
        "tied": config.flag("tie_word_embeddings", tied),
    }


def plain(config: ConfigFields, *, tied: bool = False, **attention: Any) -> dict[str, Any]:
    """Return gated feed-forward, RMSNorm and rotary positions, without biases outside attention.

    ``tied`` is the family's own. It has no windows; see `windowed`.
    """
    body = body_of(config)
    return body | {
        "attention": grouped_queries(config, body["hidden"], **attention),
        "gated": True,
        "tied": config.flag("tie_word_embeddings", tied),
    }


def windowed(
    config: ConfigFields, *, width: int = 0, every: int = 0, **more: Any
) -> dict[str, Any]:
    """Return `plain`, in a family that reads sliding windows.

    ``width`` and ``every`` are the family's own; see `config_windows.sliding_window`.
    """
    described = plain(config, **more)
    window = sliding_window(config, described["layers"], width=width, every=every)
    return described | {"window": window}


def windowed_throughout(config: ConfigFields, *, width: int = 0, **more: Any) -> dict[str, Any]:
    """Return `plain`, in a family whose class windows all layers alike or none.

    ``width`` is the family's own; see `config_windows.window_of_all`.
    """
    described = plain(config, **more)
    return described | {"window": window_of_all(config, described["layers"], width=width)}


def biased(config: ConfigFields, usual: bool = False) -> dict[str, bool]:
    """Return the biases of attention's projections, which one field sets."""
    bias = config.flag("attention_bias", usual)
    return {"query_bias": bias, "output_bias": bias}
