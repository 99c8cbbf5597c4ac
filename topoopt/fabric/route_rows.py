"""Rows of links of host pairs, made when they are first asked for."""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from codesign_base.arrays import Floats, Ints
from routing.routes import Routes

_Scalar = TypeVar("_Scalar", bound=np.generic)

MADE_AT_ONCE = 1 << 14
"""Pairs: those of more are routed part by part, because routers take several times the memory."""


class RouteRows:
    """Routes in growing arrays that kernels read; rows of other things may be added.

    The arrays are writable copies, because kernels are compiled anew for read-only ones.

    Parameters
    ----------
    routes : Routes
        Of all pairs, of some, or made on demand.
    lag : callable, optional
        Returns, of each row of some `Routes`, the seconds that a message takes beyond its bytes.
    """

    def __init__(self, routes: Routes, lag: Callable[[Routes], Floats] | None = None) -> None:
        self.hosts = routes.hosts
        self.links: npt.NDArray[np.int32] = routes.links.astype(np.int32)
        self.weights: Floats = routes.weights.copy()
        self.used = routes.links.size
        self._routes, self._lag = routes, lag
        self._lock = Lock()
        self._begin, self._end = routes.offsets[:-1], routes.offsets[1:]
        self._lags: Floats | None = None
        # Of each pair one more than its row, 0 where it was not asked for; None: rows are pairs.
        self._row: npt.NDArray[np.int32] | None = None
        if routes.pairs is not None:
            # Pages of zeros take no memory until they are written to.
            self._row = np.zeros(self.hosts * self.hosts, dtype=np.int32)
            self._row[routes.pairs] = np.arange(1, routes.pairs.size + 1)

    def entries(self, pairs: Ints) -> tuple[Ints, Ints]:
        """Return where the rows of pairs begin and end; both are the same without a route."""
        if self._row is None:
            return self._begin[pairs], self._end[pairs]
        self._need(pairs)
        rows = self._row[pairs].astype(np.int64) - 1
        if not self._begin.size:
            return np.zeros_like(pairs), np.zeros_like(pairs)
        return np.where(rows >= 0, self._begin[rows], 0), np.where(rows >= 0, self._end[rows], 0)

    def lags(self, pairs: Ints) -> Floats:
        """Return the seconds that a message of each pair takes beyond its bytes."""
        assert self._lag is not None
        if self._row is not None:
            self._need(pairs)
        if self._lags is None:
            self._lags = self._lag(self._routes)
        return self._lags[pairs if self._row is None else self._row[pairs] - 1]

    def append(self, links: Ints, weights: Floats) -> tuple[int, int]:
        """Add entries; return where they begin and end."""
        with self._lock:
            return self._append(links, weights)

    def _append(self, links: Ints, weights: Floats) -> tuple[int, int]:
        begin, end = self.used, self.used + links.size
        if end > self.links.size:
            room = max(end, 2 * self.links.size)
            # Simulations in other threads go on with the arrays they hold. What is not written to
            # takes no memory yet.
            self.links = _longer(self.links, self.used, room)
            self.weights = _longer(self.weights, self.used, room)
        self.links[begin:end] = links
        self.weights[begin:end] = weights
        self.used = end
        return begin, end

    def _need(self, pairs: Ints) -> None:
        """Make the rows of pairs that were not asked for before."""
        assert self._row is not None
        if self._routes.more is None or (self._row[pairs] > 0).all():
            return
        with self._lock:
            new = np.unique(pairs[self._row[pairs] == 0])
            if not new.size:
                return
            if new.size > MADE_AT_ONCE:
                # Each part needs the distances to its targets: better all of few than some of all.
                new = new[np.argsort(new % self.hosts, kind="stable")]
            cuts = np.arange(MADE_AT_ONCE, new.size, MADE_AT_ONCE)
            self._make([np.sort(part) for part in np.split(new, cuts)], self._routes.more)

    def _make(self, parts: list[Ints], more: Callable[..., Routes]) -> None:
        assert self._row is not None
        begins, ends, lags = [self._begin], [self._end], []
        if self._lag is not None:
            lags.append(self._lag(self._routes) if self._lags is None else self._lags)
        for new in parts:
            made = more(pairs=new)
            begin, _ = self._append(made.links, made.weights)
            begins.append(begin + made.offsets[:-1])
            ends.append(begin + made.offsets[1:])
            if self._lag is not None:
                lags.append(self._lag(made))
        first = self._begin.size
        self._begin, self._end = np.concatenate(begins), np.concatenate(ends)
        if self._lag is not None:
            self._lags = np.concatenate(lags)
        # Last, because threads that find a row here read the others without waiting.
        of = np.concatenate(parts)
        self._row[of] = np.arange(first + 1, first + of.size + 1)


def _longer(array: npt.NDArray[_Scalar], used: int, room: int) -> npt.NDArray[_Scalar]:
    """Return an array of another size with the same first places."""
    longer = np.empty(room, array.dtype)
    longer[:used] = array[:used]
    return longer
