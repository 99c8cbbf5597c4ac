"""Layers whose tokens meet through a state of fixed size: linear attention, state spaces."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from codesign_base import InputError
from codesign_base.arguments import check_flags, told
from parallelism.transformers.limits import check_counts, check_layer_numbers

Recurrence = Literal["gated-deltanet", "kda", "mamba-2"]


@dataclass(frozen=True)
class LinearAttention:
    """The layers of a model whose tokens meet through a state, not through each other's keys.

    Each head keeps a state of ``key_width`` by ``value_width`` elements that forgets, takes in a
    token's key and value, and is read by its query. Kernels work through chunks of tokens: within
    one by products of all pairs, between chunks by the state.

    Parameters
    ----------
    kind : {"gated-deltanet", "kda", "mamba-2"}
        Gated DeltaNet (Yang et al., 2024), Kimi Delta Attention, which forgets by elements of the
        key (Kimi Linear, 2025, section 3), or Mamba-2 (Dao and Gu, 2024), where "queries", "keys",
        "values" are what the paper calls C, B and x.
    key_heads, heads : int
        Heads of queries and keys, and of values and states, of which the former are a divisor
        (Mamba-2's groups; for KDA both are the same).
    key_width, value_width : int
        Widths of a head.
    convolution : int
        Tokens that the causal convolution of queries, keys and values reaches.
    convolution_bias : bool
    full_layers : tuple of int
        Layers with the model's `Attention` instead, in ascending order.
    chunk : int
        Tokens that a kernel takes at once.
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

    def __post_init__(self) -> None:
        if self.kind not in get_args(Recurrence):
            raise InputError(
                f"linear attention: kind is {told(self.kind)}; choose one of "
                f"{', '.join(get_args(Recurrence))}"
            )
        check_counts(
            "linear attention", self,
            {"key_heads": 1, "heads": 1, "key_width": 1, "value_width": 1, "convolution": 1,
             "chunk": 1},
        )  # fmt: skip
        check_flags("linear attention", self)
        check_layer_numbers("linear attention: full_layers", self.full_layers)
        if self.heads % self.key_heads or (self.kind == "kda" and self.heads != self.key_heads):
            raise InputError(
                f"linear attention: key_heads is {self.key_heads} beside {self.heads} heads; give "
                + ("the same of both" if self.kind == "kda" else "a divisor")
            )

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
    def keys(self) -> int:
        """Width of all heads' keys together, which is that of the queries."""
        return self.key_heads * self.key_width

    @property
    def values(self) -> int:
        """Width of all heads' values together, which the output projection reads."""
        return self.heads * self.value_width

    @property
    def mixed(self) -> int:
        """Width of queries, keys and values together, which the convolution passes over."""
        return 2 * self.keys + self.values

    @property
    def projected(self) -> int:
        """Width of what a token's input is projected to and each head has its own part of.

        Queries, keys and values; and, but for KDA, the output's gate. Then a number each head:
        how much to forget, and, but for Mamba-2, how much to learn.
        """
        if self.kind == "kda":
            return self.mixed + self.heads
        return self.mixed + self.values + (1 if self.kind == "mamba-2" else 2) * self.heads

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

    def parameters(self, hidden: int) -> int:
        """Return the trainable parameters of a layer, its own norm included."""
        return self.shared_parameters(hidden) + self.split_parameters(hidden)

    def shared_parameters(self, hidden: int) -> int:
        """Return those that each tensor rank has whole."""
        # Mamba-2's norm has weights for every element of all heads, the others' for one head's.
        norm = 0 if self.kind == "mamba-2" else self.value_width
        return hidden * self.low_ranks + norm

    def split_parameters(self, hidden: int) -> int:
        """Return those that tensor ranks share out by heads."""
        taps = self.convolution + self.convolution_bias
        matrices = hidden * (self.projected + self.values)
        if self.kind == "kda":
            # A rate of forgetting each head, an offset each element of keys.
            gates = self.value_width * (self.keys + self.values)
            return matrices + gates + taps * self.mixed + self.heads + self.keys
        # A rate and an offset of forgetting each head; Mamba-2: the share of the input kept, too.
        scalars = 2 * self.heads
        if self.kind == "mamba-2":
            scalars += self.heads + self.values
        return matrices + taps * self.mixed + scalars


__all__ = ["LinearAttention", "Recurrence"]
