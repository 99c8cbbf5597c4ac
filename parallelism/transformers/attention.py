"""How tokens of a layer meet: grouped queries, latent vectors, chosen keys, sliding windows."""

from dataclasses import dataclass

from codesign_base import InputError
from codesign_base.arguments import check_flags, check_kind
from codesign_base.counted import counted
from parallelism.transformers.limits import check_count_fields, check_layer_numbers


@dataclass(frozen=True)
class Indexer:
    """What chooses the keys that a token meets (DeepSeek Sparse Attention, V3.2, section 2.1).

    It scores all keys before a token: the weighted sum, over its heads, of the positive products of
    the token's queries with one key. Of a sequence of at most ``keys`` tokens all are chosen.

    Parameters
    ----------
    heads, width : int
        Heads of its queries, and their width, which is that of its key.
    keys : int
        Keys that a token meets at most.
    shared : tuple of int
        Layers without an indexer, which take what the layer before them took, in ascending order
        (GLM-5.2).
    """

    heads: int
    width: int
    keys: int
    shared: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_count_fields("indexer", self, {"heads": 1, "width": 1, "keys": 1})
        check_layer_numbers("indexer: shared", self.shared)
        if self.shared[:1] == (0,):
            raise InputError(
                "indexer: shared names layer 0, before which none chooses keys; leave it out"
            )

    def parameters(self, hidden: int, query_rank: int) -> int:
        """Return its trainable parameters: of queries, the key and its norm, weights of heads."""
        queries = query_rank * self.heads * self.width
        return queries + (hidden + 2) * self.width + hidden * self.heads

    def share(self, sequence: int) -> float:
        """Return the scores of a sample with chosen keys, over all of them, later ones included."""
        return _nearest(min(self.keys, sequence), sequence)


@dataclass(frozen=True)
class LatentAttention:
    """Ranks of multi-head latent attention (DeepSeek-V2, section 2.1).

    Parameters
    ----------
    kv_rank : int
        Width of the latent vector that keys and values are made from.
    query_rank : int
        Width of the queries' latent vector; 0: queries are projected in one step.
    rope_width : int
        Width of the rotary part of queries and of the one key that all heads share.
    value_width : int
        Width of a head's value; the head's non-rotary key width is `Attention.head_width`.
    indexer : Indexer, optional
        Chooses the keys that a token meets; it reads the queries' latent vector, so that
        ``query_rank`` is above 0.
    """

    kv_rank: int
    query_rank: int
    rope_width: int
    value_width: int
    indexer: Indexer | None = None

    def __post_init__(self) -> None:
        check_count_fields(
            "latent attention", self,
            {"kv_rank": 1, "query_rank": 0, "rope_width": 0, "value_width": 1},
        )  # fmt: skip
        check_kind("latent attention: indexer", self.indexer, Indexer | None, "None, or an Indexer")
        if self.indexer and not self.query_rank:
            raise InputError(
                "latent attention: query_rank is 0 beside an indexer, which reads the queries' "
                "latent vector; give its width"
            )

    def indexer_parameters(self, hidden: int) -> int:
        """Return the parameters of a layer's indexer, where there is one."""
        return self.indexer.parameters(hidden, self.query_rank) if self.indexer else 0


