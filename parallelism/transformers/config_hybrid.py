"""Hugging Face's families whose layers attend in two ways: to all keys, or through a state."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from parallelism.transformers.config_experts import (
    dense_first,
    experts_of,
    qwen_experts,
    with_shared,
)
from parallelism.transformers.config_fields import ConfigFields
from parallelism.transformers.config_latent import latent_layers
from parallelism.transformers.config_parts import (
    biased,
    grouped_queries,
    layers_of,
    llama,
    modules_of,
    plain,
)
from parallelism.transformers.experts import Experts
from parallelism.transformers.limits import MOST_LAYERS
from parallelism.transformers.linear_attention import LinearAttention

_FULL, _LINEAR = "full_attention", "linear_attention"
_OLD_NAMES = {"attention": _FULL, "mamba": _LINEAR}
# What a block of Nemotron-H is by its letter in the pattern.
_BLOCKS = {"M": _LINEAR, "*": _FULL, "-": "mlp", "E": "moe"}


def full_layers(
    config: ConfigFields, layers: int, *names: str, linear: str = _LINEAR
) -> tuple[int, ...] | None:
    """Return the layers that meet all keys by a list of kinds; None where it is not given.

    Parameters
    ----------
    config : ConfigFields
    layers : int
    *names : str
        Spellings of the list besides ``layer_types``.
    linear : str
        What the family calls its other layers.
    """
    known = [_FULL, linear, *(_OLD_NAMES if linear == _LINEAR else ())]
    found = dict[str, list[str]]()
    for name in ("layer_types", *names):
        listed = config.words(name, known, "; plan with a model file")
        if listed:
            config.check_length(name, len(listed), layers)
            found[name] = listed
    if not found:
        return None
    (first, kinds), *others = found.items()
    for other, made in others:
        config.agree(first, kinds, other, made, same=_OLD_NAMES)
    return tuple(i for i, kind in enumerate(kinds) if _OLD_NAMES.get(kind, kind) == _FULL)


def listed_layers(config: ConfigFields, name: str, layers: int) -> tuple[int, ...]:
    """Return the layers of a list of numbers in ascending order, none where it is not given."""
    listed = config.indices(name)
    for place, layer in enumerate(listed):
        if not 0 <= layer < layers:
            raise config.wrong_entry(name, place, f"give layers from 0 to {layers - 1}")
    return tuple(sorted(set(listed)))


def named(full: tuple[int, ...], layers: int) -> list[str]:
    """Return a kind for each layer, of those that meet all keys."""
    return [_FULL if layer in full else _LINEAR for layer in range(layers)]


def but_for(
    linear: LinearAttention, full: tuple[int, ...], layers: int
) -> dict[str, LinearAttention | None]:
    """Return the linear attention of a model but for its full layers, or none where all are."""
    return {"linear": replace(linear, full_layers=full) if len(full) < layers else None}


def _gated_deltanet(config: ConfigFields) -> dict[str, Any]:
    """Read Gated DeltaNet and, in every fourth layer, attention with a gated output (Qwen)."""
    described = plain(config, head_dim=256, head_norm=True, output_gate=True, **biased(config))
    config.expect("attn_output_gate", True, because="only Qwen with gated attention; give true")
    config.expect(
        "mtp_use_dedicated_embeddings", False,
        because="only modules that share the model's embedding are known; give false",
    )  # fmt: skip
    config.expect(
        "mtp_num_hidden_layers", 0, 1, because="only a module of one layer is known; give 1"
    )
    layers = described["layers"]
    every = config.count("full_attention_interval", default=4)
    made = tuple(range(every - 1, layers, every))
    full = full_layers(config, layers)
    if full is not None:
        kinds = (named(full, layers), named(made, layers))
        config.agree("layer_types", kinds[0], "full_attention_interval", kinds[1], usual=4)
    full = made if full is None else full
    linear = LinearAttention(
        "gated-deltanet",
        config.count("linear_num_key_heads", default=16),
        config.count("linear_num_value_heads", default=32),
        config.count("linear_key_head_dim", default=128),
        config.count("linear_value_head_dim", default=128),
        config.count("linear_conv_kernel_dim", default=4),
    )
    modules = modules_of(config, "mtp_num_hidden_layers")
    return described | {"mtp_layers": modules} | but_for(linear, full, layers)


def _qwen3_next(config: ConfigFields) -> dict[str, Any]:
    described = _gated_deltanet(config)
    if not config.count("num_experts", least=0):
        config.ignore(
            "moe_intermediate_size", "num_experts_per_tok", "shared_expert_intermediate_size"
        )
        return described
    return described | {"experts": qwen_experts(config, described["layers"])}


def _qwen3_5_moe(config: ConfigFields) -> dict[str, Any]:
    # No layer is dense; the width of one is of no consequence.
    config.assume(intermediate_size=config.count("moe_intermediate_size"))
    described = _gated_deltanet(config)
    return described | {"experts": qwen_experts(config, described["layers"])}


def _kimi_linear(config: ConfigFields) -> dict[str, Any]:
    config.assume_spelt(
        n_group="num_expert_group", num_experts_per_tok="num_experts_per_token",
        max_position_embeddings="model_max_length",
    )  # fmt: skip
    described = latent_layers(config) | {"experts": with_shared(config, 1, True)}
    layers, kda = described["layers"], ConfigFields({}, config.where, config.kind)
    if config.value("linear_attn_config") is not None:
        kda = config.inside("linear_attn_config")
        kda.expect("use_full_rank_gate", False, because="only gates of low rank are known")
    heads = _kimi_size(config, kda, "num_heads", "linear_num_heads", 32)
    width = _kimi_size(config, kda, "head_dim", "linear_head_dim", 128)
    taps = _kimi_size(config, kda, "short_conv_kernel_size", "linear_conv_kernel_dim", 4)
    full, listed = full_layers(config, layers), _kimi_layers(kda, layers)
    if full is not None and listed is not None:
        kinds = (named(full, layers), named(listed, layers))
        config.agree("layer_types", kinds[0], "linear_attn_config", kinds[1])
    full = listed if full is None else full
    full = tuple(range(4, layers, 4)) if full is None else full
    linear = LinearAttention("kda", heads, heads, width, width, taps)
    return dense_first(config, described, 1) | but_for(linear, full, layers)


def _kimi_size(config: ConfigFields, kda: ConfigFields, inner: str, outer: str, usual: int) -> int:
    """Return a size of ``linear_attn_config``, else of the file, else the class's ``usual`` one."""
    size = kda.count(inner, default=config.count(outer, default=usual))
    if config.value(outer) not in (None, usual, size):
        raise config.wrong(
            outer, f"field {inner!r} of linear_attn_config is {size}; remove one of them"
        )
    return size


