"""Published configurations of hybrid models, with the parameters of the classes of transformers.

They were counted with transformers 5.24.0 on torch's meta device (routers' biases that training
does not touch count as well), without modules for multi-token prediction, which its classes lack.
"""

from published_configs import Config, llama_like


def _qwen(kind: str, layers: int, hidden: int, heads: int, kv: int, values: int) -> Config:
    """Return a text model of Qwen3.5, or Qwen3-Next."""
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "head_dim": 256,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": 248320,
        "attention_bias": False, "attn_output_gate": True, "full_attention_interval": 4,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * (layers // 4),
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": values, "linear_value_head_dim": 128, "hidden_act": "silu",
        "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144, "mlp_only_layers": [],
        "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
        "partial_rotary_factor": 0.25, "tie_word_embeddings": False,
    }  # fmt: skip


def _qwen_experts(count: int, each: int, width: int) -> Config:
    return {
        "num_experts": count, "num_experts_per_tok": each, "moe_intermediate_size": width,
        "shared_expert_intermediate_size": width, "norm_topk_prob": True,
    }  # fmt: skip


def _nemotron(pattern: str, hidden: int, heads: int, kv: int, width: int, **more: int) -> Config:
    return {
        "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"],
        "hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern),
        "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv,
        "intermediate_size": width, "vocab_size": 131072, "attention_bias": False, "expand": 2,
        "mamba_head_dim": 64, "mamba_proj_bias": False, "mlp_bias": False, "use_bias": False,
        "mlp_hidden_act": "relu2", "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True,
        "chunk_size": 128, "sliding_window": None, "tie_word_embeddings": False,
        "max_position_embeddings": 8192,
    } | more  # fmt: skip


def _granite(layers: int, hidden: int, attention: tuple[int, ...], **more: int) -> Config:
    return {
        "model_type": "granitemoehybrid", "num_hidden_layers": layers, "hidden_size": hidden,
        "layer_types": ["attention" if i in attention else "mamba" for i in range(layers)],
        "vocab_size": 100352, "attention_bias": False, "tie_word_embeddings": True,
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128,
        "mamba_expand": 2, "mamba_n_groups": 1, "mamba_proj_bias": False, "mamba_chunk_size": 256,
        "position_embedding_type": "nope", "max_position_embeddings": 131072,
    } | more  # fmt: skip


