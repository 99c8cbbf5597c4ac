"""Small configurations of families against the classes that Hugging Face loads them with.

Parameters and kinds of layers were counted with transformers 5.24.0, each model built from its
configuration on torch's meta device; a router's bias that training does not touch counts as well.
"""

from typing import Any

SIZES = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
    "intermediate_size", "vocab_size",
)  # fmt: skip
KINDS = {"f": "full_attention", "s": "sliding_attention"}

# Family and its sizes; other fields, kinds of layers by a letter each; parameters, and the layers
# of the model (s: with a sliding window).
# fmt: off
COUNTED: list[tuple[str, dict[str, Any], int, str]] = [
    ("arcee 6 96 6 2 24 333", {"tie_word_embeddings": True, "head_dim": 16, "attention_bias":
     True}, 209_856, "ffffff"),
    ("arcee 7 64 4 4 24 333", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias":
     False}, 160_256, "fffffff"),
    ("cohere 6 48 2 2 40 100", {"tie_word_embeddings": False, "attention_bias": True}, 100_944,
     "ffffff"),
    ("cohere 7 24 1 1 24 333", {"tie_word_embeddings": False, "attention_bias": False}, 44_400,
     "fffffff"),
    ("cohere2 6 96 6 2 40 333", {"tie_word_embeddings": True, "attention_bias": True,
     "sliding_window": 16, "layer_types": "fffssf"}, 250_752, "fffssf"),
    ("cohere2 6 16 1 1 24 333", {"tie_word_embeddings": False, "attention_bias": True,
     "layer_types": "ssfffs"}, 24_208, "ssfffs"),
    ("ernie4_5 9 32 2 2 40 100", {"tie_word_embeddings": False, "head_dim": 8, "use_bias": True},
     61_728, "fffffffff"),
    ("ernie4_5 6 48 6 2 24 333", {"tie_word_embeddings": True, "head_dim": 24, "use_bias": False},
     147_936, "ffffff"),
    ("exaone4 4 16 2 1 64 333", {"tie_word_embeddings": True, "head_dim": 24}, 27_168, "sssf"),
    ("exaone4 9 192 8 4 24 333", {"tie_word_embeddings": False, "sliding_window": 64}, 1_251_696,
     "sssfsssfs"),
    ("glm 6 32 4 4 64 333", {"tie_word_embeddings": True, "head_dim": 24, "attention_bias": False},
     121_664, "ffffff"),
    ("glm 4 32 2 2 64 100", {"tie_word_embeddings": True, "head_dim": 24, "attention_bias": False},
     52_640, "ffff"),
    ("glm4 4 24 3 1 40 100", {"tie_word_embeddings": True, "head_dim": 8, "attention_bias": False},
     20_472, "ffff"),
    ("glm4 4 32 2 2 24 333", {"tie_word_embeddings": False, "attention_bias": True}, 165_216,
     "ffff"),
    ("granite 6 72 3 1 40 333", {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias":
     True}, 185_736, "ffffff"),
    ("granite 7 64 4 2 40 333", {"tie_word_embeddings": False, "attention_bias": False}, 183_360,
     "fffffff"),
    ("hunyuan_v1_dense 4 48 6 2 40 100", {"tie_word_embeddings": False, "head_dim": 8,
     "attention_bias": True}, 58_224, "ffff"),
    ("hunyuan_v1_dense 6 192 12 4 24 333", {"tie_word_embeddings": False, "head_dim": 16,
     "attention_bias": False}, 803_328, "ffffff"),
    ("ministral 4 64 4 4 64 333", {"tie_word_embeddings": False, "head_dim": 24, "sliding_window":
     16, "layer_types": "ffff"}, 190_656, "ffff"),
    ("ministral 7 64 8 4 24 333", {"tie_word_embeddings": False, "head_dim": 24, "sliding_window":
     16, "layer_types": "fffsfsf"}, 333_888, "fffsfsf"),
    ("ministral3 6 16 1 1 64 100", {"tie_word_embeddings": True, "head_dim": 8, "sliding_window":
     16}, 23_312, "ssssss"),
    ("ministral3 4 64 4 2 40 100", {"tie_word_embeddings": True, "sliding_window": None}, 430_912,
     "ffff"),
    ("nemotron 4 96 12 4 40 333", {"tie_word_embeddings": False, "head_dim": 16, "attention_bias":
     True, "mlp_bias": True}, 295_200, "ffff"),
    ("nemotron 6 32 2 2 64 100", {"tie_word_embeddings": False, "head_dim": 16, "attention_bias":
     False}, 56_384, "ffffff"),
    ("olmo2 6 96 4 4 24 100", {"tie_word_embeddings": False, "attention_bias": False}, 284_256,
     "ffffff"),
    ("olmo2 9 32 4 2 64 100", {"tie_word_embeddings": True, "attention_bias": True}, 88_048,
     "fffffffff"),
    ("olmo3 6 48 2 1 24 333", {"tie_word_embeddings": False, "attention_bias": False,
     "sliding_window": 16, "layer_types": "ffsffs"}, 95_232, "ffsffs"),
    ("olmo3 4 192 8 4 64 100", {"tie_word_embeddings": False, "sliding_window": 64, "layer_types":
     "ssss"}, 631_104, "ssss"),
    ("seed_oss 6 8 1 1 40 100", {"tie_word_embeddings": False, "head_dim": 16, "attention_bias":
     True, "attention_out_bias": True}, 10_872, "ffffff"),
    ("seed_oss 4 48 2 2 40 100", {"tie_word_embeddings": True, "mlp_bias": False,
     "attention_out_bias": True}, 228_144, "ffff"),
    ("smollm3 6 288 12 4 64 100", {"tie_word_embeddings": False, "head_dim": 24, "mlp_bias":
     False}, 1_720_224, "ffffff"),
    ("smollm3 9 24 3 1 40 100", {"tie_word_embeddings": False, "head_dim": 24, "mlp_bias": False},
     72_648, "fffffffff"),
    ("stablelm 6 32 4 2 40 100", {"tie_word_embeddings": True, "use_qkv_bias": False,
     "use_parallel_residual": False}, 45_504, "ffffff"),
    ("stablelm 6 192 12 4 64 333", {"tie_word_embeddings": True, "use_qkv_bias": False,
     "use_parallel_residual": False}, 879_936, "ffffff"),
    ("starcoder2 7 32 2 1 40 333", {"tie_word_embeddings": True, "use_bias": True,
     "sliding_window": 16}, 52_216, "sssssss"),
    ("starcoder2 7 96 6 2 40 100", {"tie_word_embeddings": True, "use_bias": False,
     "sliding_window": 16}, 238_272, "sssssss"),
    ("dots1 6 24 3 1 64 333", {"tie_word_embeddings": False, "head_dim": 16, "attention_bias":
     True, "use_sliding_window": True, "sliding_window": 32, "max_window_layers": 28,
     "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
     "moe_intermediate_size": 24, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 0},
     87_984, "ffffff"),
    ("dots1 4 24 3 1 24 100", {"tie_word_embeddings": True, "head_dim": 24, "attention_bias": True,
     "use_sliding_window": False, "sliding_window": 32, "max_window_layers": 0, "n_routed_experts":
     8, "num_experts_per_tok": 2, "n_shared_experts": 2, "moe_intermediate_size": 24, "n_group": 2,
     "topk_group": 1, "first_k_dense_replace": 1}, 75_984, "ssss"),
    ("ernie4_5_moe 7 8 1 1 64 100", {"tie_word_embeddings": False, "head_dim": 16,
     "moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 1, "moe_intermediate_size": 24,
     "moe_layer_start_index": 1}, 38_376, "fffffff"),
    ("ernie4_5_moe 9 48 2 1 64 100", {"tie_word_embeddings": False, "head_dim": 16,
     "moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 1, "moe_intermediate_size": 24,
     "moe_layer_start_index": 0}, 335_448, "fffffffff"),
    ("exaone_moe 6 32 4 4 64 333", {"tie_word_embeddings": True, "head_dim": 8, "layer_types":
     "sfsffs", "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 2,
     "moe_intermediate_size": 24, "first_k_dense_replace": 1}, 111_668, "sfsffs"),
    ("exaone_moe 6 48 6 2 40 100", {"tie_word_embeddings": False, "head_dim": 8, "sliding_window":
     64, "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 1,
     "moe_intermediate_size": 24, "first_k_dense_replace": 2}, 184_688, "sssfss"),
    ("gpt_oss 6 64 8 4 24 333", {"tie_word_embeddings": False, "head_dim": 16, "sliding_window":
     16, "layer_types": "sfffss", "num_local_experts": 4, "num_experts_per_tok": 1}, 307_720,
     "sfffss"),
    ("gpt_oss 6 16 2 2 40 100", {"tie_word_embeddings": False, "attention_bias": True,
     "layer_types": "fsfssf", "num_local_experts": 4, "num_experts_per_tok": 1}, 103_764, "fsfssf"),
    ("granitemoe 9 96 12 4 64 100", {"tie_word_embeddings": True, "attention_bias": True,
     "num_local_experts": 4, "num_experts_per_tok": 2}, 901_920, "fffffffff"),
    ("granitemoe 6 32 2 2 40 100", {"tie_word_embeddings": False, "attention_bias": False,
     "num_local_experts": 8, "num_experts_per_tok": 2}, 217_248, "ffffff"),
    ("hunyuan_v1_moe 4 24 3 1 24 100", {"tie_word_embeddings": False, "head_dim": 16,
     "attention_bias": False, "num_experts": 4, "moe_topk": 2}, 52_376, "ffff"),
    ("hunyuan_v1_moe 7 96 4 4 40 333", {"tie_word_embeddings": True, "head_dim": 24,
     "attention_bias": True, "num_experts": 8, "moe_topk": 2}, 1_025_616, "fffffff"),
    ("llama4_text 7 96 6 2 24 333", {"tie_word_embeddings": False, "head_dim": 16,
     "attention_bias": False, "num_local_experts": 8, "num_experts_per_tok": 2,
     "intermediate_size_mlp": 40, "interleave_moe_layer_step": 1, "attention_chunk_size": None},
     678_240, "fffffff"),
    ("llama4_text 4 64 4 4 24 333", {"tie_word_embeddings": False, "head_dim": 16,
     "attention_bias": True, "num_local_experts": 8, "num_experts_per_tok": 1,
     "intermediate_size_mlp": 40, "interleave_moe_layer_step": 2, "attention_chunk_size": None},
     209_088, "ffff"),
    ("minimax_m2 6 16 1 1 24 100", {"tie_word_embeddings": False, "head_dim": 16,
     "num_local_experts": 8, "num_experts_per_tok": 1}, 65_856, "ffffff"),
    ("minimax_m2 9 48 3 1 40 333", {"tie_word_embeddings": True, "head_dim": 16,
     "num_local_experts": 4, "num_experts_per_tok": 2}, 281_892, "fffffffff"),
    ("olmoe 7 96 4 4 64 100", {"tie_word_embeddings": False, "attention_bias": True, "num_experts":
     8, "num_experts_per_tok": 2}, 1_320_288, "fffffff"),
    ("olmoe 7 64 8 4 64 333", {"tie_word_embeddings": True, "attention_bias": True, "num_experts":
     8, "num_experts_per_tok": 2}, 802_016, "fffffff"),
    ("solar_open 4 96 4 4 40 100", {"tie_word_embeddings": True, "attention_bias": False,
     "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
     "moe_intermediate_size": 24, "n_group": 2, "topk_group": 1}, 936_688, "ffff"),
    ("solar_open 9 16 2 1 24 100", {"tie_word_embeddings": True, "attention_bias": True,
     "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
     "moe_intermediate_size": 24, "n_group": 2, "topk_group": 1}, 211_640, "fffffffff"),
]
# fmt: on

