"""Which rank of the job runs on which GPU of which host."""

from dataclasses import dataclass

from parallelism.transformers.placement import Placement
from parallelism.transformers.records import LayoutRecord
from topoopt.plan.plan import Plan


@dataclass(frozen=True)
class Rank:
    """A rank of the job, as the training software numbers it.

    Parameters
    ----------
    number : int
    server, gpu : int
        Where it runs.
    place : dict of str to int
        Its coordinate on each axis of a layout, the innermost first; empty for operators.
    """

    number: int
    server: int
    gpu: int
    place: dict[str, int]


def ranks_of(plan: Plan) -> list[Rank]:
    """Return all ranks, ascending.

    Of layouts ranks are numbered as Megatron-LM and torchtitan do: tensor innermost, then
    context, data and pipeline (Megatron's order "tp-cp-ep-dp-pp"). Of operators every GPU is a
    rank, server by server.

    Parameters
    ----------
    plan : Plan
    """
    gpus = plan.job.server.gpus
    if not isinstance(plan.parallelization, LayoutRecord):
        return [Rank(i, i // gpus, i % gpus, {}) for i in range(plan.cluster.servers * gpus)]
    layout = plan.parallelization.layout
    placement = Placement(layout, gpus, plan.parallelization.order)
    ranks = []
    for number in range(layout.gpus):
        rest, tensor = divmod(number, layout.tensor)
        rest, context = divmod(rest, layout.context)
        pipeline, data = divmod(rest, layout.data)
        at = int(placement.rank[context, data, pipeline]) * layout.tensor + tensor
        place = {"tensor": tensor, "context": context, "data": data, "pipeline": pipeline}
        ranks.append(Rank(number, at // gpus, at % gpus, place))
    return ranks


def ring_ranks(orders: list[tuple[int, ...]], ranks: list[Rank]) -> list[list[int]]:
    """Return rings of servers as rings of the ranks on them, in the numbers of their group.

    Within a server a ring goes through all of the group's ranks there; ring r enters at the r-th
    of them, so that rings use different GPUs, and the network adapters near them.

    Parameters
    ----------
    orders : list of tuple of int
        Servers of each ring.
    ranks : list of Rank
        Those of the group.
    """
    at: dict[int, list[int]] = {}
    for number, rank in enumerate(ranks):
        at.setdefault(rank.server, []).append(number)
    rings = []
    for turn, order in enumerate(orders):
        ring: list[int] = []
        for server in order:
            here = at[server]
            first = turn % len(here)
            ring += [*here[first:], *here[:first]]
        rings.append(ring)
    return rings
