"""MSCCL algorithm files of a plan's collectives: rings of groups that reduce, all-to-alls."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from codesign_base.counted import counted
from parallelism.operator_records import OperatorQuestion, StrategyRecord
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.layout import Layout
from parallelism.transformers.stages import mixing_stages
from routing.network import NodePath
from routing.pair_paths import pair_paths
from topoopt.deploy.deployment import Deployment
from topoopt.deploy.launch import planned_layout
from topoopt.formats.msccl import ring_allgather, ring_allreduce, ring_reduce_scatter
from topoopt.formats.msccl_alltoall import routed_alltoall
from topoopt.formats.msccl_blocks import MOST_STEPS
from topoopt.plan.plan import Plan
from topoopt.plan.rank_groups import (
    copy_groups,
    expert_groups,
    groups_along,
    servers_of,
    sharing_groups,
    token_groups,
)
from topoopt.plan.ranks import Rank, ring_ranks
from topoopt.plan.rebuild import rebuild_fabric
from topoopt.topology.ring_links import ring_links
from topoopt.topology.wiring import ring_orders

MOST_PATH_CHUNKS = 4
"""Chunks into which what one rank sends another is divided, to go over several paths."""


def msccl_files(made: Deployment, ranks: list[Rank], notes: list[str]) -> dict[str, str]:
    """Return files of each group that reduces or exchanges over several servers.

    Sharded optimizer states and weights are reduced and gathered in two collectives, all else,
    such as one share in several copies, in one, over the rings wired for the group's servers.
    Groups without such rings take those that the plan's simulation gives them, over its routes,
    as all-to-alls go.

    Parameters
    ----------
    made : Deployment
    ranks : list of Rank
    notes : list of str
        What is left out is added.
    """
    asked = planned_layout(made.plan)
    whole = collectives = {"allreduce": ring_allreduce}
    if asked is not None and asked[1].zero > 0:
        collectives = {"reduce-scatter": ring_reduce_scatter, "allgather": ring_allgather}
    orders = channels_by_servers(made)
    files: dict[str, str] = {}
    alike: dict[tuple[str, int], set[str]] = defaultdict(set)
    without = 0
    copying = copying_groups(made.plan, ranks)
    for name, group in reducing_groups(made.plan, ranks).items():
        servers = servers_of(group)
        if len(servers) == 1:
            continue  # inside a server, where NCCL needs no plan
        if servers not in orders:
            without += 1
            chosen = rebuild_fabric(made.plan).rings_of(servers)
            orders[servers] = [tuple(order) for order in chosen]
        rings = ring_ranks(orders[servers], group)
        for kind, write in (whole if name in copying else collectives).items():
            text = write(f"{kind}-{name}", rings)
            files[f"msccl/{kind}-{name}.xml"] = text
            alike[kind, len(group)].add(text.replace(name, ""))
    if asked is not None:
        files |= _alltoalls(made, exchanging_groups(asked[0].model, asked[1], ranks), notes)
    if without:
        notes.append(
            f"MSCCL: the plan has no rings for {counted(without, 'group')} of ranks that reduce "
            "together: theirs are those of its simulation, where rdma.sh joins hosts without a "
            "cable"
        )
    if any(len(texts) > 1 for texts in alike.values()):
        notes.append(
            "MSCCL: it takes a file by collective and number of ranks, of which groups of the plan "
            "have several files: give each process those of its own groups"
        )
    long = sum(f's="{MOST_STEPS}"' in text for text in files.values())
    if long:
        notes.append(
            f"MSCCL: there are thread blocks of more than {MOST_STEPS} steps in "
            f"{counted(long, 'file')}, which its runtime refuses without a larger "
            "MSCCL_MAX_NUM_STEPS"
        )
    return files


def channels_by_servers(made: Deployment) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Return a ring for each channel of each set of servers.

    A channel uses one cable between two servers. Every ring is one, and rings come again, in turn,
    while all their links have a cable that no channel uses.

    Parameters
    ----------
    made : Deployment
    """
    of_plan = ring_orders(ring.wired for ring in made.plan.rings)
    found = {servers: list(orders) for servers, orders in of_plan.items()}
    rings = [(servers, order) for servers, orders in found.items() for order in orders]
    free = Counter({step: len(ports) for step, ports in made.cabling.ports_to.items()})
    for _, order in rings:
        free.subtract(ring_links(order))
    more = True
    while more:
        more = False
        for servers, order in rings:
            if all(free[step] > 0 for step in ring_links(order)):
                free.subtract(ring_links(order))
                found[servers].append(order)
                more = True
    return found


def next_hosts(group: Sequence[Rank]) -> set[tuple[int, int]]:
    """Return the links of NCCL's own rings: from host to next host in the order of ranks."""
    return set(ring_links(tuple(dict.fromkeys(rank.server for rank in group))))


def reducing_groups(plan: Plan, ranks: list[Rank]) -> dict[str, list[Rank]]:
    """Return the groups whose gradients are summed, by name.

    Data and context ranks of a stage, and if experts are spread those of them that have the same
    experts, in each copy of sharded states, and all copies of a share; or replicas of operators.

    Parameters
    ----------
    plan : Plan
    ranks : list of Rank
    """
    asked = planned_layout(plan)
    if asked is None:
        return {
            f"group{number}": [rank for rank in ranks if rank.server in servers]
            for number, servers in enumerate(sorted(_replica_servers(plan)))
        }
    layout = asked[1]
    kinds = {"tensor": sharing_groups(layout, ranks)}
    if layout.expert > 1:
        kinds["experts"] = expert_groups(layout, ranks)
    return {
        f"stage{stage}-{kind}{place}" + (f"-copy{copy}" if layout.replicate > 1 else ""): group
        for kind, groups in kinds.items()
        for (stage, place, copy), group in groups.items()
        if len(group) > 1
    } | copying_groups(plan, ranks)


