"""Leaf-spine fabrics: which ToR reaches which spine, and with how much capacity."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Flags, Floats, Ints
from codesign_base.counted import counted

Direction = Literal["both", "up", "down"]

MOST = 2**24
"""Links up, and NICs, that a fabric may have: kernels number them with 32 bits."""


@dataclass(frozen=True, eq=False)
class Clos:
    """A two-layer Clos fabric: every ToR has a link up to, and down from, each spine.

    Directed links are numbered ``tor * spines + spine`` upwards and
    ``tors * spines + tor * spines + spine`` downwards (``tor`` is then the receiving one).

    Parameters
    ----------
    tors, spines : int
        Number of leaf and of spine switches, at least 1.
    up : float64 array, shape (tors, spines)
        Capacity from ToR to spine in units of one NIC's rate; 0 where the link failed.
    down : float64 array, shape (spines, tors)
        Capacity from spine to ToR, likewise.
    nics_per_tor : int
        NICs at each ToR (0: not said). Routing does not need it; placement and simulation do.

    Raises
    ------
    InputError
        If a count, a shape or a capacity is out of range.
    """

    tors: int
    spines: int
    up: Floats
    down: Floats
    nics_per_tor: int = 0

    def __post_init__(self) -> None:
        for field in ("tors", "spines"):
            if getattr(self, field) < 1:
                raise InputError(f"a Clos fabric with {getattr(self, field)} {field}; give 1+")
        if self.nics_per_tor < 0:
            raise InputError(f"nics_per_tor is {self.nics_per_tor}; give zero or more")
        if self.tors * self.nics_per_tor > MOST:
            raise InputError(
                f"a Clos of {self.tors} ToRs with {self.nics_per_tor} NICs each has too many NICs; "
                f"give at most {MOST} in all"
            )
        shapes = {"up": (self.tors, self.spines), "down": (self.spines, self.tors)}
        for field, shape in shapes.items():
            array = np.ascontiguousarray(getattr(self, field), dtype=np.float64)
            if array.shape != shape:
                raise InputError(f"{field} has shape {array.shape}; {shape} is expected")
            if not np.all((array >= 0) & np.isfinite(array)):
                row, column = np.argwhere(~((array >= 0) & np.isfinite(array)))[0]
                raise InputError(
                    f"{field}[{row}, {column}] is {array[row, column]}; "
                    "give a finite capacity in NIC rates, 0 for a failed link"
                )
            if array is getattr(self, field) and array.flags.writeable:
                array = array.copy()
            array.setflags(write=False)
            object.__setattr__(self, field, array)

    @classmethod
    def uniform(
        cls,
        tors: int,
        spines: int,
        cables: int = 1,
        capacity: float = 1.0,
        nics_per_tor: int | None = None,
    ) -> "Clos":
        """Return a fabric without failures whose links are all alike.

        Parameters
        ----------
        tors, spines : int
            Number of leaf and of spine switches.
        cables : int, default 1
            Cables between each ToR and spine, which act as one link.
        capacity : float, default 1.0
            Of one cable in each direction, in units of a NIC's rate.
        nics_per_tor : int, optional
            By default as many as a ToR has cables up, at their capacity (no oversubscription).

        Returns
        -------
        Clos

        Raises
        ------
        InputError
            If a number is not positive, or there are more than `MOST` links up or NICs.
        """
        if tors < 1 or spines < 1 or cables < 1 or not (np.isfinite(capacity) and capacity > 0):
            raise InputError(
                f"a uniform Clos of {counted(tors, 'ToR')}, {spines} spines, {cables} cables a "
                f"pair of capacity {capacity}; give positive numbers"
            )
        if tors * spines > MOST:
            raise InputError(
                f"a Clos of {tors} ToRs x {spines} spines has too many links; give at most "
                f"{MOST} pairs of ToR and spine"
            )
        nics = int(spines * cables * capacity) if nics_per_tor is None else nics_per_tor
        return cls(
            tors,
            spines,
            np.full((tors, spines), cables * float(capacity)),
            np.full((spines, tors), cables * float(capacity)),
            nics,
        )

    def with_failed_spines(self, spines: Iterable[int]) -> "Clos":
        """Return the fabric without the links of these spines.

        Parameters
        ----------
        spines : iterable of int
            Spines that failed; may be empty or name a spine twice.

        Returns
        -------
        Clos
        """
        up, down = self.up.copy(), self.down.copy()
        for spine in spines:
            self._check("spine", spine, self.spines)
            up[:, spine] = 0.0
            down[spine] = 0.0
        return replace(self, up=up, down=down)

    def with_share(
        self, tor: int, spine: int, share: float, direction: Direction = "both"
    ) -> "Clos":
        """Return the fabric with a share of the capacity that a ToR and a spine have now.

        Parameters
        ----------
        tor, spine : int
            The ends.
        share : float
            0 for none (some of several cables lost, a lower rate).
        direction : {"both", "up", "down"}
            Which direction changes.

        Returns
        -------
        Clos
        """
        self._check("tor", tor, self.tors)
        self._check("spine", spine, self.spines)
        if direction not in ("both", "up", "down"):
            raise InputError(f"direction is {direction!r}; choose both, up or down")
        up, down = self.up.copy(), self.down.copy()
        if direction != "down":
            up[tor, spine] *= share
        if direction != "up":
            down[spine, tor] *= share
        return replace(self, up=up, down=down)

    def live(self, source_tor: int | Ints, target_tor: int | Ints) -> Flags:
        """Return which spines carry traffic between ToRs.

        Parameters
        ----------
        source_tor, target_tor : int, or int64 arrays of one shape
            The ToRs.

        Returns
        -------
        bool array, shape (..., spines)
            True where both the link up and the link down have capacity.
        """
        usable: Flags = (self.up[source_tor] > 0) & (self.down.T[target_tor] > 0)
        return usable

    @cached_property
    def capacity(self) -> Floats:
        """Capacity of all directed links, shape (2 * tors * spines,), in units of a NIC's rate."""
        links = np.concatenate((self.up.ravel(), self.down.T.ravel()))
        links.setflags(write=False)
        return links

    @cached_property
    def live_spines(self) -> Ints:
        """Spines with at least one live link up and one down, ascending."""
        found = np.flatnonzero((self.up > 0).any(axis=0) & (self.down > 0).any(axis=1))
        return found.astype(np.int64)

    @cached_property
    def core_failures_only(self) -> bool:
        """Whether every live spine reaches all ToRs with one and the same capacity."""
        up, down = self.up[:, self.live_spines], self.down[self.live_spines]
        return bool(up.size == 0 or (np.all(up == up[0, 0]) and np.all(down == up[0, 0])))

    def _check(self, what: str, value: int, count: int) -> None:
        if not 0 <= value < count:
            raise InputError(f"{what} {value} does not exist; choose one of 0..{count - 1}")
