"""Compiled kernel that turns split, placed operators into the tasks of one iteration."""

import numpy as np

from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.jit import kernel

# Values of TaskKind and Phase (enums cannot be used inside kernels).
_COMPUTE, _TRANSFER, _ALLREDUCE = 0, 1, 2
_FORWARD, _BACKWARD, _UPDATE, _ACTIVATION, _GRADIENT, _SYNCHRONISE = 0, 1, 2, 3, 4, 5


@kernel
def _overlap(i: int, parts_i: int, k: int, parts_k: int) -> float:
    """Return the overlap of [i, i+1) / parts_i with [k, k+1) / parts_k, as a fraction of 1."""
    low = max(i * parts_k, k * parts_i)
    high = min((i + 1) * parts_k, (k + 1) * parts_i)
    return max(0, high - low) / (parts_i * parts_k)


@kernel
def slice_of_input(j: int, parts: int, features: int, first: int, width: int) -> tuple[int, int]:
    """Return which features of an input lie in slice j of a concatenation: from, to (not above).

    Parameters
    ----------
    j, parts : int
        Which of how many equal slices.
    features : int
        Of the concatenation.
    first, width : int
        Where the input lies among them.
    """
    each = features // parts
    low = max(j * each - first, 0)
    return low, max(min((j + 1) * each - first, width), low)


@kernel
def _read_range(
    j: int, pb: int, pa: int, cut_a: bool, cut_b: bool, features: int, first: int, width: int
) -> tuple[int, int, int, int]:
    """Return what slice j of a consumer reads: features of the input, and slices of its producer.

    Each from, to (not above); features only of a concatenation (``width`` above 0).
    """
    low, high = 0, width
    l_low, l_high = 0, pa
    if cut_b and width > 0:
        low, high = slice_of_input(j, pb, features, first, width)
        if cut_a:
            l_low = low * pa // width
            l_high = (high * pa + width - 1) // width
        if high == low:
            l_high = l_low
    elif cut_a and cut_b:
        l_low = j * pa // pb
        l_high = ((j + 1) * pa + pb - 1) // pb
    return low, high, l_low, l_high


@kernel
def _read_share(
    j: int, pb: int, m: int, pa: int, cut_a: bool, cut_b: bool, low: int, high: int, width: int
) -> float:
    """Return which fraction of a sample's features slice j of a consumer reads of slice m."""
    share = 1.0
    if cut_b and width > 0:
        share = (high - low) / width
        if cut_a:
            begin = max(low * pa, m * width)
            end = min(high * pa, (m + 1) * width)
            share = (end - begin) / (pa * width)
    elif cut_a and cut_b:
        share = _overlap(j, pb, m, pa)
    elif cut_a:
        share = 1.0 / pa
    elif cut_b:
        share = 1.0 / pb
    return share


@kernel
def moved_bytes(
    sample: Ints,
    parameter: Ints,
    slices_input: Flags,
    slices_output: Flags,
    server_offset: Ints,
    servers: Ints,
    edge_source: Ints,
    edge_target: Ints,
    edge_bytes: Floats,
    edge_beside: Ints,
    features_of: Ints,
    hosts: int,
) -> tuple[int, Floats]:
    """Return the transfers that `build_tasks` makes, and the bytes that each server sends.

    It receives as many: what a forward pass sends comes back in a backward pass.
    """
    transfers = int(np.int64(0))
    load = np.zeros(hosts, np.float64)
    for edge in range(edge_source.size):
        a = edge_source[edge]
        b = edge_target[edge]
        sa, pa, sb, pb = sample[a], parameter[a], sample[b], parameter[b]
        cut_a = slices_output[a] and pa > 1
        cut_b = slices_input[b] and pb > 1
        width = edge_beside[1, edge]
        for i in range(sb):
            k_low = i * sa // sb
            k_high = ((i + 1) * sa + sb - 1) // sb
            for j in range(pb):
                low, high, l_low, l_high = _read_range(
                    j, pb, pa, cut_a, cut_b, features_of[b], edge_beside[0, edge], width
                )
                consumer = servers[server_offset[b] + i * pb + j]
                for k in range(k_low, k_high):
                    shared = _overlap(i, sb, k, sa)
                    for m in range(l_low, l_high):
                        producer = servers[server_offset[a] + k * pa + m]
                        if producer != consumer:
                            features = _read_share(j, pb, m, pa, cut_a, cut_b, low, high, width)
                            moved = edge_bytes[edge] * shared * features
                            load[producer] += moved
                            load[consumer] += moved
                            transfers += 2
    return transfers, load