# Layers: f where an indexer of its own chooses keys, s where those of the layer before serve.
# fmt: off
COUNTED_SPARSE: list[tuple[dict[str, Any], int, str]] = [
    ({"model_type": "deepseek_v32", "num_hidden_layers": 4, "hidden_size": 48,
     "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 24, "vocab_size":
     333, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "index_n_heads": 4,
     "index_head_dim": 32, "index_topk": 4, "n_routed_experts": 4, "num_experts_per_tok": 1,
     "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1, "tie_word_embeddings": True},
     203_316, "ffff"),
    ({"model_type": "deepseek_v32", "num_hidden_layers": 4, "hidden_size": 48,
     "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 40, "vocab_size":
     333, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "v_head_dim": 4,
     "qk_nope_head_dim": 8, "index_n_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 1,
     "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1,
     "tie_word_embeddings": True, "mlp_layer_types": ["dense", "dense", "sparse", "sparse"]},
     108_392, "ffff"),
    ({"model_type": "glm_moe_dsa", "num_hidden_layers": 3, "hidden_size": 48,
     "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 24, "vocab_size":
     333, "q_lora_rank": 8, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 12,
     "index_n_heads": 2, "index_topk": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
     "moe_intermediate_size": 24, "tie_word_embeddings": True, "mlp_layer_types": ["dense",
     "dense", "sparse"], "index_topk_pattern": "FSF"}, 176_144, "fsf"),
    ({"model_type": "glm_moe_dsa", "num_hidden_layers": 6, "hidden_size": 48,
     "num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 40, "vocab_size":
     333, "q_lora_rank": 8, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
     "qk_nope_head_dim": 8, "index_topk": 4, "n_routed_experts": 4, "num_experts_per_tok": 1,
     "moe_intermediate_size": 8, "n_group": 2, "topk_group": 1, "tie_word_embeddings": False,
     "layer_types": ["indexed_attention"] * 6, "indexer_types": ["full", "shared", "full",
     "shared", "shared", "full"]}, 206_892, "fsfssf"),
    ({"model_type": "glm_moe_dsa", "num_hidden_layers": 3, "hidden_size": 16,
     "num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 40, "vocab_size":
     333, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "v_head_dim": 16,
     "index_topk": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
     "n_shared_experts": 2, "first_k_dense_replace": 1, "tie_word_embeddings": True,
     "index_topk_freq": 4}, 130_068, "ffs"),
]
# fmt: on
