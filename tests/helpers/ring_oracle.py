"""Collectives done chunk by chunk, counting what each rank sends."""

import numpy as np


def ring_reduce_scatter(ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Pass partial sums around a ring; return the chunks sent by each rank, and who added what.

    ``owned[r, c, i]`` says whether rank ``r``'s sum of chunk ``c`` holds rank ``i``'s part.
    """
    owned = np.zeros((ranks, ranks, ranks), dtype=bool)
    for rank in range(ranks):
        owned[rank, :, rank] = True
    sent = np.zeros(ranks)
    for step in range(ranks - 1):
        before = owned.copy()
        for rank in range(ranks):
            chunk = (rank - step) % ranks
            owned[(rank + 1) % ranks, chunk] |= before[rank, chunk]
            sent[rank] += 1
    return sent / ranks, owned


def ring_all_gather(ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Pass chunks around a ring; return the chunks sent by each rank, and who has which."""
    has = np.eye(ranks, dtype=bool)
    sent = np.zeros(ranks)
    for step in range(ranks - 1):
        before = has.copy()
        for rank in range(ranks):
            chunk = (rank - step) % ranks
            assert before[rank, chunk]
            has[(rank + 1) % ranks, chunk] = True
            sent[rank] += 1
    return sent / ranks, has


def direct_all_to_all(ranks: int) -> np.ndarray:
    """Each rank sends a chunk to every other one; return the chunks that each sends."""
    sent = np.zeros(ranks)
    for rank in range(ranks):
        for other in range(ranks):
            sent[rank] += rank != other
    return sent / ranks