@kernel
def build_tasks(
    sample: Ints,
    parameter: Ints,
    slices_input: Flags,
    slices_output: Flags,
    server_offset: Ints,
    servers: Ints,
    forward: Floats,
    backward: Floats,
    update: Floats,
    sync_base: Ints,
    sync_place: Ints,
    sync_group: Ints,
    sync_bytes: Floats,
    sync_delay: Floats,
    sync_operator: Ints,
    sync_part: Ints,
    edge_source: Ints,
    edge_target: Ints,
    edge_bytes: Floats,
    edge_beside: Ints,
    features_of: Ints,
    is_sink: Flags,
) -> tuple[Ints, Ints, Ints, Floats, Floats, Ints, Ints, Ints, Ints, Ints, Ints]:
    """Build all tasks and dependencies; see `parallelism.builder` for the meaning.

    Shard j of operator o has its AllReduce at ``sync_place[sync_base[o] + j]``, if it has one;
    the other five arrays say what these AllReduces are. Two passes over the same loops: the
    first counts transfers and dependencies, the second fills exactly sized arrays.
    """
    operators = sample.size
    part_base = np.zeros(operators + 1, np.int64)
    update_base = np.zeros(operators + 1, np.int64)
    for op in range(operators):
        parts = sample[op] * parameter[op]
        part_base[op + 1] = part_base[op] + parts
        update_base[op + 1] = update_base[op] + (parts if update[op] > 0.0 else 0)
    total_parts = part_base[operators]
    forward_at = 0
    backward_at = total_parts
    update_at = backward_at + total_parts
    sync_at = update_at + update_base[operators]
    transfer_at = sync_at + sync_group.size

    # Filled in the second pass.
    tasks = 0
    kind = np.zeros(0, np.int64)
    first = np.zeros(0, np.int64)
    second = np.zeros(0, np.int64)
    size = np.zeros(0, np.float64)
    delay = np.zeros(0, np.float64)
    operator = np.zeros(0, np.int64)
    phase = np.zeros(0, np.int64)
    part = np.zeros(0, np.int64)
    before = np.zeros(0, np.int64)
    after = np.zeros(0, np.int64)

    for filling in range(2):
        transfers = 0
        depends = 0
        if filling == 1:
            for op in range(operators):
                for q in range(sample[op] * parameter[op]):
                    server = servers[server_offset[op] + q]
                    for base, duration, what in (
                        (forward_at, forward[op], _FORWARD),
                        (backward_at, backward[op], _BACKWARD),
                    ):
                        t = base + part_base[op] + q
                        first[t] = server
                        second[t] = -1
                        size[t] = duration
                        operator[t] = op
                        phase[t] = what
                        part[t] = q
                    if update[op] > 0.0:
                        t = update_at + update_base[op] + q
                        first[t] = server
                        second[t] = -1
                        size[t] = update[op]
                        operator[t] = op
                        phase[t] = _UPDATE
                        part[t] = q
            for at in range(sync_group.size):
                t = sync_at + at
                kind[t] = _ALLREDUCE
                first[t] = sync_group[at]
                second[t] = -1
                size[t] = sync_bytes[at]
                delay[t] = sync_delay[at]
                operator[t] = sync_operator[at]
                phase[t] = _SYNCHRONISE
                part[t] = sync_part[at]

        # The forward pass of a sink is followed by its own backward pass (the loss); every
        # other operator's backward pass waits for its consumers' and so for its own forward.
        for op in range(operators):
            for q in range(sample[op] * parameter[op]):
                mine = part_base[op] + q
                if is_sink[op]:
                    if filling == 1:
                        before[depends] = forward_at + mine
                        after[depends] = backward_at + mine
                    depends += 1
                has_sync = sync_base[op + 1] > sync_base[op]
                sync = sync_at
                if has_sync:
                    sync += sync_place[sync_base[op] + q % parameter[op]]
                    if filling == 1:
                        before[depends] = backward_at + mine
                        after[depends] = sync
                    depends += 1
                if update[op] > 0.0:
                    if filling == 1:
                        if has_sync:
                            before[depends] = sync
                        else:
                            before[depends] = backward_at + mine
                        after[depends] = update_at + update_base[op] + q
                    depends += 1

        for edge in range(edge_source.size):
            a = edge_source[edge]
            b = edge_target[edge]
            sa, pa, sb, pb = sample[a], parameter[a], sample[b], parameter[b]
            cut_a = slices_output[a] and pa > 1
            cut_b = slices_input[b] and pb > 1
            width = edge_beside[1, edge]
            for i in range(sb):
                k_low = i * sa // sb
                k_high = ((i + 1) * sa + sb - 1) // sb
                for j in range(pb):
                    low, high, l_low, l_high = _read_range(
                        j, pb, pa, cut_a, cut_b, features_of[b], edge_beside[0, edge], width
                    )
                    consumer = i * pb + j
                    consumer_server = servers[server_offset[b] + consumer]
                    for k in range(k_low, k_high):
                        shared = _overlap(i, sb, k, sa)
                        for m in range(l_low, l_high):
                            producer = k * pa + m
                            producer_server = servers[server_offset[a] + producer]
                            p_task = part_base[a] + producer
                            c_task = part_base[b] + consumer
                            if producer_server == consumer_server:
                                if filling == 1:
                                    before[depends] = forward_at + p_task
                                    after[depends] = forward_at + c_task
                                    before[depends + 1] = backward_at + c_task
                                    after[depends + 1] = backward_at + p_task
                                depends += 2
                                continue
                            if filling == 1:
                                features = _read_share(j, pb, m, pa, cut_a, cut_b, low, high, width)
                                moved = edge_bytes[edge] * shared * features
                                t = transfer_at + transfers
                                kind[t] = _TRANSFER
                                first[t] = producer_server
                                second[t] = consumer_server
                                size[t] = moved
                                operator[t] = b
                                phase[t] = _ACTIVATION
                                part[t] = consumer
                                before[depends] = forward_at + p_task
                                after[depends] = t
                                before[depends + 1] = t
                                after[depends + 1] = forward_at + c_task
                                t += 1
                                kind[t] = _TRANSFER
                                first[t] = consumer_server
                                second[t] = producer_server
                                size[t] = moved
                                operator[t] = a
                                phase[t] = _GRADIENT
                                part[t] = producer
                                before[depends + 2] = backward_at + c_task
                                after[depends + 2] = t
                                before[depends + 3] = t
                                after[depends + 3] = backward_at + p_task
                            transfers += 2
                            depends += 4

        if filling == 0:
            tasks = transfer_at + transfers
            kind = np.zeros(tasks, np.int64)
            first = np.zeros(tasks, np.int64)
            second = np.zeros(tasks, np.int64)
            size = np.zeros(tasks, np.float64)
            delay = np.zeros(tasks, np.float64)
            operator = np.zeros(tasks, np.int64)
            phase = np.zeros(tasks, np.int64)
            part = np.zeros(tasks, np.int64)
            before = np.zeros(depends, np.int64)
            after = np.zeros(depends, np.int64)

    offsets = np.zeros(tasks + 1, np.int64)
    predecessors = np.zeros(tasks, np.int64)
    for d in range(before.size):
        offsets[before[d] + 1] += 1
        predecessors[after[d]] += 1
    for t in range(tasks):
        offsets[t + 1] += offsets[t]
    cursor = offsets[:-1].copy()
    successors = np.zeros(before.size, np.int64)
    for d in range(before.size):
        successors[cursor[before[d]]] = after[d]
        cursor[before[d]] += 1
    return (
        kind,
        first,
        second,
        size,
        delay,
        operator,
        phase,
        part,
        offsets,
        successors,
        predecessors,
    )
