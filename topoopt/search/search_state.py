"""The state of one search in a file, from which another process goes on to the same result.

States are pickled, because what searches carry is many small objects that share others. Nothing
but data classes of these packages, arrays and routers is let in again: a file made by others can
be wrong, but runs nothing.
"""

import io
import pickle
import time as clock
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from codesign_base import InputError
from codesign_base.jit import PACKAGES
from parallelism.builder import TaskGraphBuilder
from parallelism.graph import Mode
from parallelism.search.regions import Regions
from parallelism.search.searcher import Searcher
from parallelism.search.space import StrategySpace
from parallelism.strategy import OperatorConfig, Strategy
from topoopt.base.atomic import write_bytes_atomically
from topoopt.evaluate.pair import Pair
from topoopt.search.gains import Gains
from topoopt.search.joint_moves import JointMoves
from topoopt.search.result import SearchResult

_SCHEMA = b"topoopt-search/5"
# Writing may take this share of the time; and there is no need to write more often than this.
_SHARE, _EVERY_SECONDS = 0.05, 2.0
# What the pickles of arrays and random generators name beside the classes of these packages.
_NUMPY = {
    ("numpy", "dtype"), ("numpy", "ndarray"), ("numpy.random._generator", "Generator"),
    ("numpy.random._pcg64", "PCG64"), ("numpy.random._pickle", "__generator_ctor"),
    ("numpy.random._pickle", "__bit_generator_ctor"),
    ("numpy.random.bit_generator", "SeedSequence"),
    ("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence"),
    ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"), ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"), ("numpy.core.numeric", "_frombuffer"),
}  # fmt: skip
# What makes the routes of pairs when they are asked for.
_ROUTERS = {
    ("functools", "partial"), ("routing.paths", "ecmp_routes"),
    ("routing.paths", "k_shortest_routes"), ("routing.coin_change", "coin_change_routes"),
}  # fmt: skip


@dataclass
class SearchState:
    """All that a search goes on from, between two rounds; lists have an entry per chain.

    Attributes
    ----------
    result : SearchResult
        What was found so far.
    current : list of Pair
        Where the chains are.
    carried : list of (Searcher or None, JointMoves or None)
        What searches each pair, where it is under way.
    streams : list of numpy.random.Generator
    round_steps : int
        Proposals of a chain's round.
    first_round : float
        What the first round of all chains costs if it has the fewest proposals, as one score says;
        0 once it is made.
    stale : int
        Rounds without progress.
    reserve : list of Pair
        Wired, and searched by no chain yet.
    idle : list of int
        Rounds in which a chain has not progressed.
    times : list of float
        Of the chains' pairs after the round before, seconds.
    crossed : set of (Strategy, Strategy)
        Of which the second has given regions to the first.
    shared : list of JointMoves
        Neighbours that chains at one pair share.
    gains : Gains
        Of the rounds.
    yielding : float
        How much transfers yield (see `topoopt.search.yielding`).
    """

    result: SearchResult
    current: list[Pair] = field(default_factory=list)
    carried: list[tuple[Searcher | None, JointMoves | None]] = field(default_factory=list)
    streams: list[np.random.Generator] = field(default_factory=list)
    round_steps: int = 0
    first_round: float = 0.0
    stale: int = 0
    reserve: list[Pair] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    crossed: set[tuple[Strategy, Strategy]] = field(default_factory=set)
    shared: list[JointMoves] = field(default_factory=list)
    gains: Gains = field(default_factory=lambda: Gains(0.0))
    yielding: float = 0.0

    def begin(self, current: list[Pair], streams: list[np.random.Generator]) -> None:
        """Set chains to pairs, each with random numbers of its own."""
        chains = len(current)
        self.current, self.streams = current, streams
        self.carried = [(None, None)] * chains
        self.idle, self.times = [0] * chains, [float("inf")] * chains


class Searching(Protocol):
    """What a state belongs to, and every process makes of the question for itself."""

    @property
    def space(self) -> StrategySpace: ...  # noqa: D102
    @property
    def regions(self) -> Regions: ...  # noqa: D102
    @property
    def builder(self) -> TaskGraphBuilder: ...  # noqa: D102


class Keeper(Protocol):
    """Keeps the states of one search."""

    def load(self, search: Searching) -> SearchState | None:
        """Return the state to go on from; None to begin."""
        ...

    def save(self, search: Searching, state: SearchState, *, last: bool = False) -> None:
        """Keep a state; the last one in any case."""
        ...


class StateFile:
    """Keeps the last state of one search in a file.

    Parameters
    ----------
    path : pathlib.Path
    question : str
        Names everything that the search depends on; states of another are refused.
    """

    def __init__(self, path: Path, question: str) -> None:
        self.path = path
        self._head = b"\n".join((_SCHEMA, question.encode(), b""))
        self._next = 0.0

    def load(self, search: Searching) -> SearchState | None:
        """Return the state in the file; None where there is no file.

        Raises
        ------
        InputError
            If the file holds no state, or that of another search.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise InputError(f"checkpoint {self.path}: {reason}; name another file") from None
        if not content.startswith(self._head):
            raise InputError(
                f"checkpoint {self.path}: no state of this search; name another checkpoint, or "
                "remove this file"
            )
        try:
            stream = io.BytesIO(zlib.decompress(content[len(self._head) :]))
            state = _Unpickler(stream, search).load()
        except Exception:
            # A pickle that was cut or changed can raise anything.
            state = None
        if not isinstance(state, SearchState):
            raise InputError(f"checkpoint {self.path}: damaged; remove it to begin anew")
        return state

    def save(self, search: Searching, state: SearchState, *, last: bool = False) -> None:
        """Write a state, unless the one before was written a moment ago."""
        begin = clock.monotonic()
        if begin < self._next and not last:
            return
        stream = io.BytesIO()
        _Pickler(stream, search).dump(state)
        write_bytes_atomically(self.path, self._head + zlib.compress(stream.getvalue(), 1))
        end = clock.monotonic()
        self._next = end + max(_EVERY_SECONDS, (end - begin) / _SHARE)

    def remove(self) -> None:
        """Forget the search, which is over."""
        self.path.unlink(missing_ok=True)


class _Pickler(pickle.Pickler):
    """Leaves out what every process makes of the question for itself."""

    def __init__(self, stream: io.BytesIO, search: Searching) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._names = {id(value): name for name, value in _known(search).items()}

    def persistent_id(self, obj: object) -> object:
        name = self._names.get(id(obj))
        if name is not None:
            return name
        if isinstance(obj, OperatorConfig):
            # Interned again on the way in: searchers ask whether two are the same object.
            return obj.sample, obj.parameter, int(obj.mode), obj.servers
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, search: Searching) -> None:
        super().__init__(stream)
        self._known = _known(search)
        self._space = search.space

    def persistent_load(self, pid: Any) -> object:
        if isinstance(pid, str):
            return self._known[pid]
        sample, parameter, mode, servers = pid
        return self._space.config(sample, parameter, Mode(mode), servers)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NUMPY | _ROUTERS:
            return super().find_class(module, name)
        if module == "builtins" and name in ("set", "frozenset", "complex", "slice"):
            return super().find_class(module, name)
        if module.split(".")[0] in PACKAGES:
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a state")


def _known(search: Searching) -> dict[str, object]:
    return {
        "space": search.space,
        "regions": search.regions,
        "builder": search.builder,
        "graph": search.builder.graph,
    }
