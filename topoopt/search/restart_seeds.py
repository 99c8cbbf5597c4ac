"""The seeds of several searches of one job."""

import numpy as np


def restart_seed(seed: int, restart: int) -> int:
    """Return the seed of one of several searches.

    Parameters
    ----------
    seed : int
        The given seed.
    restart : int
        Place of the search; the first one's seed is the given one.

    Returns
    -------
    int
        Below 2^31.
    """
    if restart == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(3000, restart)).generate_state(1)[0] >> 1)
