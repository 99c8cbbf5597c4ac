"""Schedules that `topoopt collective` found as MSCCL algorithm files."""

from collections import defaultdict
from itertools import pairwise, permutations
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from routing.network import NodePath
from routing.pair_paths import pair_paths
from routing.paths import ecmp_routes
from topoopt.deploy.msccl_files import MOST_PATH_CHUNKS, chunk_paths
from topoopt.formats.collective_check import check_schedule
from topoopt.formats.msccl_alltoall import routed_alltoall
from topoopt.formats.msccl_blocks import MOST_STEPS
from topoopt.formats.msccl_trees import tree_collective
from topoopt.topology.network_json import network_of_document


def schedule_msccl(document: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the algorithm file of a schedule, once it is checked, and what to know of it.

    Parameters
    ----------
    document : dict
        As `topoopt.formats.collective_json.save_schedule` writes it.

    Returns
    -------
    files : dict of str to str
        Text by name.
    notes : list of str

    Raises
    ------
    InputError
        If the schedule is wrong, or is neither trees nor paths.
    """
    schedule = check_schedule(document)
    collective, members = document["collective"], document["members"]
    name = f"{collective}-{schedule.name}"
    notes = [
        "one rank a host, in the order of hosts: "
        + ", ".join(f"rank {rank} on host {host}" for rank, host in enumerate(members[:3]))
        + (", ..." if len(members) > 3 else "")
    ]
    trees = [forest for forest in (schedule.scatter, schedule.gather) if forest is not None]
    if document["exchange"] is not None:
        text, ways = _exchange(name, document, notes)
    elif trees and schedule.name != "add-all":
        text = tree_collective(name, collective, schedule.scatter, schedule.gather)
        ways = [path for forest in trees for tree in forest.trees for path in tree.paths]
    else:
        raise InputError(
            f"schedule is {schedule.name!r}, which MSCCL files are not written of; give topoopt "
            "collective a size at which rings or trees are best"
        )
    through = sum(len(path) > 2 for path in ways)
    if through:
        notes.append(
            f"{through} of {counted(len(ways), 'send')} lead over other hosts or switches, which "
            "must forward them as the schedule's paths say"
        )
    if f's="{MOST_STEPS}"' in text:
        notes.append(
            f"there are thread blocks of more than {MOST_STEPS} steps, which MSCCL's runtime "
            "refuses; it needs one built with a larger MSCCL_MAX_NUM_STEPS"
        )
    return {f"{name}.xml": text}, notes


def _exchange(name: str, document: dict[str, Any], notes: list[str]) -> tuple[str, list[NodePath]]:
    """Return the file of an all-to-all, and the paths between its hosts."""
    rank = {host: at for at, host in enumerate(document["members"])}
    found: dict[tuple[int, int], list[tuple[NodePath, float]]] = defaultdict(list)
    for way in document["exchange"]:
        path = tuple(way["path"])
        found[path[0], path[-1]].append((path, way["share"]))
    if not found:  # all shortest paths
        network = network_of_document(dict(document["network"]), "network", "network")
        routes = ecmp_routes(network)
        for pair in permutations(rank, 2):
            found[pair] = pair_paths(network, routes, *pair)
    parts = min(max(map(len, found.values())), MOST_PATH_CHUNKS)
    given = {pair: chunk_paths(ways, parts) for pair, ways in found.items()}
    notes.append(
        f"what a pair sends goes over its paths in {parts} equal chunks, near to their shares"
    )
    ranks = {
        (rank[a], rank[b]): [tuple(rank[host] for host in path if host in rank) for path in ways]
        for (a, b), ways in given.items()
    }
    # Members on a path take chunks and send them on; others only forward.
    sends: list[NodePath] = []
    for ways in given.values():
        for path in ways:
            stops = [at for at, host in enumerate(path) if host in rank]
            sends += [path[a : b + 1] for a, b in pairwise(stops)]
    return routed_alltoall(name, len(rank), ranks), sends
