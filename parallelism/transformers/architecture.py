"""What a transformer is: widths, heads, experts, and how many parameters that makes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from codesign_base import InputError
from codesign_base.arguments import check_flags, check_kind, told
from codesign_base.counted import counted
from codesign_base.hashed_once import hashed_once
from parallelism.transformers.attention import Attention, Indexer, SlidingWindow
from parallelism.transformers.experts import Experts
from parallelism.transformers.limits import check_count_fields, check_layer_numbers
from parallelism.transformers.linear_attention import LinearAttention

Norm = Literal["layernorm", "rmsnorm"]

_FROM = "of parallelism.transformers"
_PARTS = (
    ("attention", Attention, f"an Attention {_FROM}.attention"),
    ("linear", LinearAttention | None, f"None, or a LinearAttention {_FROM}.linear_attention"),
    ("experts", Experts | None, f"None, or Experts {_FROM}.experts"),
    ("window", SlidingWindow | None, f"None, or a SlidingWindow {_FROM}.attention"),
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
        told by its index, that of theirs is ``layers``. In models with linear attention or layers
        of one part, that layer has both parts: ``attention``, and a feed-forward part like the last
        one (Qwen3-Next, Nemotron 3).
    mtp_dense : bool
        Their layers are dense although the model's last one has experts (ERNIE 4.5).
    mtp_repeated : bool
        They are one module, used ``mtp_layers`` times (Nemotron 3, Megatron-Core's
        ``mtp_use_repeated_layer``): weights count once, work and activations each time.
    linear : LinearAttention, optional
        Instead of ``attention`` in all layers but its ``full_layers``, or beside it; only if
        ``causal``.
    without_feed_forward, without_attention : tuple of int
        Layers of one part (and half of the norms) only, in ascending order (Nemotron-H). Modules
        for multi-token prediction then have attention and a feed-forward part all the same.
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
    mtp_repeated: bool = False
    linear: LinearAttention | None = None
    without_feed_forward: tuple[int, ...] = ()
    without_attention: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_kind("transformer: name", self.name, str, "a text")
        check_count_fields(
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
                f"{counted(self.layers, 'layer')}; give fewer"
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
        self._check_layers()

    def _check_layers(self) -> None:
        """Refuse kinds of layers that there are not, or that cannot be together."""
        where = f"transformer {self.name!r}"
        for name, found in (("a sliding window", self.window), ("linear attention", self.linear)):
            if found is not None:
                check_layer_numbers(f"{where}: full_layers", found.full_layers, self.layers)
                if not self.causal:
                    raise InputError(f"{where}: {name}, but causal is False; leave one out")
        for name in ("without_feed_forward", "without_attention"):
            check_layer_numbers(f"{where}: {name}", getattr(self, name), self.layers)
        neither = set(self.linear.full_layers if self.linear else ()) & set(self.without_attention)
        if neither:
            raise InputError(
                f"{where}: full_layers and without_attention both name layer {min(neither)}; leave "
                "it out of one"
            )
        if self.indexer is not None:
            check_layer_numbers(f"{where}: indexer's shared", self.indexer.shared, self.layers)
            if not self.causal or self.window:
                beside = "a sliding window" if self.causal else "causal is False"
                raise InputError(f"{where}: an indexer, but {beside}; leave one out")
            for layer in self.indexer.shared:
                if not self.has_attention(layer) or not any(map(self.has_indexer, range(layer))):
                    raise InputError(
                        f"{where}: indexer's shared names layer {layer}, which has no attention, "
                        "or before which no layer chooses keys; leave it out"
                    )
        both = set(self.without_feed_forward) & set(self.without_attention)
        if both:
            raise InputError(
                f"{where}: layer {min(both)} is without attention and without feed-forward part; "
                "leave it out of one"
            )
        if self.parallel and (self.without_feed_forward or self.without_attention):
            raise InputError(f"{where}: parallel, but some layers have one part; leave one out")

    def has_linear(self, layer: int) -> bool:
        """Whether tokens meet through a state of fixed size in a layer."""
        return (
            self.linear is not None
            and layer < self.layers
            and layer not in self.linear.full_layers
            and layer not in self.without_attention
        )

    def has_attention(self, layer: int) -> bool:
        """Whether tokens meet each other's keys in a layer."""
        if layer in self.without_attention:
            return False
        beside = self.linear is not None and self.linear.beside_attention
        return beside or not self.has_linear(layer)

    @property
    def exchanges_heads(self) -> bool:
        """Whether ranks of a context group exchange heads of linear attention."""
        return self.linear is not None and self.linear.exchanges_heads

    @property
    def indexer(self) -> Indexer | None:
        """What chooses the keys that a token meets, if anything does."""
        return self.attention.latent.indexer if self.attention.latent else None

    def has_indexer(self, layer: int) -> bool:
        """Whether a layer chooses keys itself, as those of modules do."""
        indexer = self.indexer
        return indexer is not None and self.has_attention(layer) and layer not in indexer.shared

    def is_sparse(self, layer: int, sequence: int) -> bool:
        """Whether tokens meet only the keys that an indexer chose of all before them."""
        indexer = self.indexer
        return indexer is not None and self.has_attention(layer) and sequence > indexer.keys

    def has_feed_forward(self, layer: int) -> bool:
        """Whether a layer has a feed-forward part, be it dense or of experts."""
        return layer not in self.without_feed_forward

    def parts(self, layer: int) -> int:
        """Return how many parts a layer adds to its input: 2, or 1 of few models."""
        return 2 - (layer in self.without_feed_forward) - (layer in self.without_attention)

    def norms(self, layer: int) -> int:
        """Return the norms of a layer over the hidden width."""
        return self.layer_norms * self.parts(layer) // 2 if self.layer_norms > 1 else 1

    def slides(self, layer: int) -> bool:
        """Whether tokens meet only the keys near them in a layer."""
        if self.window is None or not self.has_attention(layer):
            return False
        return min(layer, self.layers - 1) not in self.window.full_layers

    def meets_few(self, layer: int) -> bool:
        """Whether a layer's tokens meet others by a window or by linear attention."""
        return self.slides(layer) or self.has_linear(layer)

    @cached_property
    def kinds_of_attention(self) -> int:
        """Kinds of layers by `meets_few`, but for those whose context ranks exchange heads."""
        layers = [
            i for i in range(self.layers) if not (self.has_linear(i) and self.exchanges_heads)
        ]
        return len({self.meets_few(layer) for layer in layers})

    def score_share(self, layer: int, sequence: int) -> float:
        """Return the scores of a layer that count, over all of them, masked ones included."""
        if self.window is not None and self.slides(layer):
            return self.window.share(sequence)
        if self.indexer is not None and self.has_attention(layer):
            return self.indexer.share(sequence)
        return 0.5 if self.causal else 1.0

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's feed-forward part is a mixture of experts."""
        experts = self.experts
        if layer >= self.layers:
            if self.mtp_dense:
                return False
            fed = (one for one in range(self.layers) if one not in self.without_feed_forward)
            layer = max(fed, default=0)
        if experts is None or layer < experts.first_dense or layer in self.without_feed_forward:
            return False
        return (layer - experts.first_dense) % experts.every == experts.every - 1

    def norm_parameters(self) -> int:
        """Return the parameters of one norm over the hidden width."""
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    def dense_parameters(self, width: int, read: int = 0) -> int:
        """Return the parameters of one feed-forward part (or expert) of a width.

        It reads and returns ``read`` elements of a token, or the hidden width.
        """
        read = read or self.hidden
        matrices = 3 if self.gated else 2
        biases = ((2 if self.gated else 1) * width + read) if self.bias else 0
        return matrices * read * width + biases

    def router_parameters(self) -> int:
        """Return the parameters of one layer's router (and shared experts' gate)."""
        if self.experts is None:
            return 0
        experts = self.experts
        bias = experts.count if experts.router_bias else 0
        return self.hidden * (experts.count + experts.shared_gate) + bias

    def latent_parameters(self) -> int:
        """Return the parameters of the projections to and from the width that experts read."""
        return 2 * self.hidden * self.experts.latent_width if self.experts else 0

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
        common = self.norms(layer) * self.norm_parameters()
        if self.has_attention(layer):
            common += self.attention.parameters(self.hidden)
            if self.attention.latent and not self.has_indexer(layer):
                common -= self.attention.latent.indexer_parameters(self.hidden)
        if self.linear is not None and self.has_linear(layer):
            common += self.linear.parameters(self.hidden)
        if not self.has_feed_forward(layer):
            return common
        if not self.has_experts(layer):
            return common + self.dense_parameters(self.feed_forward)
        experts = self.experts
        assert experts is not None
        routed = self.dense_parameters(experts.width, experts.latent_width)
        routed *= experts.per_token if active else experts.count
        shared = experts.shared * self.dense_parameters(experts.shared_width)
        return common + routed + shared + self.router_parameters() + self.latent_parameters()

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
    def mtp_modules(self) -> int:
        """Modules for multi-token prediction with weights of their own."""
        return min(1, self.mtp_layers) if self.mtp_repeated else self.mtp_layers

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
        more = self.mtp_modules * module
        return self.embedding_parameters + sum(layers) + more + self.head_parameters
