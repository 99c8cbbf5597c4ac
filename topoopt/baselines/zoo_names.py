"""Names of the zoo's fabrics to compare with: what each is built from, and its parameters."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import Any

from codesign_base import InputError
from codesign_base.counted import counted
from codesign_base.whole_numbers import divisors
from topoopt.baselines.bill import NO_LAYER
from topoopt.problem.cluster import Cluster
from topoopt.problem.prices import LAYERS

GPUS, SERVERS = "gpus", "servers"
"""Whom the ports of a server belong to."""


@dataclass(frozen=True)
class Entry:
    """How a fabric to compare with is built from the registry of topologies.

    Parameters
    ----------
    name : str
        A key of `topoopt.topology.zoo.registry.FABRICS`.
    dims : callable or str, optional
        Its dimensions, or what says them for a cluster.
    oversubscription : float
    tier : str
    ports : bool
        Whether it takes the cluster's ports.
    group : int, optional
        Servers a rack or pod.
    layer : str
        What joins ports of servers that are wired to each other; "none" of fixed cables.
    owner : {"servers", "gpus"}
        Whom a server's ports belong to.
    takes : tuple of str
        Parameters that may follow the name.
    """

    name: str
    dims: Callable[[Cluster], str] | str | None = None
    oversubscription: float = 1.0
    tier: str = "tor"
    ports: bool = True
    group: int | None = None
    layer: str = "patch-panel"
    owner: str = SERVERS
    takes: tuple[str, ...] = ()

    def dims_for(self, cluster: Cluster) -> str | None:
        """Return the dimensions for a cluster.

        Raises
        ------
        InputError
            If its servers or ports have none.
        """
        return self.dims(cluster) if callable(self.dims) else self.dims


def even_grid(servers: int, dims: int) -> tuple[int, ...]:
    """Return the most even sizes whose product is the number of servers, largest last."""
    if dims == 1:
        return (servers,)
    best: tuple[int, ...] | None = None
    for first in range(1, round(servers ** (1.0 / dims)) + 1):
        if servers % first == 0:
            rest = even_grid(servers // first, dims - 1)
            sizes = tuple(sorted((first, *rest)))
            # A dimension of one server is none.
            found = (sizes[0] == 1, max(sizes), sizes)
            if best is None or found < (best[0] == 1, max(best), best):
                best = sizes
    assert best is not None
    return best


def _torus(dims: int) -> Callable[[Cluster], str]:
    def of(cluster: Cluster) -> str:
        sizes = even_grid(cluster.servers, dims)
        if sizes[0] == 1:
            raise InputError(
                f"{counted(cluster.servers, 'server is', 'servers are')} no grid of {dims} "
                f"dimensions; give a number that has {dims} factors"
            )
        return "x".join(map(str, sizes))

    return of


def _twisted(cluster: Cluster) -> str:
    """Return sizes of k and 2 k, in three dimensions if the ports and servers allow."""
    for halves, doubles in ((2, 1), (1, 2), (1, 1)):
        k = round((cluster.servers / 2**doubles) ** (1.0 / (halves + doubles)))
        sizes = [k] * halves + [2 * k] * doubles
        if k > 1 and prod(sizes) == cluster.servers and 2 * len(sizes) <= cluster.degree:
            return "x".join(map(str, sizes))
    raise InputError(
        f"{cluster.servers} servers of {counted(cluster.degree, 'port')} are no twisted torus; "
        "give 2 k^2 servers of 4 ports, or 2 k^3 or 4 k^3 of 6, such as 8, 16 or 32"
    )


def _boards(cluster: Cluster) -> str:
    """Return 2 x 2 boards in the most even grid."""
    down, across = even_grid(max(cluster.servers // 4, 1), 2)
    if cluster.servers % 4 or down == 1:
        raise InputError(
            f"{counted(cluster.servers, 'server is', 'servers are')} no grid of 2 x 2 boards; give "
            "a multiple of 4, of which a quarter has two factors, such as 16"
        )
    return f"2x2x{down}x{across}"


def _meshes(cluster: Cluster) -> str:
    """Return full meshes in as few dimensions, of two or more, as the ports allow."""
    n, d = cluster.servers, cluster.degree
    for dims in range(2, d + 1):
        sizes = even_grid(n, dims)
        if sizes[0] > 1 and sum(sizes) - dims <= d:
            return "_".join(f"FC({size})" for size in sizes)
    raise InputError(
        f"{n} servers of {counted(d, 'port')} are no full meshes of two or more dimensions; give "
        "more ports, or a number of servers that has factors"
    )


def _ring_of(kind: str) -> Callable[[Cluster], str]:
    """Return the function that names a product of rings and full meshes, or switches."""

    def of(cluster: Cluster) -> str:
        n, d = cluster.servers, cluster.degree
        most = n // 2 if kind == "SW" else d - 1
        inner = list(divisors(n, min(most, n // 2))[1:])
        if kind == "SW":
            inner = [size for size in inner if size <= 8] or inner[:1]
        # A ring of two servers takes one port, a longer one two.
        fit = [s for s in inner if (1 if kind == "SW" else s - 1) + (1 if n == 2 * s else 2) <= d]
        if not fit:
            what = "switches" if kind == "SW" else "full meshes"
            raise InputError(
                f"{n} servers of {counted(d, 'port')} are no product of {what} and rings; give "
                "more ports, or a number of servers that has factors"
            )
        return f"{kind}({fit[-1]})_RI({n // fit[-1]})"

    return of


_RACKS = ("group", "oversubscription")
_RAILS = (*_RACKS, "ports")

ZOO = {
    "totient": Entry("totient"),
    "xpander": Entry("xpander"),
    "de-bruijn": Entry("de-bruijn"),
    "kautz": Entry("kautz"),
    "torus2d": Entry("torus", _torus(2), takes=("layer",)),
    "torus3d": Entry("torus", _torus(3), takes=("layer",)),
    "twisted-torus": Entry("twisted-torus", _twisted, takes=("dims", "layer")),
    "hypercube": Entry("hypercube"),
    "full-mesh": Entry("full-mesh"),
    "ub-mesh": Entry("product", _meshes, layer=NO_LAYER, takes=("layer",)),
    "hamming-mesh": Entry("hamming-mesh", _boards, layer=NO_LAYER, takes=("dims", "layer")),
    "mesh-ring": Entry("product", _ring_of("FC")),
    "switch-ring": Entry("product", _ring_of("SW")),
    "oversubscribed-aggregation": Entry(
        "fat-tree", oversubscription=2.0, tier="aggregation", ports=False
    ),
    "leaf-spine": Entry("leaf-spine", ports=False, takes=_RACKS),
    "oversubscribed-leaf-spine": Entry("leaf-spine", oversubscription=2.0, ports=False),
    "rail": Entry("rail", takes=_RAILS),
    "rail-only": Entry("rail-only", takes=_RAILS),
    "dragonfly": Entry("dragonfly", ports=False),
}
"""By name; dimensions follow from the cluster, unless they are given."""
_OF_DIMS = {
    "torus": Entry("torus", takes=("dims", "layer")),
    "product": Entry("product", takes=("dims", "layer")),
}


def is_zoo_name(name: str) -> bool:
    """Say whether a name is one of `ZOO`, or torus or product, with or without parameters."""
    head, colon, _ = name.partition(":")
    return name in ZOO or (bool(colon) and head in (*ZOO, *_OF_DIMS))


def entry_of(name: str) -> Entry:
    """Read the name of a fabric of the zoo and its parameters.

    Parameters
    ----------
    name : str
        A key of `ZOO`, or ``torus`` or ``product``, then a colon before each parameter:
        dimensions as they are (``torus:4x4x8``), others by name
        (``rail:group=8:oversubscription=2:ports=gpus``).

    Returns
    -------
    Entry

    Raises
    ------
    InputError
        If a parameter is unknown, out of range, given twice, or says nothing for the fabric.
    """
    head, *parts = name.split(":")
    entry = ZOO.get(head) or _OF_DIMS[head]
    given: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals and "dims" in entry.takes:
            key, value, equals = "dims", part, "="
        may = ", each once: " + ", ".join(entry.takes) if entry.takes else " nothing"
        if key not in entry.takes:
            raise InputError(f"fabric {name!r}: {key!r} does not apply to {head}; it takes{may}")
        if key in given:
            raise InputError(f"fabric {name!r}: {key} is given twice; {head} takes{may}")
        if not equals:
            raise InputError(f"fabric {name!r}: {key} has no value; write {key}={_EXAMPLES[key]}")
        given[key] = value
    read: dict[str, Any] = {}
    for key, value in given.items():
        read[_FIELDS.get(key, key)] = _READ[key](name, value)
    return replace(entry, **read)


def _group(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise InputError(f"fabric {name!r}: group is {text!r}; give at least 1 server")
    return int(text)


def _ratio(name: str, text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not (ratio >= 1 and isfinite(ratio)):
        raise InputError(
            f"fabric {name!r}: oversubscription is {text!r}; give 1 (none) or more, such as 3 for "
            "3:1"
        )
    return ratio


def _one_of(*names: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in names:
            raise InputError(f"fabric {name!r}: {text!r} is unknown; choose {', '.join(names)}")
        return text

    return read


def _as_given(_name: str, text: str) -> str:
    return text


_READ: dict[str, Callable[[str, str], object]] = {
    "dims": _as_given,
    "group": _group,
    "oversubscription": _ratio,
    "layer": _one_of(*LAYERS, NO_LAYER),
    "ports": _one_of(GPUS, SERVERS),
}
_FIELDS = {"ports": "owner"}
_EXAMPLES = {"group": "8", "oversubscription": "2", "layer": "ocs", "ports": "gpus"}