@dataclass(frozen=True)
class Attention:
    """One self-attention layer.

    Parameters
    ----------
    heads : int
        Query heads.
    kv_heads : int
        Key and value heads, a divisor of ``heads`` (grouped-query attention); immaterial for
        latent attention.
    head_width : int
    query_bias, output_bias : bool
        Biases of the query / key / value projections and of the output projection.
    head_norm : bool
        Normalise queries and keys of each head (one weight an element of a head's width, each).
    latent : LatentAttention, optional
        Multi-head latent attention instead of grouped queries.
    wide_norm : bool
        Normalise queries and keys with weights for every head (OLMo 2, over all heads together;
        Command R+).
    sinks : bool
        Each head has a learned score beside those of its keys (GPT-OSS).
    output_gate : bool
        What a head returns is scaled by a sigmoid of another projection of the layer's input,
        element by element (Qwen3-Next).
    """

    heads: int
    kv_heads: int
    head_width: int
    query_bias: bool = False
    output_bias: bool = False
    head_norm: bool = False
    latent: LatentAttention | None = None
    wide_norm: bool = False
    sinks: bool = False
    output_gate: bool = False

    def __post_init__(self) -> None:
        check_count_fields("attention", self, {"heads": 1, "kv_heads": 1, "head_width": 1})
        check_flags("attention", self)
        check_kind(
            "attention: latent", self.latent, LatentAttention | None, "None, or a LatentAttention"
        )
        if self.heads % self.kv_heads:
            raise InputError(
                f"attention: kv_heads is {self.kv_heads}, which does not divide the "
                f"{counted(self.heads, 'head')}; give a divisor"
            )
        if self.wide_norm and (self.head_norm or self.latent):
            raise InputError(
                "attention: wide_norm is set beside head_norm or latent; give one of them"
            )
        if self.output_gate and self.latent:
            raise InputError("attention: output_gate is set beside latent; give one of them")

    @property
    def query_width(self) -> int:
        """Width of all heads' queries together."""
        rope = self.latent.rope_width if self.latent else 0
        return self.heads * (self.head_width + rope)

    @property
    def value_width(self) -> int:
        """Width of all heads' outputs together, which the output projection reads."""
        return self.heads * (self.latent.value_width if self.latent else self.head_width)

    def parameters(self, hidden: int) -> int:
        """Return the trainable parameters of the layer, its own norms included."""
        output = self.value_width * hidden + (hidden if self.output_bias else 0)
        if self.latent is not None:
            latent = self.latent
            if latent.query_rank:
                query = hidden * latent.query_rank + latent.query_rank * self.query_width
                query += latent.query_rank  # norm of the latent vector
            else:
                query = hidden * self.query_width
            down = hidden * (latent.kv_rank + latent.rope_width) + latent.kv_rank
            up = latent.kv_rank * self.heads * (self.head_width + latent.value_width)
            return query + down + up + output + latent.indexer_parameters(hidden)
        width = self.query_width + 2 * self.kv_heads * self.head_width
        width += self.value_width if self.output_gate else 0
        norms = 2 * self.head_width if self.head_norm else 0
        if self.wide_norm:
            norms = self.query_width + self.kv_heads * self.head_width
        norms += self.heads if self.sinks else 0
        return hidden * width + (width if self.query_bias else 0) + norms + output


@dataclass(frozen=True)
class SlidingWindow:
    """Layers in which a token meets only the keys near it.

    Parameters
    ----------
    width : int
        Keys that a token meets at most, its own among them.
    full_layers : tuple of int
        Layers in which a token meets all keys before it, in ascending order.
    chunked : bool
        Tokens are cut into chunks of the width, and meet the keys of their own (Llama 4), rather
        than the last ones.
    """

    width: int
    full_layers: tuple[int, ...] = ()
    chunked: bool = False

    def __post_init__(self) -> None:
        check_count_fields("sliding window", self, {"width": 1})
        check_flags("sliding window", self)
        check_layer_numbers("sliding window: full_layers", self.full_layers)

    def share(self, sequence: int) -> float:
        """Return the scores of a sample that count, over all of them, masked ones included."""
        width = min(self.width, sequence)
        if not self.chunked:
            return _nearest(width, sequence)
        chunks, rest = divmod(sequence, width)
        return 0.5 * (chunks * width**2 + rest**2) / sequence**2


def _nearest(width: int, sequence: int) -> float:
    """Return the share of scores where a token meets as many keys as there are, or ``width``."""
    return width / sequence * (1.0 - 0.5 * width / sequence)
