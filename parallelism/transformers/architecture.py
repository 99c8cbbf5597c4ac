"""What a transformer is: widths, heads, experts, and how many parameters that makes."""

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal, get_args

from codesign_base import InputError
from codesign_base.arguments import check_flags, check_kind, told
from codesign_base.hashed_once import hashed_once

Norm = Literal["layernorm", "rmsnorm"]


# No model is larger; what is comes of a slip, and loops over layers would not end.
MOST_LAYERS, MOST_WIDTH = 10_000, 2**31
MOST_GROUPS = 1024
"""Groups of experts."""
_COUNTS_OF_LAYERS = ("layers", "first_dense", "every", "mtp_layers")


def _check_counts(what: str, record: object, least: dict[str, int]) -> None:
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if field.name not in least:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least[field.name]:
            raise InputError(
                f"{what}: {field.name} is {value!r}; give a whole number of at least "
                f"{least[field.name]}"
            )
        most = MOST_LAYERS if field.name in _COUNTS_OF_LAYERS else MOST_WIDTH
        most = MOST_GROUPS if field.name == "groups" else most
        if value > most:
            raise InputError(f"{what}: {field.name} is {value}; give at most {most}")


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
    """

    kv_rank: int
    query_rank: int
    rope_width: int
    value_width: int

    def __post_init__(self) -> None:
        _check_counts(
            "latent attention", self,
            {"kv_rank": 1, "query_rank": 0, "rope_width": 0, "value_width": 1},
        )  # fmt: skip


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

    def __post_init__(self) -> None:
        _check_counts("attention", self, {"heads": 1, "kv_heads": 1, "head_width": 1})
        check_flags("attention", self)
        check_kind(
            "attention: latent", self.latent, LatentAttention | None, "None, or a LatentAttention"
        )
        if self.heads % self.kv_heads:
            raise InputError(
                f"attention: kv_heads is {self.kv_heads}, which does not divide the {self.heads} "
                "heads; give a divisor"
            )
        if self.wide_norm and (self.head_norm or self.latent):
            raise InputError(
                "attention: wide_norm is set beside head_norm or latent; give one of them"
            )

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
            return query + down + up + output
        width = self.query_width + 2 * self.kv_heads * self.head_width
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
        _check_counts("sliding window", self, {"width": 1})
        check_flags("sliding window", self)
        full = self.full_layers
        if (
            not isinstance(full, tuple)
            or any(type(layer) is not int for layer in full)
            or any(a >= b for a, b in pairwise((-1, *full)))
        ):
            raise InputError(
                f"sliding window: full_layers is {told(full)}; give a tuple of layer numbers from "
                "0 in ascending order"
            )

    def share(self, sequence: int) -> float:
        """Return the scores of a sample that count, over all of them, masked ones included."""
        width = min(self.width, sequence)
        if not self.chunked:
            return width / sequence * (1.0 - 0.5 * width / sequence)
        chunks, rest = divmod(sequence, width)
        return 0.5 * (chunks * width**2 + rest**2) / sequence**2


@dataclass(frozen=True)
class Experts:
    """The mixture-of-experts layers of a model.

    Parameters
    ----------
    count : int
        Routed experts of a layer.
    per_token : int
        Experts that each token goes to.
    width : int
        Feed-forward width of a routed expert.
    shared : int
        Experts that every token goes to.
    shared_width : int
        Feed-forward width of each of them.
    shared_gate : bool
        A learned gate (hidden -> 1) scales the shared experts (Qwen2-MoE).
    first_dense : int
        Layers before the first one with experts.
    every : int
        Of the layers after these, each ``every``-th has experts; the others are dense.
    router_bias : bool
        The router has a bias per expert (GPT-OSS; DeepSeek-V3's, which balances load, is stored
        but not trained).
    groups, groups_per_token : int
        Equal groups of neighbouring experts, and how many of them a token's experts lie in at
        most (DeepSeek-V3, section 2.1.2: node-limited routing, where a group is a server's).
    """

    count: int
    per_token: int
    width: int
    shared: int = 0
    shared_width: int = 0
    shared_gate: bool = False
    first_dense: int = 0
    every: int = 1
    router_bias: bool = False
    groups: int = 1
    groups_per_token: int = 1

    def __post_init__(self) -> None:
        _check_counts(
            "experts", self,
            {"count": 1, "per_token": 1, "width": 1, "shared": 0, "shared_width": 0,
             "first_dense": 0, "every": 1, "groups": 1, "groups_per_token": 1},
        )  # fmt: skip
        check_flags("experts", self)
        if self.per_token > self.count:
            raise InputError(
                f"experts: per_token is {self.per_token} of {self.count} experts; "
                "give at most their count"
            )
        reached = self.groups_per_token * self.count // self.groups
        if self.count % self.groups or not self.per_token <= reached <= self.count:
            raise InputError(
                f"experts: groups_per_token is {self.groups_per_token} of groups {self.groups}; "
                f"give equal groups of the {self.count} experts, of which so many hold at least "
                f"per_token = {self.per_token}"
            )
        if self.shared and not self.shared_width:
            raise InputError("experts: shared_width is 0 but there are shared experts; give it")


_HERE = "of parallelism.transformers.architecture"
_PARTS = (
    ("attention", Attention, f"an Attention {_HERE}"),
    ("experts", Experts | None, f"None, or Experts {_HERE}"),
    ("window", SlidingWindow | None, f"None, or a SlidingWindow {_HERE}"),
)


@hashed_once
@dataclass(frozen=True)
class Transformer:
    """A decoder-only language model, an encoder, or a vision transformer.

    Parameters
    ----------
    name : str
    layers, hidden : int
    attention : Attention
    feed_forward : int
        Width of the dense feed-forward layers.
    vocabulary : int
        Tokens (0: none, as in a vision transformer).
    sequence : int
        Tokens of a sample, the default of a job.
    gated : bool
        Feed-forward of three matrices (SwiGLU) rather than two.
    bias : bool
        Biases in feed-forward layers and norms' offsets follow ``norm``; attention has its own.
    norm : {"layernorm", "rmsnorm"}
        Two vectors or one; ``layer_norms`` norms a layer and one at the end.
    layer_norms : {1, 2, 4}
        Norms of a layer over the hidden width: before attention and feed-forward part (2), one
        that both read (1, only if ``parallel``), or before and after each of them (4).
    parallel : bool
        Attention and feed-forward part both read the layer's input (GPT-NeoX, Falcon) rather
        than one after the other; a tensor group sums their outputs at once.
    positions : int
        Learned position vectors (0: rotary or none).
    tied : bool
        The output projection shares the token embedding.
    causal : bool
        Tokens look back only; half of the attention scores count.
    experts : Experts, optional
    patch : int
        Elements of an image patch that a linear embedding reads (0: tokens are embedded).
    classes : int
        Outputs of a classification head (0: the head is the vocabulary projection).
    dense_bytes : int
        Bytes of a weight, activation or gradient element in training (2: BF16 or FP16).
    source : str
        Where the numbers are from.
    window : SlidingWindow, optional
        Of some layers, or all; only if ``causal``.
    mtp_layers : int
        Modules for multi-token prediction (DeepSeek-V3, section 2.2), which predict further tokens:
        each projects the normed states of the last layer (or module) and the normed embeddings of
        the tokens that follow to the hidden width, and has one more layer like the last, a norm,
        and a loss by the model's output projection. They sit with the head. Wherever a layer is
        told by its index, that of theirs is ``layers``.
    mtp_dense : bool
        Their layers are dense although the model's last one has experts (ERNIE 4.5).
    """

    name: str
    layers: int
    hidden: int
    attention: Attention
    feed_forward: int
    vocabulary: int
    sequence: int
    gated: bool = False
    bias: bool = False
    norm: Norm = "rmsnorm"
    layer_norms: int = 2
    parallel: bool = False
    positions: int = 0
    tied: bool = False
    causal: bool = True
    experts: Experts | None = None
    patch: int = 0
    classes: int = 0
    dense_bytes: int = 2
    source: str = ""
    window: SlidingWindow | None = None
    mtp_layers: int = 0
    mtp_dense: bool = False

    def __post_init__(self) -> None:
        check_kind("transformer: name", self.name, str, "a text")
        _check_counts(
            f"transformer {self.name!r}", self,
            {"layers": 1, "hidden": 1, "feed_forward": 1, "vocabulary": 0, "sequence": 1,
             "positions": 0, "patch": 0, "classes": 0, "dense_bytes": 1, "mtp_layers": 0},
        )  # fmt: skip
        for name, kind, instead in _PARTS:
            what = f"transformer {self.name!r}: {name}"
            check_kind(what, getattr(self, name), kind, instead)
        check_flags(f"transformer {self.name!r}", self)
        check_kind(f"transformer {self.name!r}: source", self.source, str, "a text")
        if self.norm not in get_args(Norm):
            raise InputError(
                f"transformer {self.name!r}: norm is {told(self.norm)}; choose "
                f"{' or '.join(get_args(Norm))}"
            )
        if bool(self.vocabulary) == bool(self.patch):
            raise InputError(
                f"transformer {self.name!r}: vocabulary is {self.vocabulary} and patch "
                f"{self.patch}; give one of them, and 0 for the other"
            )
        if self.patch and self.sequence < 2:
            raise InputError(
                f"transformer {self.name!r}: sequence is 1, the class token alone; give at least 2"
            )
        if self.layer_norms not in (1, 2, 4) or (self.layer_norms == 1 and not self.parallel):
            raise InputError(
                f"transformer {self.name!r}: layer_norms is {self.layer_norms!r}; "
                "choose 2 or 4, or 1 with parallel=True"
            )
        if self.classes and self.tied:
            raise InputError(
                f"transformer {self.name!r}: tied, but a model with classes has no vocabulary "
                "projection; leave tied out"
            )
        if self.experts and self.experts.first_dense >= self.layers:
            raise InputError(
                f"transformer {self.name!r}: first_dense is {self.experts.first_dense} of "
                f"{self.layers} layers; give fewer"
            )
        if self.mtp_layers and not (self.causal and self.vocabulary and not self.classes):
            raise InputError(
                f"transformer {self.name!r}: mtp_layers is {self.mtp_layers}, but the model does "
                "not predict tokens from those before; leave it out"
            )
        if self.mtp_dense and self.experts is None:
            raise InputError(
                f"transformer {self.name!r}: mtp_dense is True, but no layer has experts; leave it "
                "out"
            )
        window = self.window
        if window is not None and not self.causal:
            raise InputError(
                f"transformer {self.name!r}: a sliding window, but causal is False; leave one out"
            )
        if window is not None and window.full_layers[-1:] >= (self.layers,):
            raise InputError(
                f"transformer {self.name!r}: full_layers names layer {window.full_layers[-1]} of "
                f"{self.layers}; give numbers below"
            )

    def slides(self, layer: int) -> bool:
        """Whether tokens meet only the keys near them in a layer."""
        layer = min(layer, self.layers - 1)
        return self.window is not None and layer not in self.window.full_layers

    def score_share(self, layer: int, sequence: int) -> float:
        """Return the scores of a layer that count, over all of them, masked ones included."""
        if self.window is not None and self.slides(layer):
            return self.window.share(sequence)
        return 0.5 if self.causal else 1.0

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's feed-forward part is a mixture of experts."""
        experts = self.experts
        if layer >= self.layers:
            if self.mtp_dense:
                return False
            layer = self.layers - 1
        if experts is None or layer < experts.first_dense:
            return False
        return (layer - experts.first_dense) % experts.every == experts.every - 1

    def norm_parameters(self) -> int:
        """Return the parameters of one norm over the hidden width."""
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    def dense_parameters(self, width: int) -> int:
        """Return the parameters of one feed-forward part (or expert) of a width."""
        matrices = 3 if self.gated else 2
        biases = ((2 if self.gated else 1) * width + self.hidden) if self.bias else 0
        return matrices * self.hidden * width + biases

    def router_parameters(self) -> int:
        """Return the parameters of one layer's router (and shared experts' gate)."""
        if self.experts is None:
            return 0
        experts = self.experts
        bias = experts.count if experts.router_bias else 0
        return self.hidden * (experts.count + experts.shared_gate) + bias

    def layer_parameters(self, layer: int, *, active: bool = False) -> int:
        """Return the parameters of one layer.

        Parameters
        ----------
        layer : int
        active : bool
            Only those that one token meets.

        Returns
        -------
        int
        """
        norms = self.layer_norms * self.norm_parameters()
        common = self.attention.parameters(self.hidden) + norms
        if not self.has_experts(layer):
            return common + self.dense_parameters(self.feed_forward)
        experts = self.experts
        assert experts is not None
        routed = (experts.per_token if active else experts.count) * self.dense_parameters(
            experts.width
        )
        shared = experts.shared * self.dense_parameters(experts.shared_width)
        return common + routed + shared + self.router_parameters()

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token or patch embedding and of learned positions."""
        patches = (self.patch + 1) * self.hidden + self.hidden if self.patch else 0
        return (self.vocabulary + self.positions) * self.hidden + patches

    @property
    def head_parameters(self) -> int:
        """Parameters of the last norm and of the classifier or (untied) output projection."""
        if self.classes:
            return self.norm_parameters() + (self.hidden + 1) * self.classes
        head = 0 if self.tied else self.vocabulary * self.hidden
        return self.norm_parameters() + head

    @property
    def reuses_embedding(self) -> bool:
        """Whether the last part needs the token embedding: as projection, or for more tokens."""
        return self.tied or self.mtp_layers > 0

    @property
    def joining_parameters(self) -> int:
        """Parameters of a module for multi-token prediction around its layer.

        Of the norms of states, of embeddings and before the output projection; and of the
        projection of both to the hidden width.
        """
        return 3 * self.norm_parameters() + 2 * self.hidden**2

    @property
    def parameters(self) -> int:
        """Trainable parameters."""
        return self._parameters(active=False)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets."""
        return self._parameters(active=True)

    def _parameters(self, *, active: bool) -> int:
        layers = [self.layer_parameters(layer, active=active) for layer in range(self.layers)]
        module = self.layer_parameters(self.layers, active=active) + self.joining_parameters
        more = self.mtp_layers * module
        return self.embedding_parameters + sum(layers) + more + self.head_parameters