def _kimi_layers(kda: ConfigFields, layers: int) -> tuple[int, ...] | None:
    """Return the full layers of two lists that count from 1; None where neither is given."""
    full, linear = kda.indices("full_attn_layers"), kda.indices("kda_layers")
    if not full and not linear:
        return None
    for layer in sorted({*range(1, layers + 1), *full, *linear}):
        times = (full.count(layer), linear.count(layer))
        if not 1 <= layer <= layers:
            said = f"names layer {layer}"
        elif sum(times) == 1:
            continue
        else:
            said = {(0, 0): f"lacks layer {layer}, as kda_layers does"}.get(
                times, f"has layer {layer}, as kda_layers does" if min(times) else
                f"or kda_layers has layer {layer} twice",
            )  # fmt: skip
        raise kda.wrong(
            "full_attn_layers",
            f"it {said}; give each of the layers 1 to {layers} in one of the two lists",
        )
    return tuple(layer - 1 for layer in sorted(full))


def mamba(config: ConfigFields, whole: int, said: str) -> LinearAttention:
    """Read Mamba-2 as Granite, Bamba and Falcon-H1 spell it.

    ``whole`` is the width of all heads, and ``said`` the fields that it is made of.
    """
    config.expect(
        "mamba_proj_bias", False, because="only mamba layers without biases of projections; "
        "give false",
    )  # fmt: skip
    heads = config.count("mamba_n_heads", default=128)
    shared = max(whole // heads, 1)
    auto = config.value("mamba_d_head") == "auto"
    width = shared if auto else config.count("mamba_d_head", default=shared)
    if heads * width != whole:
        raise config.wrong(
            "mamba_n_heads", f"heads of {width} are not {said} = {whole} together; give "
            "mamba_n_heads and mamba_d_head whose product it is",
        )  # fmt: skip
    return LinearAttention(
        "mamba-2",
        config.count("mamba_n_groups", default=1),
        heads,
        config.count("mamba_d_state", default=256),
        width,
        config.count("mamba_d_conv", default=4),
        convolution_bias=config.flag("mamba_conv_bias", True),
        chunk=config.count("mamba_chunk_size", default=256),
    )


def expanded(config: ConfigFields, hidden: int) -> tuple[int, str]:
    """Return the width of all heads of mamba, and the fields that it is made of."""
    return config.count("mamba_expand", default=2) * hidden, "mamba_expand * hidden_size"


def _granite_hybrid(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, kv_default=True, **biased(config))
    layers, shared = described["layers"], config.count("shared_intermediate_size")
    full = full_layers(config, layers, "layers_block_type")
    linear = mamba(config, *expanded(config, described["hidden"]))
    described |= but_for(linear, full or (), layers)
    experts = config.count("num_local_experts", least=0)
    each = config.count("num_experts_per_tok", default=2, least=0)
    if not experts:
        return described | {"feed_forward": shared}
    width = described["feed_forward"]
    return described | {
        "experts": experts_of(config, experts, each, width, shared=1, shared_width=shared)
    }


def _bamba(config: ConfigFields) -> dict[str, Any]:
    config.assume(num_key_value_heads=8)
    described = llama(config)
    layers = described["layers"]
    full = listed_layers(config, "attn_layer_indices", layers)
    linear = mamba(config, *expanded(config, described["hidden"]))
    return described | but_for(linear, full, layers)


def _blocks(config: ConfigFields, *lists: str, pattern: str) -> tuple[str, list[str]]:
    """Return the kinds of blocks of Nemotron-H, from a list or a pattern, and the field's name."""
    known = ("mamba", "attention", *_BLOCKS.values())
    found = {name: config.words(name, known) for name in lists}
    letters = config.text(pattern)
    for place, letter in enumerate(letters):
        if letter not in _BLOCKS:
            only = f"only the letters {' '.join(_BLOCKS)} are known"
            raise config.wrong_entry(pattern, place, only)
    found[pattern] = list(letters)
    given = [name for name, kinds in found.items() if kinds]
    for name in given[1:]:
        blocks, others = found[given[0]], found[name]
        if len(others) != len(blocks):
            raise config.wrong(
                name,
                f"it names {counted(len(others), 'block')}, but field {given[0]!r} {len(blocks)}; "
                "remove one of the two",
            )
        config.agree(given[0], blocks, name, others, same=_BLOCKS | _OLD_NAMES)
    name = given[0] if given else pattern
    return name, [(_BLOCKS | _OLD_NAMES).get(kind, kind) for kind in found[name]]


def _nemotron_h(config: ConfigFields) -> dict[str, Any]:
    config.ignore("n_group", "n_groups")  # of experts, of mamba: no slips of one another
    if config.value("num_hidden_layers") is not None:
        layers_of(config)
    pattern = "hybrid_override_pattern"
    name, blocks = _blocks(config, "layers_block_type", "layer_types", pattern=pattern)
    if not blocks:
        raise config.missing(pattern)
    layers = config.count("num_hidden_layers", default=len(blocks))
    config.check_length(name, len(blocks), layers, ", or remove num_hidden_layers")
    if layers > MOST_LAYERS:
        raise config.wrong(name, f"it names {layers} layers; give at most {MOST_LAYERS}")
    for bias in ("attention_bias", "mamba_proj_bias", "mlp_bias", "use_bias"):
        config.expect(bias, False, because="only Nemotron-H without biases; give false")
    hidden = config.count("hidden_size")
    config.assume(head_dim=config.value("attention_head_dim"))
    linear = LinearAttention(
        "mamba-2",
        config.count("n_groups", "mamba_n_groups", default=8),
        config.count("mamba_num_heads", default=128),
        config.count("ssm_state_size", default=128),
        config.count("mamba_head_dim", default=64),
        config.count("conv_kernel", "mamba_d_conv", default=4),
        convolution_bias=config.flag("use_conv_bias", config.flag("mamba_conv_bias", True)),
        chunk=config.count("chunk_size", "mamba_chunk_size", default=128),
    )

    def of(*kinds: str) -> tuple[int, ...]:
        return tuple(layer for layer, kind in enumerate(blocks) if kind in kinds)

    experts = _nemotron_experts(config, blocks)
    return {
        "layers": layers,
        "hidden": hidden,
        "attention": grouped_queries(config, hidden, head_dim=128, kv_default=True),
        # Without dense blocks the width of one is of no consequence.
        "feed_forward": experts.width if experts else config.count("intermediate_size"),
        "vocabulary": config.count("vocab_size"),
        "tied": config.flag("tie_word_embeddings", False),
        "experts": experts,
        "linear": replace(linear, full_layers=of(_FULL)) if _LINEAR in blocks else None,
        "without_feed_forward": of(_LINEAR, _FULL),
        "without_attention": of("mlp", "moe"),
        "mtp_layers": _nemotron_modules(config, experts),
        "mtp_repeated": config.flag("mtp_use_repeated_layer", True),
    }


def _nemotron_modules(config: ConfigFields, experts: Experts | None) -> int:
    """Return the modules for multi-token prediction of Nemotron-H, of two blocks each."""
    pattern = "mtp_hybrid_override_pattern"
    name, blocks = _blocks(config, "mtp_layers_block_type", pattern=pattern)
    modules, usual = modules_of(config), [_FULL, "moe" if experts else "mlp"]
    if modules and (blocks or [_FULL, "moe"]) != usual:
        letters = "*E" if experts else "*-"
        raise config.wrong(
            name,
            f"only modules of the blocks attention and {usual[1]} ({letters}) are known beside the "
            "model's own; give these, or num_nextn_predict_layers 0",
        )
    return modules


def _nemotron_experts(config: ConfigFields, blocks: list[str]) -> Experts | None:
    """Return the experts of Nemotron-H, if there are blocks of them."""
    if "moe" not in blocks:
        config.ignore(
            "n_routed_experts", "n_shared_experts", "moe_intermediate_size", "num_experts_per_tok",
            "moe_latent_size",
        )  # fmt: skip
        return None
    if "mlp" in blocks:
        raise InputError(
            f"{config.where}: some blocks are dense and some have experts; only Nemotron-H with "
            "blocks of one of them is known; plan with a model file"
        )
    config.expect("n_shared_experts", 1, because="only one shared expert is known; give 1")
    return experts_of(
        config,
        config.count("n_routed_experts", "num_local_experts"),
        config.count("num_experts_per_tok"),
        config.count("moe_intermediate_size"),
        shared=1,
        shared_width=config.count("moe_shared_expert_intermediate_size"),
        router_bias=True,
        groups=config.count("n_group", default=1),
        groups_per_token=config.count("topk_group", default=1),
        latent_width=config.count("moe_latent_size", default=0),
    )


HYBRID_FAMILIES: Mapping[str, Callable[[ConfigFields], dict[str, Any]]] = MappingProxyType(
    {
        "qwen3_next": _qwen3_next,
        "qwen3_5_text": _gated_deltanet,
        "qwen3_5_moe_text": _qwen3_5_moe,
        "kimi_linear": _kimi_linear,
        "granitemoehybrid": _granite_hybrid,
        "bamba": _bamba,
        "nemotron_h": _nemotron_h,
    }
)
"""Readers by ``model_type``."""