def copying_groups(plan: Plan, ranks: list[Rank]) -> dict[str, list[Rank]]:
    """Return the groups that sum the gradients of one share over all copies, by name.

    Parameters
    ----------
    plan : Plan
    ranks : list of Rank
    """
    asked = planned_layout(plan)
    if asked is None or asked[1].replicate == 1:
        return {}
    return {
        f"stage{stage}-tensor{tensor}-context{context}-share{share}": group
        for (stage, tensor, context, share), group in copy_groups(asked[1], ranks).items()
    }


def exchanging_groups(
    model: Transformer, layout: Layout, ranks: list[Rank]
) -> dict[str, list[Rank]]:
    """Return the groups that exchange tokens, or heads of linear attention, by name.

    Parameters
    ----------
    model : Transformer
    layout : Layout
    ranks : list of Rank
    """
    tokens = token_groups(layout, ranks) if layout.expert > 1 else {}
    heads = mixing_stages(model, layout, heads=True) if layout.context > 1 else ()
    return {f"stage{p}-group{g}-{s}": group for (p, g, s), group in tokens.items()} | {
        f"heads-stage{p}-data{d}-tensor{t}": group
        for (t, d, p), group in groups_along(ranks, ("context",)).items()
        if p in heads
    }


def _alltoalls(
    made: Deployment, groups: Mapping[str, list[Rank]], notes: list[str]
) -> dict[str, str]:
    files: dict[str, str] = {}
    rounded = forwarded = 0
    for name, group in groups.items():
        servers = servers_of(group)
        if len(servers) == 1:
            continue
        ways = {
            (a, b): pair_paths(made.network, made.routes, a, b)
            for a in servers
            for b in servers
            if a != b
        }
        parts = min(max(map(len, ways.values())), MOST_PATH_CHUNKS)
        wanted = {pair: chunk_paths(found, parts) for pair, found in ways.items()}
        rounded += any(
            abs(wanted[pair].count(path) / parts - share) > 1e-6
            for pair, found in ways.items()
            for path, share in found
        )
        forwarded += any(
            not set(path) <= set(servers) for paths in wanted.values() for path in paths
        )
        text = routed_alltoall(f"alltoall-{name}", len(group), _rank_paths(group, wanted, parts))
        files[f"msccl/alltoall-{name}.xml"] = text
    if rounded:
        notes.append(
            f"MSCCL: {counted(rounded, 'all-to-all divides', 'all-to-alls divide')} what a pair "
            f"sends over paths in up to {MOST_PATH_CHUNKS} equal chunks, near to the plan's shares"
        )
    if forwarded:
        notes.append(
            f"MSCCL: {counted(forwarded, 'all-to-all has', 'all-to-alls have')} paths through "
            "hosts outside of their group, which forward by rdma.sh"
        )
    return files


def chunk_paths(found: Sequence[tuple[NodePath, float]], parts: int) -> list[NodePath]:
    """Return the path of each of some equal chunks, in numbers nearest to shares.

    Parameters
    ----------
    found : sequence of (tuple of int, float)
        Paths and their shares, which sum to one.
    parts : int
        Chunks, given out by largest remainders.
    """
    counts = [int(share * parts + 1e-9) for _, share in found]
    by_rest = sorted(
        range(len(found)), key=lambda i: (counts[i] - found[i][1] * parts, -found[i][1], i)
    )
    for i in by_rest[: parts - sum(counts)]:
        counts[i] += 1
    return [path for (path, _), count in zip(found, counts, strict=True) for _ in range(count)]


def _rank_paths(
    group: Sequence[Rank], wanted: Mapping[tuple[int, int], list[NodePath]], parts: int
) -> dict[tuple[int, int], list[NodePath]]:
    """Return paths of ranks, by their numbers in the group: in between those of the sender's GPU.

    Servers without a rank of the group forward packets on their own, and are no part of it.
    """
    here: dict[int, list[int]] = defaultdict(list)
    for number, rank in enumerate(group):
        here[rank.server].append(number)
    found: dict[tuple[int, int], list[NodePath]] = {}
    for a, one in enumerate(group):
        turn = here[one.server].index(a)
        for b, other in enumerate(group):
            if a == b:
                continue
            if one.server == other.server:
                found[a, b] = [(a, b)] * parts
                continue
            found[a, b] = [
                (a, *(here[s][turn % len(here[s])] for s in path[1:-1] if s in here), b)
                for path in wanted[one.server, other.server]
            ]
    return found


def _replica_servers(plan: Plan) -> set[tuple[int, ...]]:
    """Return the servers of each group of replicas of an operator's dense weights."""
    found: set[tuple[int, ...]] = set()
    if isinstance(plan.parallelization, StrategyRecord) and isinstance(plan.job, OperatorQuestion):
        for record, operator in zip(
            plan.parallelization.operators, plan.job.model.operators, strict=True
        ):
            if operator.parameters and not operator.sparse:
                for shard in range(record.parameter):
                    found.add(tuple(sorted(record.servers[shard :: record.parameter])))
    return {servers for servers in found if len(servers) > 1}
