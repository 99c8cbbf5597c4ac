"""Configurations as published, with the parameters of the models.

They are those of the classes of transformers 5.24.0, built on torch's meta device (routers' biases
that training does not touch count as well). It has no class of Ling 2.0, MiMo and InternLM2, whose
parameters are what the published billions round.
"""

from typing import Any

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.huggingface import transformer_from_config

Config = dict[str, Any]


def llama_like(
    kind: str, layers: int, hidden: int, heads: int, kv: int, width: int, words: int, **more: Any
) -> Config:
    """Return a configuration in the spelling of most families."""
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": width,
        "vocab_size": words, "hidden_act": "silu", "rope_theta": 1e6, "torch_dtype": "bfloat16",
        "max_position_embeddings": 8192,
    } | more  # fmt: skip


def sparse(
    kind: str, layers: int, hidden: int, heads: int, width: int, words: int, **more: Any
) -> Config:
    """Return a configuration of latent attention to keys that an indexer chooses."""
    return llama_like(
        kind, layers, hidden, heads, heads, width, words, attention_bias=False, ep_size=1,
        first_k_dense_replace=3, index_head_dim=128, index_topk=2048, kv_lora_rank=512,
        moe_intermediate_size=2048, moe_layer_freq=1, n_routed_experts=256, n_shared_experts=1,
        num_experts_per_tok=8, num_nextn_predict_layers=1, qk_rope_head_dim=64,
        tie_word_embeddings=False, **more,
    )  # fmt: skip


def parse(data: Config, **arguments: Any) -> Transformer:
    """Return the transformer of a configuration."""
    return transformer_from_config(data, "configuration 'x'", name="x", **arguments)


