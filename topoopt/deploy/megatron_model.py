"""Megatron-LM's options that say what a model is."""

import json

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Indexer
from topoopt.deploy.megatron_hybrid import blocks_of, has_pattern


def model_options(model: Transformer, sequence: int, notes: list[str]) -> list[str]:
    """Return the options that say what the model is; what they cannot say is added to the notes.

    Parameters
    ----------
    model : Transformer
    sequence : int
        Tokens of a sample of the job.
    notes : list of str
    """
    attention = model.attention
    blocks = blocks_of(model) if has_pattern(model) else [(i, "") for i in range(model.layers)]
    mamba = has_pattern(model) and model.linear is not None and model.linear.kind == "mamba-2"
    rotary = "none" if mamba else "rope"
    newer = []
    lines = [
        f"--num-layers {len(blocks)} --hidden-size {model.hidden}",
        f"--num-attention-heads {attention.heads}",
        f"--ffn-hidden-size {model.feed_forward}",
        f"--max-position-embeddings {max(model.positions, model.sequence, sequence)}",
        f"--normalization {'RMSNorm' if model.norm == 'rmsnorm' else 'LayerNorm'}",
        f"--position-embedding-type {'learned_absolute' if model.positions else rotary}",
    ]
    if attention.latent is not None:
        latent = attention.latent
        lines.append(f"--multi-latent-attention --kv-lora-rank {latent.kv_rank}")
        if latent.query_rank:
            lines.append(f"--q-lora-rank {latent.query_rank}")
        lines.append(f"--qk-head-dim {attention.head_width} --v-head-dim {latent.value_width}")
        lines.append(f"--qk-pos-emb-head-dim {latent.rope_width}")
        lines += _indexer(latent.indexer, notes)
    else:
        lines.append(f"--kv-channels {attention.head_width}")
        if attention.kv_heads < attention.heads:
            lines.append(f"--group-query-attention --num-query-groups {attention.kv_heads}")
    if attention.head_norm or attention.latent is not None:
        lines.append("--qk-layernorm")  # of latent attention the norms of its latent vectors
    if attention.output_gate:
        newer.append("--attention-output-gate")
    if attention.wide_norm:
        notes.append("Megatron-LM has no norms of queries and keys with weights for every head")
    lines += _window(model, [layer for layer, _ in blocks], notes)
    if model.gated:
        lines.append("--swiglu")
    elif mamba:
        lines.append("--squared-relu")
    if not model.bias:
        lines.append("--disable-bias-linear")
        if attention.query_bias:
            lines.append("--add-qkv-bias")
    if not model.tied:
        lines.append("--untie-embeddings-and-output-weights")
    if model.dense_bytes == 2:
        lines.append("--bf16")
    if model.vocabulary:
        lines.append(f"--tokenizer-type NullTokenizer --vocab-size {model.vocabulary - 1}")
        notes.append(
            "megatron.args names a tokenizer of numbers, which serves --mock-data; name your own, "
            "and your data, after it"
        )
    else:
        notes.append("Megatron-LM's pretrain_gpt.py trains no models without a vocabulary")
    if model.mtp_layers:
        lines.append(f"--mtp-num-layers {model.mtp_layers}")
        if model.mtp_modules < model.mtp_layers:
            lines.append("--mtp-use-repeated-layer")
            notes.append("Megatron-LM knows --mtp-use-repeated-layer from core_r0.17 on")
        if model.positions:
            notes.append("Megatron-LM refuses --mtp-num-layers with learned positions")
        alike = has_pattern(model) or not model.has_experts(model.layers - 1)
        if not alike and not model.has_experts(model.layers):
            notes.append(
                "Megatron-LM's modules for multi-token prediction have experts as the last layer "
                "has: those of the plan are dense"
            )
    if model.parallel:
        notes.append("Megatron-LM has no layers whose attention and feed-forward part are parallel")
    if model.layer_norms == 4:
        notes.append("Megatron-LM has no layers with norms before and after each part")
    if model.experts is not None:
        experts = model.experts
        pattern = [int(model.has_experts(i) and block in ("", "E")) for i, block in blocks]
        lines.append(f"--num-experts {experts.count} --moe-router-topk {experts.per_token}")
        if experts.per_token == 1:
            lines.append("--moe-router-pre-softmax")  # asked for with one expert a token
        lines.append(f"--moe-ffn-hidden-size {experts.width}")
        lines.append(f"--moe-layer-freq {json.dumps(pattern, separators=(',', ':'))}")
        if experts.groups > 1:
            lines.append(f"--moe-router-num-groups {experts.groups}")
            lines.append(f"--moe-router-group-topk {experts.groups_per_token}")
        if experts.shared:
            width = experts.shared * experts.shared_width
            lines.append(f"--moe-shared-expert-intermediate-size {width}")
        if experts.latent_width:
            newer.append(f"--moe-latent-size {experts.latent_width}")
        if experts.shared_gate:
            newer.append("--moe-shared-expert-gate")
    if newer:
        names = ", ".join(option.split()[0] for option in newer)
        notes.append(f"Megatron-LM knows {names} from core_r0.16 on")
    return lines + newer


def _indexer(indexer: Indexer | None, notes: list[str]) -> list[str]:
    """Return the options of keys that an indexer chooses."""
    if indexer is None:
        return []
    notes.append("Megatron-LM knows --experimental-attention-variant dsa from core_r0.16 on")
    if indexer.shared:
        notes.append(
            "layers of the plan share chosen keys: Megatron-LM knows --dsa-indexer-topk-freq and "
            "--dsa-indexer-skip-topk-offset from core_r0.19 on; set them"
        )
    # The weight of its loss is that of Megatron Bridge's GLM-5.
    return [
        "--experimental-attention-variant dsa --dsa-indexer-use-sparse-loss",
        f"--dsa-indexer-n-heads {indexer.heads} --dsa-indexer-head-dim {indexer.width}",
        f"--dsa-indexer-topk {indexer.keys} --dsa-indexer-loss-coeff 0.001",
    ]


def _window(model: Transformer, layers: list[int], notes: list[str]) -> list[str]:
    """Return the options of sliding windows and of learned scores beside those of keys."""
    lines, window = [], model.window
    if window is not None and window.chunked:
        notes.append("Megatron-LM has no attention within chunks: its layers meet all keys")
    elif window is not None:
        pattern = [int(model.slides(layer)) for layer in layers]
        # Keys before a token's own.
        lines.append(f"--window-size {window.width - 1},0")
        lines.append(f"--window-attn-skip-freq {json.dumps(pattern, separators=(',', ':'))}")
    if model.attention.sinks:
        lines.append("--softmax-type learnable")
    if lines:
        notes.append("Megatron-LM knows --window-size and --softmax-type from core_r0.15 on")
    return lines
