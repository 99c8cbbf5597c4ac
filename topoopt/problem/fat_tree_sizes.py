"""How large the k-ary fat-tree for a number of hosts is: its switches and its cables."""

from dataclasses import dataclass

from codesign_base import InputError


@dataclass(frozen=True, slots=True)
class FatTreeSize:
    """How large a fat-tree for a number of hosts is, switches that no host needs left out.

    Parameters
    ----------
    k : int
        Ports of a switch: the smallest even number with k^3 / 4 >= hosts.
    edges : int
        Top-of-rack switches in use; each serves up to k / 2 hosts.
    aggregations, cores : int
        Switches above: none for one rack, no cores for one pod (k / 2 racks), else k / 2 a pod
        and (k / 2)^2.
    """

    k: int
    edges: int
    aggregations: int
    cores: int

    @property
    def switches(self) -> int:
        """Number of switches."""
        return self.edges + self.aggregations + self.cores

    @property
    def edge_cables(self) -> int:
        """Cables between top-of-rack and aggregation switches."""
        return self.edges * (self.k // 2) if self.aggregations else 0

    @property
    def core_cables(self) -> int:
        """Cables between aggregation and core switches."""
        return self.aggregations * (self.k // 2) if self.cores else 0


def fat_tree_size(hosts: int) -> FatTreeSize:
    """Return the size of the fat-tree for a number of hosts, filled from the first rack on.

    Raises
    ------
    InputError
        If there is no host.
    """
    if hosts < 1:
        raise InputError(f"a fat-tree of {hosts} hosts; give at least 1")
    k = 2
    while k**3 // 4 < hosts:
        k += 2
    half = k // 2
    edges = -(-hosts // half)
    pods = -(-edges // half)
    return FatTreeSize(
        k=k,
        edges=edges,
        aggregations=pods * half if edges > 1 else 0,
        cores=half * half if pods > 1 else 0,
    )
