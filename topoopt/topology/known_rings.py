"""Wirings of short paths that take too long to find while a user waits, as their rings.

64 servers with eight bidirectional ports: annealed under a permutation that turns 60 of them in
threes and leaves four in place, by exchanges of whole orbits of cables. Of six searches of 6 or 12
million exchanges, some seconds each, one came so near; the others ended 0.5 to 2 % above it.
"""

_Order = tuple[int, ...]

# By servers and ports.
_ORDERS: dict[tuple[int, int], tuple[str, ...]] = {
    (64, 8): (
        "0 2 38 32 41 15 26 62 29 36 12 9 61 43 23 56 13 28 46 4 55 22 5 8 34 17 59 42 58 27 7 "
        "33 1 54 25 18 35 11 14 50 52 60 63 16 47 10 30 45 57 44 21 24 20 31 37 19 53 3 6 39 40 "
        "48 49 51",
        "0 47 32 45 27 5 52 4 7 38 22 30 39 43 49 13 18 36 63 61 10 60 53 48 42 23 3 51 41 40 "
        "17 56 24 16 33 9 6 29 14 19 26 50 44 58 34 20 57 15 54 21 37 1 2 46 31 25 62 28 8 11 "
        "55 12 59 35",
        "0 56 5 47 29 48 24 62 27 12 20 38 63 17 4 51 19 59 28 50 49 41 8 36 30 46 15 35 7 40 "
        "53 2 55 13 37 6 22 25 33 57 43 21 32 9 60 11 31 23 26 34 10 54 14 58 18 52 39 16 3 45 "
        "1 42 61 44",
        "0 1 52 20 51 60 62 61 11 45 17 25 49 27 37 63 15 5 53 18 32 26 55 16 58 46 9 56 14 38 "
        "28 3 54 12 48 50 39 41 42 22 44 40 31 47 59 43 2 34 6 35 24 30 19 33 8 21 4 29 57 13 "
        "10 7 23 36",
    ),
}  # fmt: skip


def known_rings(servers: int, ports: int) -> tuple[_Order, ...]:
    """Return rings that use every cable of the shortest known wiring once; none if none is kept.

    Parameters
    ----------
    servers : int
    ports : int
        Bidirectional ports of a server.

    Returns
    -------
    tuple of tuple of int
        Orders of all servers, beginning with server 0; every cable leads both ways.
    """
    orders = _ORDERS.get((servers, ports), ())
    return tuple(tuple(int(server) for server in order.split()) for order in orders)
