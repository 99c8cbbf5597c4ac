"""How many ranks or servers hold experts of one token."""

from math import comb, exp, lgamma

from parallelism.transformers.experts import Experts
from parallelism.transformers.training import Training


def copies_sent(training: Training) -> float:
    """Return how often a token is sent: once for each of its experts, or once for each rank."""
    experts = training.model.experts
    assert experts is not None
    if training.implementation.forwarded_tokens:
        return servers_reached(experts, training.layout.expert)
    return experts.per_token


def servers_reached(experts: Experts, servers: int) -> float:
    """Return the mean number of servers that hold experts of one token.

    Parameters
    ----------
    experts : Experts
    servers : int
        Over which the experts are spread evenly, in their order.

    Returns
    -------
    float
        Tokens choose ``groups_per_token`` groups, and ``per_token`` experts in these, all choices
        alike. Where neither groups nor servers divide the other, groups are not looked at.
    """
    groups, chosen = experts.groups, experts.groups_per_token
    if max(groups, servers) % min(groups, servers):
        groups = chosen = 1
    own = max(1, groups // servers)
    # Experts of a chosen group that one server holds; experts that a token may choose.
    held, pool = experts.count / max(groups, servers), chosen * experts.count / groups
    missed = 0.0
    for hit in range(min(own, chosen) + 1):
        share = comb(own, hit) * comb(groups - own, chosen - hit) / comb(groups, chosen)
        if share:
            missed += share * _none_of(hit * held, pool, experts.per_token)
    return servers * (1.0 - missed)


def _none_of(some: float, pool: float, drawn: int) -> float:
    """Return the chance that none of ``some`` in a pool is among so many drawn from it."""
    if pool - some < drawn:
        return 0.0
    left = lgamma(pool - some + 1.0) - lgamma(pool - some - drawn + 1.0)
    return exp(left + lgamma(pool - drawn + 1.0) - lgamma(pool + 1.0))
