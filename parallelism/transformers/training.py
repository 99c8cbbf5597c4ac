"""A model as it is trained: its layout, the training software, the tokens of a sample."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from codesign_base.hashed_once import hashed_once
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.implementation import Implementation
from parallelism.transformers.layout import Layout
from parallelism.transformers.shares import rank_tokens


@hashed_once
@dataclass(frozen=True)
class Training:
    """A model as it is trained.

    Parameters
    ----------
    model : Transformer
    layout : Layout
    implementation : Implementation
        The training software.
    sequence : int
        Tokens of a sample.

    Raises
    ------
    InputError
        If the sequence is below 1 or beyond the model's learned positions, or the layout's context
        degree does not divide it.
    """

    model: Transformer
    layout: Layout
    implementation: Implementation
    sequence: int

    def __post_init__(self) -> None:
        rank_tokens(self.model, self.layout, self.sequence)

    @cached_property
    def of_layers(self) -> "Training":
        """The same in `Layout.of_layers`, one for all that ask for it."""
        return self._shared(self.layout.of_layers)

    @cached_property
    def of_weights(self) -> "Training":
        """The same in `Layout.of_weights`, one for all that ask for it."""
        return self._shared(self.layout.of_weights)

    def _shared(self, layout: Layout) -> "Training":
        return _shared_training(self.model, layout, self.implementation, self.sequence)

    @property
    def tokens(self) -> float:
        """Tokens of a microbatch on one rank."""
        return self.layout.microbatch * self.sequence / self.layout.context

    @property
    def own_tokens(self) -> float:
        """Of these, the tokens on which one rank does norms, dropouts and residual sums."""
        layout = self.layout
        return self.tokens / layout.tensor if layout.sequence_parallel else self.tokens

    @property
    def load_imbalance(self) -> float:
        """Tokens of the busiest expert rank over the mean, as far as they can differ at all.

        A rank that holds all experts of its group gets the mean, and no rank gets more than every
        token that there is, once for each expert that a token chooses and the rank holds.
        """
        experts = self.model.experts
        assert experts is not None
        asked = self.implementation.load_imbalance
        return min(asked, float(self.layout.expert), experts.most_imbalance)

    @property
    def arriving_tokens(self) -> float:
        """Tokens on which the routed experts of the busiest rank work."""
        experts = self.model.experts
        assert experts is not None
        share = self.layout.expert_split / self.layout.tensor
        return self.tokens * share * experts.per_token * self.load_imbalance

    @property
    def element(self) -> float:
        """Bytes of an element of weights and activations, but where they are in FP8."""
        return float(self.model.dense_bytes)

    @property
    def fp8(self) -> bool:
        """Whether products inside layers are in FP8."""
        return self.implementation.precision == "fp8"


@lru_cache(maxsize=4096)
def _shared_training(
    model: Transformer, layout: Layout, implementation: Implementation, sequence: int
) -> Training:
    """Return one training for all that ask for the same, whose hash is then known."""
    return Training(model, layout, implementation, sequence)