CODER = llama_like(
    "qwen3_moe", 62, 6144, 96, 8, 8192, 151936, head_dim=128, num_experts=160,
    num_experts_per_tok=8, moe_intermediate_size=2560, decoder_sparse_step=1, mlp_only_layers=[],
    shared_expert_intermediate_size=0, qkv_bias=False, use_qk_norm=True, attention_bias=False,
)  # fmt: skip
QWEN3_MOE = llama_like(
    "qwen3_vl_moe_text", 94, 4096, 64, 4, 12288, 151936, head_dim=128, num_experts=128,
    num_experts_per_tok=8, moe_intermediate_size=1536, decoder_sparse_step=1,
)  # fmt: skip
QWEN2 = llama_like("qwen2_5_vl_text", 28, 3584, 28, 4, 18944, 152064, tie_word_embeddings=False)
GEMMA3 = {"model_type": "gemma3_text", "sliding_window": 1024}
HUNYUAN = {
    "head_dim": 128, "attention_head_dim": 128, "use_cla": False, "cla_share_factor": 2,
    "mlp_bias": False, "use_qk_norm": True, "tie_word_embeddings": True,
}  # fmt: skip
LING = llama_like(
    "bailing_moe_v2", 20, 2048, 16, 4, 5120, 157184, head_dim=128, first_k_dense_replace=1,
    moe_intermediate_size=512, moe_shared_expert_intermediate_size=512, n_group=8, topk_group=4,
    num_experts=256, num_experts_per_tok=8, num_shared_experts=1, use_qk_norm=True, use_bias=False,
    use_qkv_bias=False, moe_router_enable_expert_bias=True, tie_word_embeddings=False,
)  # fmt: skip
LING_FLASH = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "intermediate_size": 9216, "moe_intermediate_size": 1024,
    "moe_shared_expert_intermediate_size": 1024,
}  # fmt: skip
LING_1T = {
    "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
    "num_key_value_heads": 8, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "moe_shared_expert_intermediate_size": 2048, "first_k_dense_replace": 4,
}  # fmt: skip
ERNIE = {
    "moe_layer_interval": 1, "moe_num_experts": 64, "num_nextn_predict_layers": 1,
    "use_bias": False,
}  # fmt: skip
DBRX = {
    "model_type": "dbrx", "architectures": ["DbrxForCausalLM"], "d_model": 6144, "n_heads": 48,
    "n_layers": 40, "max_seq_len": 32768, "vocab_size": 100352, "tie_word_embeddings": False,
    "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}  # fmt: skip
SOLAR = {
    "model_type": "solar_open", "vocab_size": 196608, "hidden_size": 4096, "num_hidden_layers": 48,
    "num_attention_heads": 64, "num_key_value_heads": 8, "moe_intermediate_size": 1280,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128, "head_dim": 128,
}  # fmt: skip
GRANITE = llama_like(
    "granitemoehybrid", 40, 2560, 40, 8, 8192, 100352, attention_bias=False, num_local_experts=0,
    num_experts_per_tok=0, shared_intermediate_size=8192, layer_types=["attention"] * 40,
    mamba_d_state=256, tie_word_embeddings=True,
)  # fmt: skip

# Parameters of the main model, and the billions that a token meets where there are experts.
PUBLISHED: dict[str, tuple[Config, int, float | None]] = {
    "Qwen3-Coder-480B": (CODER, 480_154_875_392, 35.5),
    "Qwen3-VL-235B": (QWEN3_MOE, 235_093_634_560, 22.2),
    "Qwen3-VL-8B": (
        llama_like("qwen3_vl_text", 36, 4096, 32, 8, 12288, 151936, head_dim=128), 8_190_735_360,
        None,
    ),
    "Qwen2.5-VL-7B": (QWEN2, 7_615_616_512, None),
    "Qwen2.5-VL-7B, flat": (QWEN2 | {"model_type": "qwen2_5_vl"}, 7_615_616_512, None),
    # What the files of Gemma 3 hold of sizes, all else being as in the class.
    "Gemma-3-4B": (
        GEMMA3 | {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34},
        3_880_263_168, None,
    ),
    "Gemma-3-12B": (
        GEMMA3 | {"hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48,
                  "num_attention_heads": 16, "num_key_value_heads": 8},
        11_766_034_176, None,
    ),
    "Gemma-3-27B": (
        GEMMA3 | {"hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
                  "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128},
        27_009_346_304, None,
    ),
    "Hunyuan-7B": (
        llama_like("hunyuan_v1_dense", 32, 4096, 32, 8, 14336, 128167, **HUNYUAN), 7_504_568_320,
        None,
    ),
    "Hunyuan-A13B": (
        llama_like("hunyuan_v1_moe", 32, 4096, 32, 8, 3072, 128167, num_experts=64,
                   moe_topk=[8] * 32, moe_intermediate_size=[3072] * 32,
                   num_shared_expert=[1] * 32, **HUNYUAN),
        80_393_183_232, 12.7,
    ),
    "Solar-Open-100B": (SOLAR, 102_651_799_552, 12.1),
    "GLM-4.7-Flash": (
        llama_like("glm4_moe_lite", 47, 2048, 20, 20, 10240, 154880, kv_lora_rank=512,
                   q_lora_rank=768, qk_nope_head_dim=192, qk_rope_head_dim=64, v_head_dim=256,
                   moe_intermediate_size=1536, n_routed_experts=64, n_shared_experts=1,
                   num_experts_per_tok=4, num_nextn_predict_layers=1,
                   mlp_layer_types=["dense"] + ["sparse"] * 46),
        29_943_393_920, 3.9,
    ),
    "Ling-mini-2.0": (LING, 16_255_643_392, 1.43),
    "Ling-flash-2.0": (LING | LING_FLASH, 102_889_705_216, 6.15),
    "Ling-1T": (LING | LING_1T, 999_705_328_640, 51.1),
    "MiMo-7B": (
        llama_like("mimo", 36, 4096, 32, 8, 11008, 151680, head_dim=128, attention_bias=True,
                   num_nextn_predict_layers=1, use_sliding_window=False, sliding_window=32768),
        7_622_619_136, None,
    ),
    "InternLM2-20B": (
        llama_like("internlm2", 48, 6144, 48, 8, 16384, 92544, bias=False), 19_861_149_696, None,
    ),
    "DBRX": (DBRX, 131_596_523_520, 36.5),
    # The class has 32,064 more, the bias of the vocabulary projection.
    "Phi-3.5-MoE": (
        llama_like("phimoe", 32, 4096, 32, 8, 6400, 32064, attention_bias=True, lm_head_bias=True,
                   num_local_experts=16, num_experts_per_tok=2, sliding_window=131072),
        41_873_153_344 - 32_064, 6.6,
    ),
    "Granite-4.0-micro": (GRANITE, 3_402_836_480, None),
    "StableLM-2-12B": (
        llama_like("stablelm", 40, 5120, 32, 8, 13824, 100352, qk_layernorm=True,
                   use_parallel_residual=True, use_qkv_bias=False),
        12_143_185_920, None,
    ),
    # The class has 64 more, two of each layer's nonlinearity.
    "Apertus-8B": (
        llama_like("apertus", 32, 4096, 32, 8, 21504, 131072, qk_norm=True, post_norm=False,
                   attention_bias=False, mlp_bias=False)
        | {"hidden_act": "xielu"},
        8_053_338_176 - 64, None,
    ),
    "K-EXAONE-236B": (
        llama_like("exaone_moe", 48, 6144, 64, 8, 18432, 153600, head_dim=128,
                   mlp_layer_types=["dense"] + ["sparse"] * 47, sliding_window=128,
                   sliding_window_pattern="LLLG", moe_intermediate_size=2048, num_experts=128,
                   num_experts_per_tok=8, num_shared_experts=1, num_nextn_predict_layers=1),
        236_571_156_352, 23.7,
    ),
    "ERNIE-4.5-21B": (
        llama_like("ernie4_5_moe", 28, 2560, 20, 4, 12288, 103424, moe_intermediate_size=1536,
                   moe_k=6, moe_layer_start_index=1, moe_layer_end_index=27,
                   moe_num_shared_experts=2, tie_word_embeddings=True, **ERNIE),
        21_825_437_888, 3.4,
    ),
    "ERNIE-4.5-300B": (
        llama_like("ernie4_5_moe", 54, 8192, 64, 8, 28672, 103424, moe_intermediate_size=3584,
                   moe_k=8, moe_layer_start_index=3, moe_layer_end_index=53,
                   moe_num_shared_experts=0, tie_word_embeddings=False, **ERNIE),
        299_484_163_264, 47.9,
    ),
    "MiniMax-M2": (
        llama_like("minimax_m2", 62, 3072, 48, 8, 1536, 200064, head_dim=128,
                   attn_type_list=[1] * 62, num_local_experts=256, num_experts_per_tok=8,
                   use_mtp=True, num_mtp_modules=3, mtp_transformer_layers=1,
                   shared_intermediate_size=0, use_qk_norm=True),
        228_689_764_864, 11.0,
    ),
    "DeepSeek-V3.2": (
        sparse("deepseek_v32", 61, 7168, 128, 18432, 129280, q_lora_rank=1536, index_n_heads=64,
               qk_nope_head_dim=128, v_head_dim=128, n_group=8, topk_group=4),
        671_877_944_064, 38.4,
    ),
    "GLM-5": (
        sparse("glm_moe_dsa", 78, 6144, 64, 12288, 154880, q_lora_rank=2048, index_n_heads=32,
               qk_nope_head_dim=192, v_head_dim=256, n_group=1, topk_group=1, qk_head_dim=256),
        743_911_218_432, 41.8,
    ),
}  # fmt: skip
# Modules for multi-token prediction, and billions of parameters of the model with them.
WITH_MODULES = {
    "GLM-4.7-Flash": (1, 30.587), "MiMo-7B": (1, 7.833), "K-EXAONE-236B": (1, 237.10),
    "ERNIE-4.5-21B": (1, 21.95), "ERNIE-4.5-300B": (1, 300.47), "MiniMax-M2": (3, 239.75),
    # A layer like the last one, its indexer included, three norms, and the joining projection.
    "DeepSeek-V3.2": (1, 683.502), "GLM-5": (1, 753.864),
}  # fmt: skip