QWEN3_NEXT = (
    _qwen("qwen3_next", 48, 2048, 16, 2, 32)
    | {"vocab_size": 151936, "intermediate_size": 5120, "decoder_sparse_step": 1}
    | _qwen_experts(512, 10, 512)
)
QWEN35_27B = _qwen("qwen3_5_text", 64, 5120, 24, 4, 48) | {"intermediate_size": 17408}
QWEN35_35B = _qwen("qwen3_5_moe_text", 40, 2048, 16, 2, 32) | _qwen_experts(256, 8, 512)
QWEN35_397B = _qwen("qwen3_5_moe_text", 60, 4096, 32, 2, 64) | _qwen_experts(512, 10, 1024)
KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
KIMI = {
    "model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"], "hidden_size": 2304,
    "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72,
    "intermediate_size": 9216, "vocab_size": 163840, "first_k_dense_replace": 1,
    "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "mla_use_nope": True, "moe_intermediate_size": 1024, "moe_layer_freq": 1,
    "moe_renormalize": True, "num_experts": 256, "num_experts_per_token": 8,
    "num_expert_group": 1, "topk_group": 1, "num_shared_experts": 1, "use_grouped_topk": True,
    "num_nextn_predict_layers": 0, "tie_word_embeddings": False, "model_max_length": 1048576,
    "linear_attn_config": {
        "full_attn_layers": KIMI_FULL, "head_dim": 128, "num_heads": 32,
        "kda_layers": [layer for layer in range(1, 28) if layer not in KIMI_FULL],
        "short_conv_kernel_size": 4,
    },
}  # fmt: skip
GRANITE_SMALL = _granite(
    40, 4096, (5, 15, 25, 35), num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=768, shared_intermediate_size=1536, num_local_experts=72,
    num_experts_per_tok=10, mamba_n_heads=128,
)  # fmt: skip
GRANITE_TINY = _granite(
    40, 1536, (5, 15, 25, 35), num_attention_heads=12, num_key_value_heads=4,
    intermediate_size=512, shared_intermediate_size=1024, num_local_experts=64,
    num_experts_per_tok=6, mamba_n_heads=48,
)  # fmt: skip
BAMBA = llama_like(
    "bamba", 32, 4096, 32, 8, 14336, 128256, attn_layer_indices=[9, 18, 27],
    mamba_chunk_size=256, mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=64,
    mamba_d_state=128, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=128,
    mamba_proj_bias=False, mlp_bias=False, attention_bias=False, tie_word_embeddings=False,
)  # fmt: skip
NEMOTRON_8B = _nemotron(
    "M-M-M-M" + "*-M-M-M-M-M" * 4 + "-", 4096, 32, 8, 21504, ssm_state_size=128,
    mamba_num_heads=128, attention_head_dim=128,
)  # fmt: skip
NEMOTRON_56B = _nemotron(
    "M-M-M-M" + "*-M-M-M-M-M" * 10 + "-", 8192, 64, 8, 32768, ssm_state_size=256,
    mamba_num_heads=256, head_dim=128,
)  # fmt: skip
NEMOTRON_9B = _nemotron(
    "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", 4480, 40, 8, 15680,
    ssm_state_size=128, mamba_num_heads=128, head_dim=128,
) | {"mamba_head_dim": 80}  # fmt: skip
NEMOTRON_NANO = _nemotron(
    "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", 2688, 32, 2, 1856,
    ssm_state_size=128, mamba_num_heads=64, head_dim=128, n_routed_experts=128,
    num_experts_per_tok=6, n_shared_experts=1, moe_intermediate_size=1856,
    moe_shared_expert_intermediate_size=3712, n_group=1, topk_group=1,
)  # fmt: skip
NEMOTRON_SUPER = _nemotron(
    "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    4096, 32, 2, 2688, ssm_state_size=128, mamba_num_heads=128, head_dim=128,
    n_routed_experts=512, num_experts_per_tok=22, n_shared_experts=1, moe_intermediate_size=2688,
    moe_latent_size=1024, moe_shared_expert_intermediate_size=5376, n_group=1, topk_group=1,
    num_nextn_predict_layers=1,
) | {"mtp_hybrid_override_pattern": "*E"}  # fmt: skip

