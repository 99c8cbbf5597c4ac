"""Transformers that several tests share, and the published GPT-like ones."""

from dataclasses import replace

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention, Indexer, LatentAttention
from parallelism.transformers.experts import Experts
from parallelism.transformers.linear_attention import LinearAttention


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51200) -> Transformer:
    """A GPT as Megatron-LM trains it."""
    return Transformer(
        f"gpt-{layers}-{hidden}", layers, hidden,
        Attention(heads, heads, hidden // heads, True, True), 4 * hidden, vocabulary, 2048,
        bias=True, norm="layernorm", positions=2048, tied=True,
    )  # fmt: skip


GPT_22B = gpt(48, 6144, 64)
GPT3_175B = gpt(96, 12288, 96)
GPT_530B = gpt(105, 20480, 128)
GPT_1T = gpt(128, 25600, 160)
LLAMA3_8B = Transformer(
    "llama3-8b", 32, 4096, Attention(32, 8, 128), 14336, 128256, 8192, gated=True
)
MIXTRAL = Transformer(
    "mixtral-8x7b", 32, 4096, Attention(32, 8, 128), 14336, 32000, 4096, gated=True,
    experts=Experts(8, 2, 14336),
)  # fmt: skip
LATENT = Transformer(
    "latent", 4, 1024, Attention(16, 16, 64, latent=LatentAttention(256, 384, 32, 64)), 2816, 1000,
    512, gated=True, experts=Experts(16, 4, 512, shared=1, shared_width=512, first_dense=1),
)  # fmt: skip
CHOSEN = replace(
    LATENT, name="chosen",
    attention=replace(
        LATENT.attention, latent=LatentAttention(256, 384, 32, 64, Indexer(4, 32, 128, (2,)))
    ),
)  # fmt: skip
FURTHER_TOKENS = replace(LATENT, name="further tokens", mtp_layers=2)
DENSE_MODULES = replace(FURTHER_TOKENS, name="dense modules", mtp_dense=True)
HYBRID = Transformer(
    "hybrid", 4, 512, Attention(8, 4, 64, head_norm=True, output_gate=True), 1024, 1000, 512,
    gated=True, experts=Experts(16, 4, 256, shared=1, shared_width=256, shared_gate=True),
    linear=LinearAttention("gated-deltanet", 4, 8, 64, 64, full_layers=(3,)),
)  # fmt: skip
ONE_PART = Transformer(
    "one part", 6, 512, Attention(8, 4, 64), 1024, 1000, 512,
    linear=LinearAttention(
        "mamba-2", 4, 16, 64, 64, convolution_bias=True, full_layers=(2,), chunk=128
    ),
    without_feed_forward=(0, 2, 4), without_attention=(1, 3, 5),
)  # fmt: skip
LIGHTNING = replace(
    HYBRID, name="lightning",
    linear=LinearAttention("lightning", 8, 8, 64, 64, full_layers=(3,), chunk=128),
)  # fmt: skip
SELECTIVE = replace(
    HYBRID, name="mamba-1",
    linear=LinearAttention(
        "mamba-1", 1, 1024, 16, 1, convolution_bias=True, full_layers=(2,), step_rank=32
    ),
)  # fmt: skip
SHORT = replace(
    HYBRID, name="short convolutions", tied=True,
    linear=LinearAttention("short-convolution", 512, 512, 1, 1, 3, full_layers=(1, 3)),
)  # fmt: skip
BESIDE = replace(
    ONE_PART, name="beside", without_feed_forward=(), without_attention=(), gated=True,
    linear=replace(
        ONE_PART.linear, full_layers=(), output_norm=False, beside_attention=True
    ),
)  # fmt: skip
VISION = Transformer(
    "vit", 4, 256, Attention(4, 4, 64, True, True), 1024, 0, 197, bias=True, norm="layernorm",
    positions=197, causal=False, patch=768, classes=1000,
)  # fmt: skip
