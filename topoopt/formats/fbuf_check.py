"""What must hold in a task-graph file beyond its encoding."""

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.arrays import Ints, Words
from codesign_base.counted import counted
from codesign_base.rows import dependency_order
from topoopt.formats.fbuf_file import FbufDevice, FbufFile, FbufTask

MAX_NODES, MAX_SWITCHED = 4096, 65_536
"""Nodes, whose pairs all have routes; and nodes and switches together."""
_NETWORK = (FbufDevice.NETWORK, FbufDevice.NOMINAL_NETWORK)
COMPUTES = (FbufTask.FORWARD, FbufTask.BACKWARD, FbufTask.UPDATE)


def check_fbuf(file: FbufFile) -> None:
    """Check that a task graph is possible.

    Parameters
    ----------
    file : FbufFile

    Raises
    ------
    InputError
        Naming the first thing that is wrong.
    """
    _check_header(file)
    _check_wiring(file)
    _check_devices(file)
    _check_tasks(file)
    _check_groups(file)
    check_acyclic(file)


def _first(bad: npt.NDArray[np.bool_]) -> int:
    """Return the index of the first true entry, -1 if there is none."""
    at = int(np.argmax(bad)) if bad.size else 0
    return at if bad.size and bad[at] else -1


def _check_header(file: FbufFile) -> None:
    if not 1 <= file.nodes <= MAX_NODES or file.nodes + file.switches > MAX_SWITCHED:
        raise InputError(
            f"nnode is {file.nodes} and nswitch {file.switches}; give 1 to {MAX_NODES} nodes, and "
            f"{MAX_SWITCHED} with the switches"
        )
    for name in ("intergpu_bandwidth", "dram_bandwidth", "net_bandwidth"):
        value = getattr(file, name)
        if not (np.isfinite(value) and value >= 0.0):
            raise InputError(f"{name} is {value} bytes/s; give zero or more")


def _check_wiring(file: FbufFile) -> None:
    nodes = file.nodes + file.switches
    source, target = file.conn_source, file.conn_target
    at = _first((source >= nodes) | (target >= nodes) | (source == target))
    if at >= 0:
        raise InputError(
            f"connection {at} joins {source[at]} and {target[at]}; join two different nodes "
            f"of 0..{nodes - 1}"
        )
    at = _first(file.conn_cables < 1)
    if at >= 0:
        raise InputError(f"connection {at} has no cables (nconn is 0); give at least one")
    at = _first((file.route_source >= nodes) | (file.route_target >= nodes))
    if at >= 0:
        raise InputError(
            f"route {at} leads from {file.route_source[at]} to {file.route_target[at]}; "
            f"nodes are 0..{nodes - 1}"
        )
    at = _first(~((file.path_chance >= 0.0) & (file.path_chance <= 1.0 + 1e-6)))
    if at >= 0:
        raise InputError(f"path {at} has chance {file.path_chance[at]}; give a share of 0 to 1")
    _check_paths(file, nodes)
    at = _first((file.ring_size < 2) | (file.ring_size > file.nodes))
    if at >= 0:
        raise InputError(
            f"ring set {at} is for groups of {counted(file.ring_size[at], 'node')}; give 2 to "
            f"{file.nodes}"
        )
    sizes, counts = np.unique(file.ring_size, return_counts=True)
    at = _first(counts > 1)
    if at >= 0:
        raise InputError(f"two ring sets are for groups of {counted(sizes[at], 'node')}; keep one")


def _check_paths(file: FbufFile, nodes: int) -> None:
    """Check that every path leads from its route's source to its target."""
    if file.hops.size and file.hops.max() >= nodes:
        raise InputError(f"a path visits node {file.hops.max()}; nodes are 0..{nodes - 1}")
    lengths = np.diff(file.hop_offsets)
    at = _first(lengths < 1)
    if at >= 0:
        raise InputError(f"path {at} has no nodes; list both of its ends")
    if not lengths.size:
        return
    route = np.repeat(np.arange(file.route_source.size), np.diff(file.route_offsets))
    ends = (file.hops[file.hop_offsets[:-1]], file.hops[file.hop_offsets[1:] - 1])
    at = _first((ends[0] != file.route_source[route]) | (ends[1] != file.route_target[route]))
    if at >= 0:
        raise InputError(
            f"path {at} leads from {ends[0][at]} to {ends[1][at]}, but its route from "
            f"{file.route_source[route[at]]} to {file.route_target[route[at]]}; correct either"
        )


def _repeated(ids: Words) -> int:
    """Return an id that occurs twice, -1 if there is none."""
    ordered = np.sort(ids)
    at = _first(ordered[1:] == ordered[:-1])
    return int(ordered[at]) if at >= 0 else -1


def _check_devices(file: FbufFile) -> None:
    twice = _repeated(file.device_id)
    if twice >= 0:
        raise InputError(f"device id {twice} occurs twice; give each device its own")
    nodes = file.nodes + file.switches
    network = np.isin(file.device_type, _NETWORK)
    at = _first(network & (file.device_property >= np.uint64(nodes * nodes)))
    if at >= 0:
        raise InputError(
            f"network device {file.device_id[at]} has deviceproperty "
            f"{file.device_property[at]}; source * {nodes} + destination is below {nodes * nodes}"
        )
    at = _first((file.device_type < 0) | (file.device_type > FbufDevice.NOMINAL_NETWORK))
    if at >= 0:
        raise InputError(
            f"device {file.device_id[at]} has unknown type {file.device_type[at]}; types are 0..14"
        )


