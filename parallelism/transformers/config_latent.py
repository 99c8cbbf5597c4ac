"""Hugging Face's families of decoders with latent attention, and indexers of keys."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from parallelism.transformers.attention import Attention, Indexer, LatentAttention
from parallelism.transformers.config_experts import dense_first, with_shared
from parallelism.transformers.config_fields import ConfigFields
from parallelism.transformers.config_parts import (
    body_of,
    layers_of,
)


def _check_frequency(config: ConfigFields, layers: int) -> None:
    """Refuse experts in other layers than all after the first dense ones.

    ``moe_layer_freq`` is 1, or a list of a 0 for each dense layer and a 1 for each other one.
    """
    name, dense = "moe_layer_freq", config.count("first_k_dense_replace", default=0, least=0)
    if config.value(name) != [0] * dense + [1] * (layers - dense):
        config.expect(
            name, 1, because="only experts in every layer after the dense ones "
            "(first_k_dense_replace) are known; give 1",
        )  # fmt: skip


def latent_layers(config: ConfigFields) -> dict[str, Any]:
    """Return layers of latent attention, with the dense feed-forward part of the first ones."""
    body = body_of(config)
    config.expect("attention_bias", False, because="only latent attention without biases is known")
    _check_frequency(config, body["layers"])
    width = config.count("qk_nope_head_dim", default=128)
    rotary = config.count("qk_rope_head_dim", default=64)
    latent = LatentAttention(
        config.count("kv_lora_rank"),
        config.count("q_lora_rank", default=0),
        rotary,
        config.count("v_head_dim", default=128),
    )
    # A head's width as listed elsewhere is that of the rotary part or of both.
    config.count("head_dim", default=0)
    heads = config.count("num_attention_heads")
    if config.count("num_key_value_heads", default=heads) != heads:
        raise config.wrong(
            "num_key_value_heads", "latent attention has keys of each head, and "
            f"num_attention_heads is {heads}; give {heads}, or remove it",
        )  # fmt: skip
    return body | {
        "attention": Attention(heads, heads, width, latent=latent),
        "gated": True,
        "tied": config.flag("tie_word_embeddings", False),
    }


def _deepseek(config: ConfigFields) -> dict[str, Any]:
    experts = with_shared(config, 0, config.kind != "deepseek_v2")
    return latent_layers(config) | {"experts": experts}


def _deepseek_v32(config: ConfigFields) -> dict[str, Any]:
    config.assume(n_group=8, topk_group=4, q_lora_rank=1536)
    return _with_indexer(config, 64, [])


def _glm_moe_dsa(config: ConfigFields) -> dict[str, Any]:
    config.assume(q_lora_rank=2048, qk_nope_head_dim=192, v_head_dim=256)
    return _with_indexer(config, 32, _sharing(config, layers_of(config)))


def _with_indexer(config: ConfigFields, heads: int, shared: list[int]) -> dict[str, Any]:
    """Return layers of latent attention that meet the keys which indexers choose.

    ``heads`` is the family's own number of the indexer's; ``shared`` are layers without one.
    """
    config.assume(n_shared_experts=1, first_k_dense_replace=3, kv_lora_rank=512)
    described = dense_first(config, _deepseek(config), 3)
    if kinds := config.words("layer_types", ["indexed_attention"]):
        config.check_length("layer_types", len(kinds), described["layers"])
    indexer = Indexer(
        config.count("index_n_heads", default=heads),
        config.count("index_head_dim", default=128),
        config.count("index_topk", default=2048),
        tuple(shared),
    )
    attention = described["attention"]
    latent = replace(attention.latent, indexer=indexer)
    return described | {"attention": replace(attention, latent=latent)}


def _sharing(config: ConfigFields, layers: int) -> list[int]:
    """Return the layers that take the keys of the layer before, listed or from a step."""
    every = max(config.count("index_topk_freq", default=1, least=0), 1)
    first = config.count("index_skip_topk_offset", default=2, least=0)
    kinds = ["shared" if max(i - first + 1, 0) % every else "full" for i in range(layers)]
    types = _indexers(config, "indexer_types", layers)
    pattern = _indexers(config, "index_topk_pattern", layers)
    for name, listed in (("indexer_types", types), ("index_topk_pattern", pattern)):
        if listed:
            config.agree(name, listed, "index_topk_freq", kinds, usual=1)
    if types and pattern:
        config.agree("indexer_types", types, "index_topk_pattern", pattern)
    return [layer for layer, kind in enumerate(types or pattern or kinds) if kind == "shared"]


def _indexers(config: ConfigFields, name: str, layers: int) -> list[str]:
    """Return a list of ``full`` or ``shared`` for each layer, which may be a text of letters."""
    given, kinds = config.value(name), {"F": "full", "S": "shared"}
    if isinstance(given, str) and name == "index_topk_pattern":
        for place, letter in enumerate(given):
            if letter not in kinds:
                raise config.wrong_entry(name, place, "give F (full) or S (shared) for each layer")
        listed = [kinds[letter] for letter in given]
    else:
        listed = config.words(name, kinds.values())
    if given is not None:
        config.check_length(name, len(listed), layers)
    return listed


def _glm4_moe_lite(config: ConfigFields) -> dict[str, Any]:
    config.assume(n_shared_experts=1, first_k_dense_replace=1)
    return dense_first(config, _deepseek(config), 1)


LATENT_FAMILIES: Mapping[str, Callable[[ConfigFields], dict[str, Any]]] = MappingProxyType(
    {
        "deepseek_v2": _deepseek,
        "deepseek_v3": _deepseek,
        "deepseek_v32": _deepseek_v32,
        "kimi_k2": _deepseek,
        "glm4_moe_lite": _glm4_moe_lite,
        "glm_moe_dsa": _glm_moe_dsa,
    }
)
"""Readers by ``model_type``."""
