"""Compiled kernel of the memory that a strategy needs on every server."""

import numpy as np

from codesign_base.arrays import Floats, Ints
from codesign_base.jit import kernel
from parallelism.build_kernels import slice_of_input

# Rows of the splits; the value of `Mode.CHANNEL`.
SAMPLE, PARAMETER, SLICES_INPUT, SLICES_OUTPUT, MODE = 0, 1, 2, 3, 4
_CHANNEL = 3


@kernel
def server_memory(
    splits: Ints,
    offsets: Ints,
    servers: Ints,
    memory: Floats,
    edge_source: Ints,
    edge_target: Ints,
    edge_bytes: Floats,
    edge_beside: Ints,
    features: Ints,
    gpus: int,
    count: int,
) -> Floats:
    """Return the bytes on each GPU of every server; see `parallelism.builder`.

    Parameters
    ----------
    splits : int64 array, shape (5, operators)
        Sample degree, parameter degree, whether inputs and outputs are sliced, mode.
    offsets : int64 array, shape (operators + 1,)
        Where each operator's servers begin.
    servers : int64 array, shape (parts,)
    memory : float64 array, shape (operators,)
        Bytes of one part on each GPU.
    edge_source, edge_target : int64 arrays, shape (edges,)
        Operators.
    edge_bytes : float64 array, shape (edges,)
        Bytes of the whole tensor.
    edge_beside : int64 array, shape (2, edges)
        Where the producer lies among the features of a concatenation: the first, and how many;
        zeros for other readers.
    features : int64 array, shape (operators,)
        Of each operator's output.
    gpus, count : int
        GPUs a server; servers.

    Returns
    -------
    float64 array, shape (count,)
    """
    needed = np.zeros(count)
    for op in range(memory.size):
        for place in range(offsets[op], offsets[op + 1]):
            needed[servers[place]] += memory[op]
    for edge in range(edge_source.size):
        made, read = edge_source[edge], edge_target[edge]
        parts = offsets[read + 1] - offsets[read]
        same = (
            splits[SAMPLE, made] == splits[SAMPLE, read]
            and splits[PARAMETER, made] == splits[PARAMETER, read]
            and splits[MODE, made] == splits[MODE, read]
        )
        place = 0
        while same and place < parts:
            same = servers[offsets[made] + place] == servers[offsets[read] + place]
            place += 1
        parameter = splits[PARAMETER, read]
        width = edge_beside[1, edge]
        if same and (parameter == 1 or (splits[MODE, read] == _CHANNEL and width == 0)):
            continue  # every part reads what its own server made
        # A part keeps what it received for its backward pass: its share of the input, and
        # every partial sum of it.
        share = edge_bytes[edge] / splits[SAMPLE, read] / gpus
        sliced = parameter > 1 and splits[SLICES_INPUT, read] == 1
        if sliced and width == 0:
            share /= parameter
        if splits[PARAMETER, made] > 1 and splits[SLICES_OUTPUT, made] == 0:
            share *= splits[PARAMETER, made]
        for place in range(offsets[read], offsets[read + 1]):
            part = 1.0
            if sliced and width > 0:
                j = (place - offsets[read]) % parameter
                low, high = slice_of_input(
                    j, parameter, features[read], edge_beside[0, edge], width
                )
                part = (high - low) / width
            needed[servers[place]] += share * part
    return needed
