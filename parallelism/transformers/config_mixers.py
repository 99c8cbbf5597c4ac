"""Hugging Face's families with short convolutions, lightning attention, Mamba-1, or two mixers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from codesign_base.arguments import is_number
from codesign_base.counted import counted
from parallelism.operators.shapes import LARGEST
from parallelism.transformers.config_experts import experts_of, of_one_width
from parallelism.transformers.config_fields import ConfigFields
from parallelism.transformers.config_hybrid import (
    but_for,
    expanded,
    full_layers,
    listed_layers,
    mamba,
    named,
)
from parallelism.transformers.config_parts import llama, plain
from parallelism.transformers.linear_attention import LinearAttention


def _short_convolutions(config: ConfigFields) -> dict[str, Any]:
    """Read layers of attention with norms of heads; where it has none, short convolutions."""
    config.assume(tie_word_embeddings=config.value("tie_embedding"))
    described = plain(config, tied=True, head_norm=True)
    layers, hidden = described["layers"], described["hidden"]
    config.expect(
        "tie_embedding", described["tied"],
        because="tie_word_embeddings says otherwise; remove one of the two",
    )  # fmt: skip
    config.expect("conv_bias", False, because="only short convolutions without biases; give false")
    for name in ("conv_dim", "conv_dim_out", "block_dim"):
        config.expect(name, hidden, because=f"only widths of hidden_size {hidden} are known")
    linear = LinearAttention(
        "short-convolution", hidden, hidden, 1, 1, config.count("conv_L_cache", default=3)
    )
    full = full_layers(config, layers, linear="conv")
    if config.value("full_attn_idxs") is not None:
        listed = listed_layers(config, "full_attn_idxs", layers)
        if full is not None:
            kinds = (named(full, layers), named(listed, layers))
            config.agree("layer_types", kinds[0], "full_attn_idxs", kinds[1])
        full = listed
    # The class takes attention in all layers where neither is given.
    return described | but_for(linear, tuple(range(layers)) if full is None else full, layers)


def _lfm2(config: ConfigFields) -> dict[str, Any]:
    config.assume(intermediate_size=config.value("block_ff_dim"))
    described = _short_convolutions(config)
    width = described["feed_forward"]
    config.expect(
        "block_ff_dim", width, because="intermediate_size says otherwise; remove one of the two"
    )
    config.expect("block_use_swiglu", True, because="only gated feed-forward parts are known")
    if not config.flag("block_auto_adjust_ff_dim", True):
        config.ignore("block_ffn_dim_multiplier", "block_multiple_of")
        return described
    config.assume(block_ffn_dim_multiplier=1.0)  # null: neither factor nor rounding
    factor = config.value("block_ffn_dim_multiplier")
    width = int(2 * width / 3)
    if factor is not None:
        if not (is_number(factor) and 1 <= factor * width <= LARGEST):
            raise config.wrong(
                "block_ffn_dim_multiplier", "give a number that leaves feed-forward parts a width"
            )
        step = config.count("block_multiple_of", default=256)
        width = -(-int(factor * width) // step) * step
    return described | {"feed_forward": width}


def _lfm2_moe(config: ConfigFields) -> dict[str, Any]:
    if config.value("layer_types") is None:
        raise config.missing("layer_types")
    experts = experts_of(
        config,
        config.count("num_experts"),
        config.count("num_experts_per_tok"),
        config.count("moe_intermediate_size"),
        first_dense=config.count("num_dense_layers", default=2, least=0),
        router_bias=config.flag("use_expert_bias", True),
    )
    described = _short_convolutions(config)
    # A file may name more dense layers than there are.
    return described | ({"experts": experts} if experts.first_dense < described["layers"] else {})


def _minimax(config: ConfigFields) -> dict[str, Any]:
    described = of_one_width(config, plain(config, kv_default=True))
    if config.alike("shared_intermediate_size", default=0, least=0):
        raise config.wrong(
            "shared_intermediate_size", "only MiniMax without shared experts is known"
        )
    layers, attention = described["layers"], described["attention"]
    heads, width = attention.heads, attention.head_width
    chunk = config.count("block_size", default=256)
    linear = LinearAttention("lightning", heads, heads, width, width, chunk=chunk)
    full, kinds = full_layers(config, layers), config.indices("attn_type_list")
    if kinds:
        config.check_length("attn_type_list", len(kinds), layers)
        for place, kind in enumerate(kinds):
            if kind not in (0, 1):
                raise config.wrong_entry(
                    "attn_type_list", place, "only 0, lightning attention, and 1 are known"
                )
        listed = tuple(layer for layer, kind in enumerate(kinds) if kind)
        if full is not None:
            config.agree(
                "layer_types", named(full, layers), "attn_type_list", named(listed, layers)
            )
        full = listed
    if full is None and config.kind != "minimax":
        raise config.missing("attn_type_list")
    full = tuple(range(0, layers, 2)) if full is None else full
    return described | but_for(linear, full, layers)


def _jamba(config: ConfigFields) -> dict[str, Any]:
    described = plain(config, kv_default=True)
    layers, hidden = described["layers"], described["hidden"]
    made = _periodic(config, "attn_layer", 8, 4, layers)
    full = full_layers(config, layers, "layers_block_type")
    if full is not None:
        kinds = "layer_types" if config.value("layer_types") else "layers_block_type"
        config.agree(kinds, named(full, layers), "attn_layer_period", named(made, layers))
    config.expect(
        "mamba_proj_bias", False, because="only mamba layers without biases of projections; "
        "give false",
    )  # fmt: skip
    rank = -(-hidden // 16)
    if config.value("mamba_dt_rank") != "auto":
        rank = config.count("mamba_dt_rank", default=rank)
    linear = LinearAttention(
        "mamba-1",
        1,
        expanded(config, hidden)[0],
        config.count("mamba_d_state", default=16),
        1,
        config.count("mamba_d_conv", default=4),
        convolution_bias=config.flag("mamba_conv_bias", True),
        step_rank=rank,
    )
    described |= but_for(linear, made if full is None else full, layers)
    sparse = _periodic(config, "expert_layer", 2, 1, layers)
    count = config.count("num_experts", "num_local_experts", default=16)
    each = config.count("num_experts_per_tok", default=2)
    if count == 1 or not sparse:
        return described
    every = config.count("expert_layer_period", default=2)
    if sparse[0] != every - 1:
        raise config.wrong(
            "expert_layer_offset",
            f"only experts in the last of each {every} layers (expert_layer_period) are known; "
            f"give {every - 1}",
        )
    return described | {
        "experts": experts_of(config, count, each, described["feed_forward"], every=every)
    }


def _periodic(
    config: ConfigFields, name: str, period: int, offset: int, layers: int
) -> tuple[int, ...]:
    """Return one of each ``_period`` layers, from ``_offset`` on, whose defaults are given."""
    every = config.count(f"{name}_period", default=period)
    first = config.count(f"{name}_offset", default=offset, least=0)
    if first >= every:
        raise config.wrong(
            f"{name}_offset" if config.value(f"{name}_offset") is not None else f"{name}_period",
            f"the offset is {first} of a period of {counted(every, 'layer')}; give an offset "
            "below the period",
        )
    return tuple(range(first, layers, every))


def _falcon_h1(config: ConfigFields) -> dict[str, Any]:
    config.assume(num_key_value_heads=8, mamba_d_ssm=1024)
    described = llama(config)
    for name in ("layers_block_type", "layer_types"):
        config.words(name, ["hybrid"])
    config.expect(
        "projectors_bias", False, because="only Falcon-H1 without it is known; give false"
    )
    whole, said = config.count("mamba_d_ssm", default=0), "mamba_d_ssm"
    if not whole:
        whole, said = expanded(config, described["hidden"])
    config.ignore("mamba_expand")
    linear = replace(
        mamba(config, whole, said),
        output_norm=config.flag("mamba_rms_norm", False),
        beside_attention=True,
    )
    return described | {"linear": linear}


MIXER_FAMILIES: Mapping[str, Callable[[ConfigFields], dict[str, Any]]] = MappingProxyType(
    {
        "lfm2": _lfm2,
        "lfm2_moe": _lfm2_moe,
        "minimax": _minimax,
        "minimax_text_01": _minimax,
        "minimax_m1": _minimax,
        "jamba": _jamba,
        "falcon_h1": _falcon_h1,
    }
)
"""Readers by ``model_type``."""
