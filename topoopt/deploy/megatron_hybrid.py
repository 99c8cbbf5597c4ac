"""Megatron-LM's options for layers of linear attention, of Mamba-2, and of one part.

Gated DeltaNet beside attention is an attention variant of its GPT models. Mamba-2 and layers of
one part are in its hybrid models only, made of blocks of one part, a letter each; a layer of two
parts is two blocks there, with the same weights and results.
"""

import json

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import Layout
from parallelism.transformers.linear_attention import LinearAttention
from parallelism.transformers.stages import parts_of

_LETTERS = {"mamba-2": "M", "gated-deltanet": "G"}
_CHUNKS = {"mamba-2": 128, "gated-deltanet": 64}
"""Tokens that the kernels of Megatron-LM take at once."""
_SPEC = "megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec"
_FP8_MULTIPLE = 16


def not_in_megatron(linear: LinearAttention | None) -> str:
    """Return what of linear attention Megatron-LM does not have; empty if it has all."""
    if linear is None:
        return ""
    if linear.kind not in _LETTERS:
        return linear.title
    return f"attention beside {linear.title} in a layer" if linear.beside_attention else ""


def has_pattern(model: Transformer) -> bool:
    """Whether Megatron-LM has a model as a pattern of blocks only, not as one of its GPT models."""
    one_part = bool(model.without_feed_forward or model.without_attention)
    return one_part or (model.linear is not None and model.linear.kind == "mamba-2")


def blocks_of(model: Transformer) -> tuple[tuple[int, str], ...]:
    """Return the layer and the letter of each of Megatron-LM's blocks of a pattern."""
    return tuple((layer, one) for layer in range(model.layers) for one in _letters(model, layer))


def blocks_a_layer(model: Transformer) -> int:
    """Return how many blocks all layers of a pattern have; 1 where they differ."""
    return min(model.parts(layer) for layer in range(model.layers))


def hybrid_options(
    model: Transformer, layout: Layout, fp8: bool, notes: list[str]
) -> list[str]:  # fmt: skip
    """Return the options, one a line; what Megatron-LM has not is added to the notes.

    Parameters
    ----------
    model : Transformer
    layout : Layout
        Its parts, of as many layers as Megatron-LM is to give them, are those of the pattern.
    fp8 : bool
        Products of matrices are in FP8.
    notes : list of str
    """
    linear = model.linear
    lines = []
    if has_pattern(model):
        lines += [f"--hybrid-layer-pattern={_pattern(model, layout)}", f"--spec {_SPEC}"]
        notes.append(
            "Megatron-LM has this model from core_r0.18 on, by --hybrid-layer-pattern; start "
            "pretrain_hybrid.py rather than pretrain_gpt.py"
        )
        if layout.zero > 1 and linear is not None and linear.kind == "mamba-2":
            notes.append(
                "Megatron-LM's FSDP gathers weights of Mamba-2 layers one layer at a time from "
                "core_r0.19 on; before, more of them are held at once than the plan counts"
            )
        if model.attention.latent is not None:
            notes.append("Megatron-LM has latent attention in patterns from core_r0.19 on")
        kinds = {model.parts(layer) for layer in range(model.layers)}
        if layout.recompute == "full" and len(kinds) > 1:
            notes.append(
                "Megatron-LM's layers of two parts are two blocks, and each keeps its input for "
                "full recomputation; the plan keeps one a layer"
            )
    if linear is None:
        return lines
    if linear.kind == "mamba-2":
        lines += _mamba(linear, notes)
    else:
        lines += _deltanet(model, linear, layout.context, notes)
    if linear.chunk != _CHUNKS[linear.kind]:
        notes.append(
            f"Megatron-LM's kernels take {_CHUNKS[linear.kind]} tokens of linear layers at once; "
            f"the plan counts {linear.chunk}"
        )
    if fp8 and linear.projected % _FP8_MULTIPLE:
        notes.append(
            f"Megatron-LM refuses FP8 where linear layers project to {linear.projected} elements: "
            f"it wants a multiple of {_FP8_MULTIPLE}"
        )
    return lines


def _letters(model: Transformer, layer: int) -> str:
    """Return the blocks of a layer; that of modules for multi-token prediction is the last."""
    mixer = ""
    if model.linear is not None and model.has_linear(layer):
        mixer = _LETTERS[model.linear.kind]
    elif model.has_attention(layer):
        mixer = "*" if model.attention.latent is None else "+"
    if not model.has_feed_forward(layer):
        return mixer
    return mixer + ("E" if model.has_experts(layer) else "-")


def _pattern(model: Transformer, layout: Layout) -> str:
    """Return all blocks, with a bar where a part of the pipeline ends."""
    cut = "|".join(
        "".join(_letters(model, layer) for layer in range(part.first, part.first + part.layers))
        for part in parts_of(model, layout)
    )
    return "/".join([cut, *[_letters(model, model.layers)] * model.mtp_layers])


def _mamba(linear: LinearAttention, notes: list[str]) -> list[str]:
    notes.append(
        "Megatron-LM's arguments have no rotary positions, as Nemotron-H and Granite 4.0 H, and "
        "squared ReLU where feed-forward parts have no gate; the plan says neither, which takes no "
        "time or memory: change it for other models"
    )
    if linear.convolution != 4 or not linear.convolution_bias:
        notes.append("Megatron-LM's convolution of Mamba-2 reaches 4 tokens and has a bias")
    return [
        f"--mamba-state-dim {linear.key_width} --mamba-num-groups {linear.key_heads}",
        f"--mamba-head-dim {linear.value_width} --mamba-num-heads {linear.heads}",
    ]


def _deltanet(
    model: Transformer, linear: LinearAttention, context: int, notes: list[str]
) -> list[str]:
    if linear.convolution_bias:
        notes.append("Megatron-LM's convolution of Gated DeltaNet has no bias")
    lines = []
    if not has_pattern(model):
        kinds = [int(model.has_linear(layer)) for layer in range(model.layers)]
        lines.append("--experimental-attention-variant gated_delta_net")
        lines.append(f"--linear-attention-freq {json.dumps(kinds, separators=(',', ':'))}")
        notes.append("Megatron-LM knows --experimental-attention-variant from core_r0.16 on")
        if context > 1:
            notes.append("Megatron-LM has context ranks beside Gated DeltaNet from core_r0.18 on")
        if model.mtp_layers and kinds[-1]:
            notes.append(
                "Megatron-LM's modules for multi-token prediction have linear attention as the "
                "last layer has: those of the plan meet all keys"
            )
    return [
        *lines,
        f"--linear-conv-kernel-dim {linear.convolution}",
        f"--linear-key-head-dim {linear.key_width} --linear-num-key-heads {linear.key_heads}",
        f"--linear-value-head-dim {linear.value_width} --linear-num-value-heads {linear.heads}",
    ]
