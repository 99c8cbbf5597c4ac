"""Hybrid language models by name: layers of linear attention or Mamba-2 beside attention."""

from parallelism.transformers.architecture import Transformer
from parallelism.transformers.attention import Attention, LatentAttention
from parallelism.transformers.experts import Experts
from parallelism.transformers.linear_attention import LinearAttention

_QWEN_NEXT = "released configuration (Qwen3-Next), without multi-token prediction; sequence chosen"
_QWEN35 = "released configuration (Qwen3.5, text), without multi-token prediction; sequence chosen"
_KIMI = "Kimi Linear, arXiv 2510.26692, section 5; released configuration; sequence chosen"
_GRANITE = "released configuration (Granite 4.0 H); sequence chosen"
_NEMOTRON_H = "Nemotron-H, arXiv 2504.03624, section 2; released configuration"
_NANO = "Nemotron 3 Nano, arXiv 2512.20848, section 2; released configuration"
_SUPER = (
    "released configuration (Nemotron 3 Super), without multi-token prediction; sequence of "
    "Megatron-LM's release test"
)


def _qwen(
    name: str,
    layers: int,
    hidden: int,
    heads: tuple[int, int],
    values: int,
    feed_forward: int,
    vocabulary: int,
    source: str,
    experts: Experts | None = None,
) -> Transformer:
    """Three layers of Gated DeltaNet, then one of gated attention, and so on."""
    full = tuple(range(3, layers, 4))
    return Transformer(
        name, layers, hidden, Attention(*heads, 256, head_norm=True, output_gate=True),
        feed_forward, vocabulary, 4096, gated=True, experts=experts, source=source,
        linear=LinearAttention("gated-deltanet", 16, values, 128, 128, full_layers=full),
    )  # fmt: skip


def _qwen_experts(count: int, each: int, width: int) -> Experts:
    return Experts(count, each, width, shared=1, shared_width=width, shared_gate=True)


def _nemotron(
    name: str,
    pattern: str,
    hidden: int,
    heads: tuple[int, int],
    mamba: tuple[int, int],
    feed_forward: int,
    source: str,
    experts: Experts | None = None,
) -> Transformer:
    """Layers of one part each: Mamba-2 (M), attention (*), feed-forward (-) or experts (E)."""

    def of(letters: str) -> tuple[int, ...]:
        return tuple(layer for layer, letter in enumerate(pattern) if letter in letters)

    linear = LinearAttention(
        "mamba-2", 8, mamba[0], mamba[1], 64, convolution_bias=True, full_layers=of("*"), chunk=128
    )
    return Transformer(
        name, len(pattern), hidden, Attention(*heads, 128), feed_forward, 131072, 8192,
        experts=experts, source=source, linear=linear,
        without_feed_forward=of("M*"), without_attention=of("-E"), mtp_repeated=True,
    )  # fmt: skip


_KIMI_LAYERS = (3, 7, 11, 15, 19, 23, 26)

HYBRIDS = (
    _qwen(
        "qwen3-next-80b-a3b", 48, 2048, (16, 2), 32, 5120, 151936, _QWEN_NEXT,
        _qwen_experts(512, 10, 512),
    ),
    _qwen("qwen3.5-27b", 64, 5120, (24, 4), 48, 17408, 248320, _QWEN35),
    _qwen(
        "qwen3.5-35b-a3b", 40, 2048, (16, 2), 32, 512, 248320, _QWEN35, _qwen_experts(256, 8, 512)
    ),
    _qwen(
        "qwen3.5-397b-a17b", 60, 4096, (32, 2), 64, 1024, 248320, _QWEN35,
        _qwen_experts(512, 10, 1024),
    ),
    Transformer(
        "kimi-linear-48b-a3b", 27, 2304,
        Attention(32, 32, 128, latent=LatentAttention(512, 0, rope_width=64, value_width=128)),
        9216, 163840, 4096, gated=True, source=_KIMI,
        experts=Experts(256, 8, 1024, shared=1, shared_width=1024, first_dense=1,
                        router_bias=True),
        linear=LinearAttention("kda", 32, 32, 128, 128, full_layers=_KIMI_LAYERS),
    ),
    Transformer(
        "granite-4.0-h-small", 40, 4096, Attention(32, 8, 128), 768, 100352, 4096, gated=True,
        tied=True, source=_GRANITE, experts=Experts(72, 10, 768, shared=1, shared_width=1536),
        linear=LinearAttention("mamba-2", 1, 128, 128, 64, convolution_bias=True,
                               full_layers=(5, 15, 25, 35), chunk=256),
    ),
    _nemotron(
        "nemotron-h-8b", "M-M-M-M" + "*-M-M-M-M-M" * 4 + "-", 4096, (32, 8), (128, 128), 21504,
        _NEMOTRON_H,
    ),
    _nemotron(
        "nemotron-h-56b", "M-M-M-M" + "*-M-M-M-M-M" * 10 + "-", 8192, (64, 8), (256, 256), 32768,
        _NEMOTRON_H,
    ),
    _nemotron(
        "nemotron-3-nano-30b-a3b", "MEMEM*E" + "MEMEM*E" * 4 + "MEMEMEM*E" + "MEMEMEME",
        2688, (32, 2), (64, 128), 1856, _NANO,
        Experts(128, 6, 1856, shared=1, shared_width=3712, router_bias=True),
    ),
    _nemotron(
        "nemotron-3-super-120b-a12b",
        "MEMEMEM*E" + "MEMEMEM*E" * 2 + "MEMEMEMEM*E" * 4 + "MEMEMEM*E" + "MEMEMEME",
        4096, (32, 2), (128, 128), 2688, _SUPER,
        Experts(512, 22, 2688, shared=1, shared_width=5376, router_bias=True, latent_width=1024),
    ),
)  # fmt: skip