def find(ids: Words, wanted: Words) -> Ints:
    """Return where each wanted id is among ids without repetition, -1 if it does not."""
    if not ids.size:
        return np.full(wanted.shape, -1, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    at = np.minimum(np.searchsorted(ordered, wanted), ids.size - 1)
    return np.where(ordered[at] == wanted, order[at], -1).astype(np.int64)


def _check_tasks(file: FbufFile) -> None:
    kind, ids = file.task_type, file.task_id
    at = _first((kind < 0) | (kind > FbufTask.ALLREDUCE))
    if at >= 0:
        raise InputError(f"task {ids[at]} has unknown type {kind[at]}; types are 0..6")
    twice = _repeated(ids)
    if twice >= 0:
        raise InputError(f"task id {twice} occurs twice; give each task its own")
    at = _first(~(np.isfinite(file.task_runtime) & (file.task_runtime >= 0.0)))
    if at >= 0:
        raise InputError(
            f"task {ids[at]} has a runtime of {file.task_runtime[at] * 1e3} ms; give zero or more"
        )
    device = find(file.device_id, file.task_device)
    # AllReduces, and barriers, need none.
    free = (kind == FbufTask.ALLREDUCE) | (kind == FbufTask.BARRIER)
    at = _first((device < 0) & ~(free & (file.task_device == 0)))
    if at >= 0:
        raise InputError(
            f"task {ids[at]} runs on device {file.task_device[at]}, which does not exist; "
            "name a device of the file"
        )
    if device.size and file.device_id.size:
        _check_places(file, device)


def _check_places(file: FbufFile, device: Ints) -> None:
    """Check that devices in use are what their tasks need, on nodes that exist."""
    kind, ids = file.task_type, file.task_id
    network = np.isin(file.device_type, _NETWORK)[device] & (device >= 0)
    processor = np.isin(file.device_type, (FbufDevice.GPU, FbufDevice.CPU))[device]
    at = _first(np.isin(kind, COMPUTES) & (device >= 0) & ~processor)
    if at >= 0:
        raise InputError(
            f"task {ids[at]} computes on device {file.task_device[at]} of type "
            f"{file.device_type[device[at]]}; name a GPU (type 0) or CPU (type 1)"
        )
    nodes = np.uint64(file.nodes + file.switches)
    ends = np.maximum(file.device_property // nodes, file.device_property % nodes)[device]
    used = network & (kind != FbufTask.ALLREDUCE)
    at = _first(used & (ends >= np.uint64(file.nodes)))
    if at >= 0:
        raise InputError(
            f"task {ids[at]} sends from or to switch {ends[at]}; only nodes 0..{file.nodes - 1} "
            "send"
        )
    local = (kind != FbufTask.ALLREDUCE) & (device >= 0) & ~network
    at = _first(local & (file.device_node[device] >= np.uint64(file.nodes)))
    if at >= 0:
        raise InputError(
            f"task {ids[at]} runs on device {file.task_device[at]} of node "
            f"{file.device_node[device[at]]}; nodes are 0..{file.nodes - 1}"
        )


def _check_groups(file: FbufFile) -> None:
    reduces = np.flatnonzero(file.task_type == FbufTask.ALLREDUCE)
    counts = np.diff(file.next_offsets)
    at = _first(counts[reduces] < 1)
    if at >= 0:
        raise InputError(f"AllReduce {file.task_id[reduces[at]]} has an empty group; name nodes")
    inside = np.repeat(file.task_type == FbufTask.ALLREDUCE, counts)
    task = np.repeat(np.arange(file.tasks), counts)[inside]
    members = file.next_ids[inside]
    at = _first(members >= np.uint64(file.nodes))
    if at >= 0:
        raise InputError(
            f"the group of AllReduce {file.task_id[task[at]]} names node {members[at]}; nodes "
            f"are 0..{file.nodes - 1}"
        )
    order = np.lexsort((members, task))
    task, members = task[order], members[order]
    at = _first((task[1:] == task[:-1]) & (members[1:] == members[:-1]))
    if at >= 0:
        raise InputError(
            f"the group of AllReduce {file.task_id[task[at]]} names node {members[at]} twice; "
            "name each node once"
        )


def dependencies(file: FbufFile) -> tuple[Ints, Ints]:
    """Return the dependencies as pairs of task indices (before, after), in file order.

    Raises
    ------
    InputError
        If a task names one that does not exist.
    """
    plain = file.task_type != FbufTask.ALLREDUCE
    counts = np.diff(file.next_offsets)
    before = np.repeat(np.arange(file.tasks), counts)
    held = plain[before]
    before, named = before[held], file.next_ids[held]
    after = find(file.task_id, named)
    at = _first(after < 0)
    if at >= 0:
        raise InputError(
            f"task {file.task_id[before[at]]} is followed by task {named[at]}, which does not "
            "exist; name a task of the file"
        )
    return before, after


def check_acyclic(file: FbufFile) -> None:
    """Check that no task waits for itself, through others or at once.

    Raises
    ------
    InputError
        Naming a task of a cycle.
    """
    before, after = dependencies(file)
    order = np.argsort(before, kind="stable")
    offsets = np.searchsorted(before[order], np.arange(file.tasks + 1))
    waits = np.bincount(after, minlength=file.tasks).tolist()
    _, stuck = dependency_order(waits, offsets, after[order])
    if not stuck:
        return
    # Going back among those on a cycle or behind one meets one.
    held, task = set(stuck), stuck[0]
    leads = {b: a for a, b in zip(before.tolist(), after.tolist(), strict=True) if a in held}
    seen = set()
    while task not in seen:
        seen.add(task)
        task = leads[task]
    raise InputError(
        f"{counted(len(stuck), 'task waits', 'tasks wait')} in a cycle, among them "
        f"{file.task_id[task]}; remove a dependency"
    )
