"""Rows of links of host pairs, made when they are first asked for."""

from collections.abc import Callable
from threading import Lock

import numpy as np
import numpy.typing as npt

from routing.network import FloatArray, IntArray
from routing.routes import Routes


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

    def __init__(self, routes: Routes, lag: Callable[[Routes], FloatArray] | None = None) -> None:
        self.hosts = routes.hosts
        self.links: npt.NDArray[np.int32] = routes.links.astype(np.int32)
        self.weights: FloatArray = routes.weights.copy()
        self.used = routes.links.size
        self._routes, self._lag = routes, lag
        self._lock = Lock()
        self._begin, self._end = routes.offsets[:-1], routes.offsets[1:]
        self._lags: FloatArray | None = None
        # Which pairs have been looked at; None: all have.
        self._known: npt.NDArray[np.bool_] | None = None
        if routes.pairs is not None:
            count = self.hosts * self.hosts
            begin, end = self._begin, self._end
            # Pages of zeros take no memory until they are written to.
            self._begin, self._end = np.zeros(count, np.int64), np.zeros(count, np.int64)
            self._begin[routes.pairs], self._end[routes.pairs] = begin, end
            self._known = np.zeros(count, dtype=np.bool_)
            self._known[routes.pairs] = True
            self._known[:: self.hosts + 1] = True
            if lag is not None:
                self._lags = np.zeros(count)
                self._lags[routes.pairs] = lag(routes)

    def entries(self, pairs: IntArray) -> tuple[IntArray, IntArray]:
        """Return where the rows of pairs begin and end; both are the same without a route."""
        self._need(pairs)
        return self._begin[pairs], self._end[pairs]

    def lags(self, pairs: IntArray) -> FloatArray:
        """Return the seconds that a message of each pair takes beyond its bytes."""
        self._need(pairs)
        if self._lags is None:
            assert self._lag is not None
            self._lags = self._lag(self._routes)
        return self._lags[pairs]

    def append(self, links: IntArray, weights: FloatArray) -> tuple[int, int]:
        """Add entries; return where they begin and end."""
        with self._lock:
            return self._append(links, weights)

    def _append(self, links: IntArray, weights: FloatArray) -> tuple[int, int]:
        begin, end = self.used, self.used + links.size
        if end > self.links.size:
            room = max(end, 2 * self.links.size)
            # Simulations in other threads go on with the arrays they hold.
            self.links = np.concatenate((self.links, np.zeros(room - self.links.size, np.int32)))
            self.weights = np.concatenate((self.weights, np.zeros(room - self.weights.size)))
        self.links[begin:end] = links
        self.weights[begin:end] = weights
        self.used = end
        return begin, end

    def _need(self, pairs: IntArray) -> None:
        """Make the rows of pairs that were not asked for before."""
        if self._known is None or self._routes.more is None or self._known[pairs].all():
            return
        with self._lock:
            new = np.unique(pairs[~self._known[pairs]])
            if not new.size:
                return
            made = self._routes.more(pairs=new)
            begin, _ = self._append(made.links, made.weights)
            self._begin[new] = begin + made.offsets[:-1]
            self._end[new] = begin + made.offsets[1:]
            if self._lags is not None and self._lag is not None:
                self._lags[new] = self._lag(made)
            self._known[new] = True


__all__ = ["RouteRows"]
