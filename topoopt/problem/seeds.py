"""The numbers that random choices follow from."""

from codesign_base import InputError
from codesign_base.arguments import whole

SEEDS = 2**31
"""So many there are; what needs several seeds takes those that follow, the first after the last."""


def checked_seed(seed: object, name: str = "seed") -> int:
    """Return a seed that was given.

    Parameters
    ----------
    seed : int
        Any whole number, of Python or numpy.
    name : str
        What a refusal calls it.

    Returns
    -------
    int

    Raises
    ------
    InputError
        If it is no whole number from 0 to 2^31 - 1.
    """
    remedy = f"a whole number of 0 to {SEEDS - 1}"
    value = whole(name, seed, remedy)
    if not 0 <= value < SEEDS:
        raise InputError(f"{name} is {value}; give {remedy}")
    return value


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
    import numpy as np

    return int(np.random.SeedSequence(seed, spawn_key=(3000, restart)).generate_state(1)[0] >> 1)
