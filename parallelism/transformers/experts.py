"""The mixture-of-experts layers of a model."""

from dataclasses import dataclass

from codesign_base import InputError
from codesign_base.arguments import check_flags
from codesign_base.counted import counted
from parallelism.transformers.limits import check_count_fields


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
    latent_width : int
        Width to which a token is projected before it goes to its experts, and from which their sum
        is projected back (Nemotron 3 Super's LatentMoE); 0: experts read the hidden width. Router
        and shared experts read that anyway.
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
    latent_width: int = 0

    def __post_init__(self) -> None:
        check_count_fields(
            "experts", self,
            {"count": 1, "per_token": 1, "width": 1, "shared": 0, "shared_width": 0,
             "first_dense": 0, "every": 1, "groups": 1, "groups_per_token": 1, "latent_width": 0},
        )  # fmt: skip
        check_flags("experts", self)
        if self.per_token > self.count:
            raise InputError(
                f"experts: per_token is {self.per_token} of {counted(self.count, 'expert')}; "
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

    @property
    def most_imbalance(self) -> float:
        """Tokens of the busiest rank over the mean at most: every token goes to its experts."""
        return self.count / self.per_token

    def reads(self, hidden: int) -> int:
        """Return the width that routed experts read and return, where layers have this one."""
        return self.latent_width or hidden
