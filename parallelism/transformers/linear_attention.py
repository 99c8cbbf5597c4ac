"""Layers whose tokens meet through a state of fixed size, not through each other's keys."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, get_args

from codesign_base import InputError
from codesign_base.arguments import check_flags, told
from codesign_base.counted import counted
from parallelism.transformers.limits import check_count_fields, check_layer_numbers

Recurrence = Literal[
    "gated-deltanet", "kda", "mamba-2", "lightning", "mamba-1", "short-convolution"
]


@dataclass(frozen=True)
class _Kind:
    """What tells one kind of these layers from another.

    Parameters
    ----------
    title : str
    gates : int
        Projections as wide as the values that multiply the output.
    numbers : int
        Numbers that each token is projected to for each head: how much to forget, to learn.
    scalars : int
        Weights of each head beside matrices: rates and offsets of these, the input's share.
    norm : {"head", "all", "none"}
        Weights of the output's norm: those of one head, of every head, or none.
    convolved : {"all", "values", "none"}
        What the convolution passes over.
    narrow_keys : bool
        Queries and keys are made of the convolved values, in Mamba-1's way.
    normed_keys : bool
        Queries and keys have norms without weights.
    passed_on : {"heads", "state", "tail", ""}
        What ranks of a context group send each other: heads, so that each has some of them and
        the whole sequence; or, each with its own tokens, the state after them or the tokens that
        the convolution of the next ones reaches. Empty: no way is known.
    """

    title: str
    gates: int = 1
    numbers: int = 0
    scalars: int = 0
    norm: Literal["head", "all", "none"] = "all"
    convolved: Literal["all", "values", "none"] = "all"
    narrow_keys: bool = False
    normed_keys: bool = False
    passed_on: Literal["heads", "state", "tail", ""] = "heads"


_KINDS: Mapping[Recurrence, _Kind] = MappingProxyType(
    {
        "gated-deltanet": _Kind(
            "Gated DeltaNet", numbers=2, scalars=2, norm="head", normed_keys=True
        ),
        # Its gate and its forgetting are made of narrow vectors.
        "kda": _Kind(
            "Kimi Delta Attention", gates=0, numbers=1, scalars=1, norm="head", normed_keys=True
        ),
        "mamba-2": _Kind("Mamba-2", numbers=1, scalars=3),
        "lightning": _Kind("lightning attention", convolved="none", passed_on="state"),
        "mamba-1": _Kind(
            "Mamba-1", norm="none", convolved="values", narrow_keys=True, passed_on=""
        ),
        "short-convolution": _Kind(
            "gated short convolutions", gates=0, norm="none", convolved="values", passed_on="tail"
        ),
    }
)


@dataclass(frozen=True)
class LinearAttention:
    """The layers of a model whose tokens meet through a state, not through each other's keys.

    Each head keeps a state of ``key_width`` by ``value_width`` elements that forgets, takes in a
    token's key and value, and is read by its query. Kernels work through chunks of tokens: within
    one by products of all pairs, between chunks by the state. Mamba-1 goes from token to token,
    and the state of a short convolution is the tokens that it reaches.

    Parameters
    ----------
    kind : {"gated-deltanet", "kda", "mamba-2", "lightning", "mamba-1", "short-convolution"}
        Gated DeltaNet (Yang et al., 2024), Kimi Delta Attention, which forgets by elements of the
        key (Kimi Linear, 2025, section 3), or Mamba-2 (Dao and Gu, 2024), where "queries", "keys",
        "values" are what the paper calls C, B and x. Lightning attention forgets at a fixed rate
        and has no convolution (MiniMax-01, 2025, section 2). Of Mamba-1 (Gu and Dao, 2023) each
        channel is a head of width 1, and all share one head of queries and keys, which are made of
        the values (with norms, as Jamba's). Of a gated short convolution (LFM2 Technical Report,
        2025) each channel is a head with a key, which the value is multiplied by before the
        convolution, and a query, which its output is multiplied by; all of width 1.
    key_heads, heads : int
        Heads of queries and keys, and of values and states, of which the former are a divisor
        (Mamba-2's groups; 1 of Mamba-1; the same of both for KDA, lightning attention and short
        convolutions).
    key_width, value_width : int
        Widths of a head.
    convolution : int
        Tokens that the causal convolution of queries, keys and values reaches (of values alone in
        Mamba-1 and short convolutions; lightning attention has none, whatever this says).
    convolution_bias : bool
    full_layers : tuple of int
        Layers with the model's `Attention` instead, in ascending order.
    chunk : int
        Tokens that a kernel takes at once.
    step_rank : int
        Of Mamba-1, width of the vector that each channel's forgetting is made of; 0 of others.
    output_norm : bool
        The output has the norm that its kind has (Falcon-H1's Mamba-2 has none).
    beside_attention : bool
        Layers but ``full_layers`` have the model's `Attention`, too: both read what one norm made,
        and both outputs are added to the layer's input (Falcon-H1).

    Examples
    --------
    >>> mamba = LinearAttention("mamba-1", 1, 8192, 16, 1, convolution_bias=True, step_rank=256)
    >>> mamba.parameters(4096)
    105308448
    """

    kind: Recurrence
    key_heads: int
    heads: int
    key_width: int
    value_width: int
    convolution: int = 4
    convolution_bias: bool = False
    full_layers: tuple[int, ...] = ()
    chunk: int = 64
    step_rank: int = 0
    output_norm: bool = True
    beside_attention: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Recurrence):
            raise InputError(
                f"linear attention: kind is {told(self.kind)}; choose one of "
                f"{', '.join(get_args(Recurrence))}"
            )
        check_count_fields(
            "linear attention", self,
            {"key_heads": 1, "heads": 1, "key_width": 1, "value_width": 1, "convolution": 1,
             "chunk": 1, "step_rank": 0},
        )  # fmt: skip
        check_flags("linear attention", self)
        check_layer_numbers("linear attention: full_layers", self.full_layers)
        same = self.kind in ("kda", "lightning", "short-convolution")
        if self.heads % self.key_heads or (same and self.heads != self.key_heads):
            raise InputError(
                f"linear attention: key_heads is {self.key_heads} beside "
                f"{counted(self.heads, 'head')}; give "
                + ("the same of both" if same else "a divisor")
            )
        widths = {"key_heads": self.key_heads, "value_width": self.value_width}
        if self.kind == "short-convolution":
            widths = {"key_width": self.key_width, "value_width": self.value_width}
        if self.kind in ("mamba-1", "short-convolution"):
            for name, width in widths.items():
                if width != 1:
                    raise InputError(
                        f"linear attention: {name} is {width}, but kind is {self.kind!r}, of which "
                        "each channel is a head; give 1"
                    )
        if (self.kind == "mamba-1") != (self.step_rank > 0):
            raise InputError(
                f"linear attention: step_rank is {self.step_rank}, but kind is {self.kind!r}; "
                + ("give at least 1" if self.kind == "mamba-1" else "leave it out")
            )

    @property
    def _is(self) -> _Kind:
        return _KINDS[self.kind]

    @property
    def title(self) -> str:
        """What the kind is called in texts."""
        return self._is.title

    @property
    def normed_keys(self) -> bool:
        """Whether queries and keys have norms."""
        return self._is.normed_keys

    @property
    def exchanges_heads(self) -> bool:
        """Whether each context rank does a share of the heads on the whole sequence."""
        return self._is.passed_on == "heads"

    @property
    def passed_on(self) -> int | None:
        """Elements of a sample that a context rank, with tokens of its own, passes on to others.

        None where ranks exchange heads instead, or no way to share out the sequence is known. Of
        lightning attention the states after a rank's tokens, which all gather (MiniMax-01, 2025,
        section 3, LASP+); of short convolutions the last tokens (flash-linear-attention,
        ``fla/ops/cp``).
        """
        elements = {
            "state": self.heads * self.key_width * self.value_width,
            "tail": (self.convolution - 1) * self.values,
        }
        return elements.get(self._is.passed_on)

    def within(self, sequence: int) -> "LinearAttention":
        """Return the same on sequences that may be shorter than a chunk."""
        return self if self.chunk <= sequence else replace(self, chunk=sequence)

    def shared_by(self, ranks: int) -> "LinearAttention":
        """Return the same as ``ranks`` tensor and context ranks share out its heads.

        Where Mamba-2 has fewer groups than that, each is repeated on the ranks that share its
        heads (Megatron-Core, ``mamba_context_parallel.py``).
        """
        if self.kind != "mamba-2" or ranks <= self.key_heads:
            return self
        return replace(self, key_heads=ranks)

    @property
    def split_heads(self) -> tuple[str, int]:
        """The name and number of the heads of which each tensor rank needs as many."""
        if self._is.narrow_keys:
            return "heads", self.heads
        return "key_heads", self.key_heads

    @property
    def keys(self) -> int:
        """Width of all heads' keys together, which is that of the queries."""
        return self.key_heads * self.key_width

    @property
    def values(self) -> int:
        """Width of all heads' values together, which the output projection reads."""
        return self.heads * self.value_width

    @property
    def mixed(self) -> int:
        """Width of queries, keys and values as a token's input is projected to them."""
        return self.values + (0 if self._is.narrow_keys else 2 * self.keys)

    @property
    def convolved(self) -> int:
        """Width that the convolution passes over."""
        return {"all": self.mixed, "values": self.values, "none": 0}[self._is.convolved]

    @property
    def projected(self) -> int:
        """Width of what a token's input is projected to and each head has its own part of.

        Queries, keys and values (of Mamba-1 values alone); the output's gate but for KDA's, which
        is made of a narrow vector; and a number or two each head, of how much to forget and learn.
        """
        return self.mixed + self._is.gates * self.values + self._is.numbers * self.heads

    @property
    def exchanged(self) -> int:
        """Width of what context ranks send each other of a token for a share of the heads.

        All of `projected`, as Megatron-Core does, and how much each element of KDA's keys forgets.
        No public software exchanges the heads of KDA: its gate, of a token's own narrow vector, is
        taken to be put on its outputs when these are back.
        """
        return self.projected + (self.keys if self.kind == "kda" else 0)

    @property
    def low_ranks(self) -> int:
        """Width of the narrow vectors that KDA makes its forgetting and its gate from."""
        return 2 * self.value_width if self.kind == "kda" else 0

    @property
    def from_values(self) -> int:
        """Width of what Mamba-1 projects its values to: its step, key and query."""
        return self.step_rank + 2 * self.keys if self._is.narrow_keys else 0

    def parameters(self, hidden: int) -> int:
        """Return the trainable parameters of a layer, its own norm included."""
        return self.shared_parameters(hidden) + self.split_parameters(hidden)

    def shared_parameters(self, hidden: int) -> int:
        """Return those that each tensor rank has whole."""
        norm = self.value_width if self.output_norm and self._is.norm == "head" else 0
        # Of Mamba-1 the norms of step, key and query.
        return hidden * self.low_ranks + norm + self.from_values

    def split_parameters(self, hidden: int) -> int:
        """Return those that tensor ranks share out by heads."""
        found = hidden * (self.projected + self.values)
        found += (self.convolution + self.convolution_bias) * self.convolved
        found += self._is.scalars * self.heads
        if self.output_norm and self._is.norm == "all":
            found += self.values
        if self.kind == "kda":
            # Projections from narrow vectors, and an offset of forgetting each element of keys.
            found += self.value_width * (self.keys + self.values) + self.keys
        if self._is.narrow_keys:
            # To step, key and query; to each channel's step, with its offset; a rate of forgetting
            # each element of the state; the share of the input that is kept.
            found += self.values * (self.from_values + self.step_rank + 1 + self.key_width + 1)
        return found