LFM2 = llama_like(
    "lfm2", 16, 2048, 32, 8, 12288, 65536, block_auto_adjust_ff_dim=True, block_dim=2048,
    block_ff_dim=12288, block_ffn_dim_multiplier=1.0, block_multiple_of=256, block_norm_eps=1e-5,
    block_use_swiglu=True, conv_L_cache=3, conv_bias=False, conv_dim=2048, conv_dim_out=2048,
    full_attn_idxs=[2, 5, 8, 10, 12, 14], tie_embedding=True,
)  # fmt: skip
LFM2_MOE = llama_like(
    "lfm2_moe", 24, 2048, 32, 8, 7168, 65536, conv_L_cache=3, conv_bias=False,
    moe_intermediate_size=1792, norm_topk_prob=True, num_dense_layers=2, num_experts=32,
    num_experts_per_tok=4, routed_scaling_factor=1.0, use_expert_bias=True,
    layer_types=["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv" for i in range(24)],
)  # fmt: skip
# Published with a class of its own; that of the library reads the list as `layer_types`.
MINIMAX_M1 = llama_like(
    "minimax_m1", 80, 6144, 64, 8, 9216, 200064, attn_type_list=([0] * 7 + [1]) * 10,
    head_dim=128, num_experts_per_tok=2, num_local_experts=32, postnorm=True, rotary_dim=64,
    shared_intermediate_size=0, shared_moe_mode="sigmoid", sliding_window=None,
    layernorm_linear_attention_alpha=3.5565588200778455, tie_word_embeddings=False,
)  # fmt: skip
MINIMAX_TEXT = MINIMAX_M1 | {"model_type": "minimax_text_01"}
MINIMAX = {name: value for name, value in MINIMAX_M1.items() if name != "attn_type_list"} | {
    "model_type": "minimax", "block_size": 256,
    "layer_types": (["linear_attention"] * 7 + ["full_attention"]) * 10,
}  # fmt: skip
JAMBA = llama_like(
    "jamba", 32, 4096, 32, 8, 14336, 65536, attn_layer_offset=4, attn_layer_period=8,
    expert_layer_offset=1, expert_layer_period=2, mamba_conv_bias=True, mamba_d_conv=4,
    mamba_d_state=16, mamba_dt_rank=256, mamba_expand=2, mamba_proj_bias=False, num_experts=16,
    num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=False, use_mamba_kernels=True,
)  # fmt: skip
JAMBA_LARGE = JAMBA | {
    "num_hidden_layers": 72, "hidden_size": 8192, "num_attention_heads": 64,
    "intermediate_size": 24576, "mamba_dt_rank": 512,
}  # fmt: skip
FALCON_H1 = llama_like(
    "falcon_h1", 44, 3072, 12, 2, 12288, 130048, attention_bias=False, attn_layer_indices=None,
    head_dim=128, mamba_chunk_size=128, mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=128,
    mamba_d_ssm=3072, mamba_d_state=256, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=24,
    mamba_norm_before_gate=False, mamba_proj_bias=False, mamba_rms_norm=False, mamba_use_mlp=True,
    mlp_bias=False, projectors_bias=False, tie_word_embeddings=False,
)  # fmt: skip

# Parameters of the main model, and the billions that a token meets where there are experts.
PUBLISHED_HYBRIDS: dict[str, tuple[Config, int, float | None]] = {
    "Qwen3-Next-80B-A3B": (QWEN3_NEXT, 79_674_391_296, 3.875),
    "Qwen3.5-27B": (QWEN35_27B, 26_895_998_464, None),
    "Qwen3.5-35B-A3B": (QWEN35_35B, 34_660_610_688, 3.455),
    "Qwen3.5-397B-A17B": (QWEN35_397B, 396_346_350_336, 17.348),
    "Kimi-Linear-48B-A3B": (KIMI, 49_122_681_728, 3.484),
    "Granite-4.0-H-Small": (GRANITE_SMALL, 32_207_337_984, 8.803),
    "Granite-4.0-H-Tiny": (GRANITE_TINY, 6_939_037_248, 1.465),
    "Bamba-9B": (BAMBA, 9_780_235_392, None),
    "Nemotron-H-8B": (NEMOTRON_8B, 8_100_852_736, None),
    "Nemotron-H-56B": (NEMOTRON_56B, 56_324_350_464, None),
    "Nemotron-Nano-9B-v2": (NEMOTRON_9B, 8_888_227_328, None),
    "Nemotron-3-Nano-30B-A3B": (NEMOTRON_NANO, 31_577_940_288, 3.580),
    "Nemotron-3-Super-120B-A12B": (NEMOTRON_SUPER, 120_668_707_840, 12.770),
    "LFM2-1.2B": (LFM2, 1_170_340_608, None),
    "LFM2-8B-A1B": (LFM2_MOE, 8_339_930_560, 1.558),
    # 45.9 without embedding and head, as is printed.
    "MiniMax-M1": (MINIMAX_M1, 456_089_655_296, 48.403),
    "MiniMax-Text-01": (MINIMAX_TEXT, 456_089_655_296, 48.403),
    "MiniMax-Text-01-hf": (MINIMAX, 456_089_655_296, 48.403),
    "Jamba-v0.1": (JAMBA, 51_570_323_328, 12.110),
    "Jamba-1.5-Large": (JAMBA_LARGE, 398_555_145_696, 94.149),
    "Falcon-H1-7B": (FALCON_H1, 7_585_513_568, None),
}
