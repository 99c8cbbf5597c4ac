"""An all-to-all over given paths as an MSCCL algorithm file (XML).

The format is that of `topoopt.formats.msccl`. Ranks on a path take chunks into scratch and send
them on. Each pair of ranks that send to each other has one thread block at both ends, and all
thread blocks take their steps in one common order, so that none waits for ever.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from codesign_base import InputError
from routing.network import NodePath
from topoopt.formats.msccl_blocks import At, ChunkPlace, Gpu, Step, algorithm


def routed_alltoall(
    name: str, size: int, paths: Mapping[tuple[int, int], Sequence[NodePath]]
) -> str:
    """Return an all-to-all whose chunks take given paths.

    Parameters
    ----------
    name : str
    size : int
        Number of ranks.
    paths : dict of (int, int) to sequence of tuple of int
        Of each ordered pair of different ranks the path of each of its chunks, of which every
        pair has as many; with both ends, and no rank twice.

    Returns
    -------
    str
        The file.

    Raises
    ------
    InputError
        If a pair is missing, has another number of chunks, or a path is none of the pair's.
    """
    parts = len(next(iter(paths.values()), ()))
    pairs = [(a, (a + turn) % size) for turn in range(1, size) for a in range(size)]
    for pair in pairs:
        if len(paths.get(pair, ())) != parts or not parts:
            raise InputError(f"ranks {pair} have no {parts} paths; give every pair as many")
        for path in paths[pair]:
            if (path[0], path[-1]) != pair or len(set(path)) < len(path):
                raise InputError(f"path {path} does not lead from {pair[0]} to {pair[1]}")
    gpus = [Gpu() for _ in range(size)]
    chunks = {(pair, part): paths[pair][part] for pair in pairs for part in range(parts)}
    joined = {hop for path in chunks.values() for hop in pairwise(path)}
    # Where each chunk lies now, and the receive that brought it there.
    lies: dict[tuple[tuple[int, int], int], tuple[ChunkPlace, list[At]]] = {
        chunk: (("i", chunk[0][1] * parts + chunk[1]), []) for chunk in chunks
    }
    for hop in range(max(map(len, chunks.values()), default=1) - 1):
        for chunk, path in chunks.items():
            if hop >= len(path) - 1:
                continue
            (a, b), (at, brought) = path[hop : hop + 2], lies[chunk]
            to = "o", chunk[0][0] * parts + chunk[1]
            if hop < len(path) - 2:
                to = "s", gpus[b].scratch
                gpus[b].scratch += 1
            back = (b, a) in joined
            gpus[a].add((b, b if back else -1), Step("s", at, to), brought)
            received = gpus[b].add((a if back else -1, a), Step("r", at, to))
            lies[chunk] = to, [received]
    for rank, gpu in enumerate(gpus):
        own = rank * parts
        gpu.add((-1, -1), Step("cpy", ("i", own), ("o", own), parts))
    held = size * parts
    return algorithm(name, "alltoall", gpus, held, (held, held), in_place=False)
