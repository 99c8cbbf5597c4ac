"""Fabrics from the words of the command line: failed spines, failed and degraded links."""

import re
from collections.abc import Sequence
from typing import cast

from codesign_base import InputError
from routing.clos.fabric import Clos, Direction
from topoopt.problem.units import parse_time

_LINK = re.compile(r"([0-9]{1,18}):([0-9]{1,18})(?::(up|down))?")
_DEGRADED = re.compile(r"([0-9]{1,18}):([0-9]{1,18}):([0-9]*\.?[0-9]+)(?::(up|down))?")


def make_fabric(
    tors: int,
    spines: int,
    *,
    cables: int = 1,
    nics_per_tor: int | None = None,
    fail_spines: int = 0,
    fail_links: Sequence[str] = (),
    degrade: Sequence[str] = (),
) -> Clos:
    """Return a fabric with failures.

    Parameters
    ----------
    tors, spines : int
    cables : int
        Between each ToR and spine, each of a NIC's rate.
    nics_per_tor : int, optional
        By default ``spines * cables``.
    fail_spines : int
        How many spines have failed: those of the lowest numbers (all are alike).
    fail_links : sequence of str
        ``"tor:spine"``, ``"tor:spine:up"`` or ``"tor:spine:down"``.
    degrade : sequence of str
        ``"tor:spine:share"`` with an optional direction; the share of the capacity that is left,
        more than 0 and less than 1.

    Returns
    -------
    Clos

    Raises
    ------
    InputError
        If an entry is malformed or names what does not exist.
    """
    if nics_per_tor is not None and nics_per_tor < 1:
        raise InputError(f"nics-per-tor is {nics_per_tor}; give 1 or more")
    clos = Clos.uniform(tors, spines, cables, nics_per_tor=nics_per_tor)
    if not 0 <= fail_spines < spines:
        raise InputError(
            f"fail-spines is {fail_spines}; give 0..{spines - 1}, so that at least one spine lives"
        )
    clos = clos.with_failed_spines(range(fail_spines))
    for text in fail_links:
        match = _LINK.fullmatch(text)
        if match is None:
            raise InputError(f"fail-link {text!r} is not tor:spine, tor:spine:up or tor:spine:down")
        clos = clos.with_share(int(match[1]), int(match[2]), 0.0, _direction(match[3]))
    for text in degrade:
        match = _DEGRADED.fullmatch(text)
        if match is None or not 0 < float(match[3]) < 1:
            raise InputError(
                f"degrade {text!r} is not tor:spine:share with a share between 0 and 1, "
                "optionally followed by :up or :down"
            )
        clos = clos.with_share(int(match[1]), int(match[2]), float(match[3]), _direction(match[4]))
    return clos


def _direction(way: str | None) -> Direction:
    return cast(Direction, way or "both")


def failures_at(clos: Clos, failures: Sequence[str]) -> list[tuple[float, Clos]]:
    """Return the fabric after each failure of a spine on the way.

    Parameters
    ----------
    clos : Clos
        Before.
    failures : sequence of str
        ``"time:spine"`` (``"5s:3"``), in any order.

    Returns
    -------
    list of (float, Clos)
        Seconds and the fabric from then on, ascending.

    Raises
    ------
    InputError
        If an entry is malformed, or names a spine that is down.
    """
    timed = []
    for text in failures:
        time, _, spine = text.rpartition(":")
        if not time or not re.fullmatch(r"[0-9]{1,18}", spine):
            raise InputError(f"fail-spine-at {text!r} is not time:spine, for example 5s:3")
        timed.append((parse_time(time, "fail-spine-at", allow_zero=True), int(spine)))
    found = []
    for moment, spine_number in sorted(timed):
        after = clos.with_failed_spines([spine_number])
        if not clos.up[:, spine_number].any() and not clos.down[spine_number].any():
            raise InputError(
                f"fail-spine-at names spine {spine_number}, which is down before; name one that "
                "lives, or leave it out"
            )
        clos = after
        found.append((moment, clos))
    return found
