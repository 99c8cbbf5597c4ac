"""Which rank of a layout sits on which server: axes in an order, servers filled one by one."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from codesign_base.hashed_once import hashed_once
from parallelism.taskgraph import Group
from parallelism.transformers.layout import Layout

AXES = ("context", "data", "pipeline")
AxisOrder = tuple[str, str, str]
"""Of the axes, from the innermost."""


@hashed_once
@dataclass(frozen=True)
class Placement:
    """Ranks of a layout on servers.

    A *rank* is one tensor group. Its GPUs sit in one server, which may hold several ranks; or
    fill several servers, then the rank's *home* is the first of them.

    Parameters
    ----------
    layout : Layout
    gpus_per_server : int
    order : tuple of str
        The axes "context", "data" and "pipeline" from the innermost, whose neighbours share a
        server first, to the outermost. Megatron's is that of `AXES`.

    Raises
    ------
    InputError
        If tensor groups and servers do not divide each other, or the order is none.
    """

    layout: Layout
    gpus_per_server: int
    order: AxisOrder = AXES

    def __post_init__(self) -> None:
        tensor = self.layout.tensor
        if max(tensor, self.gpus_per_server) % min(tensor, self.gpus_per_server):
            raise InputError(
                f"layout: tensor is {tensor} on servers of {self.gpus_per_server} GPUs; "
                "one must divide the other"
            )
        if self.layout.expert_tensor is not None and tensor > self.gpus_per_server:
            raise InputError(
                f"layout: expert_tensor is {self.layout.expert_tensor} with tensor groups over "
                "several servers; leave it out, or give a tensor degree within a server"
            )
        if self.layout.gpus % self.gpus_per_server:
            raise InputError(
                f"layout: {counted(self.layout.gpus, 'GPU fills', 'GPUs fill')} no whole servers "
                f"of {self.gpus_per_server}; change a degree"
            )
        if sorted(self.order) != sorted(AXES):
            raise InputError(f"placement: order is {self.order}; permute {', '.join(AXES)}")

    @property
    def of_degrees(self) -> "Placement":
        """The same of a layout that has nothing but its degrees, which say where ranks are."""
        of = self.layout
        degrees = of.tensor, of.context, of.data, of.pipeline, of.expert, of.expert_tensor
        return _of_degrees(*degrees, self.gpus_per_server, self.order)

    @property
    def servers(self) -> int:
        """Servers that the layout fills."""
        return self.layout.gpus // self.gpus_per_server

    @property
    def ranks_per_server(self) -> int:
        """Tensor groups of a server, at least one."""
        return max(1, self.gpus_per_server // self.layout.tensor)

    @property
    def servers_per_rank(self) -> int:
        """Servers of a tensor group, at least one."""
        return max(1, self.layout.tensor // self.gpus_per_server)

    @cached_property
    def rank(self) -> Ints:
        """Number of each rank, shape (context, data, pipeline)."""
        sizes = {axis: getattr(self.layout, axis) for axis in AXES}
        grid = np.arange(np.prod(list(sizes.values()))).reshape(
            [sizes[axis] for axis in reversed(self.order)]
        )
        inner_first = grid.transpose(2, 1, 0)
        return np.ascontiguousarray(
            np.moveaxis(inner_first, range(3), [AXES.index(axis) for axis in self.order])
        ).astype(np.int64)

    @cached_property
    def home(self) -> Ints:
        """First server of each rank, shape (context, data, pipeline)."""
        return self.rank // self.ranks_per_server * self.servers_per_rank

    @property
    def context_spans_servers(self) -> bool:
        """Whether ranks of a context group are on different servers."""
        return bool((self.home != self.home[:1]).any())

    def rank_servers(self, rank: int) -> Group:
        """Return all servers of a rank."""
        first = rank // self.ranks_per_server * self.servers_per_rank
        return tuple(range(first, first + self.servers_per_rank))

    def expert_groups(self) -> Ints:
        """Return the ranks that share the experts of a stage.

        Returns
        -------
        int64 array, shape (groups, ranks of a group, pipeline)
            Ranks of a stage in the order of data and, within, context; each next
            `Layout.expert_ranks` of them are a group.
        """
        return self._groups(self.layout.expert_ranks)

    @cached_property
    def experts_fill_servers(self) -> bool:
        """Whether next GPUs that share experts are on one server, as many as it has of them."""
        return self.experts_together(self.gpus_per_server)

    @cached_property
    def data_across(self) -> bool:
        """Whether only data parallelism goes across servers: a rank's others are on its own.

        Servers then send each other weights and sums of gradients, for which rings suffice.
        """
        if self.servers_per_rank > 1 or self.layout.expert_ranks > self.ranks_per_server:
            return False
        stages_and_context = (self.home == self.home[:1, :, :1]).all()
        return bool(stages_and_context) and self.experts_together(
            self.layout.expert_ranks * self.layout.tensor
        )

    def experts_together(self, gpus: int) -> bool:
        """Whether each next so many GPUs that share experts are on one server.

        Parameters
        ----------
        gpus : int
            All of a group with fewer; otherwise they divide it.
        """
        groups = self.expert_groups() // self.ranks_per_server
        together = min(groups.shape[1], max(1, gpus // self.layout.tensor))
        if groups.shape[1] % together:
            return False
        servers = groups.reshape(len(groups), -1, together, self.layout.pipeline)
        return bool((servers == servers[:, :, :1]).all())

    def context_groups(self) -> Ints:
        """Return the ranks that share each sample, shape (groups, context, pipeline)."""
        return self._groups(self.layout.context)

    def _groups(self, size: int) -> Ints:
        return self.rank.transpose(1, 0, 2).reshape(-1, size, self.layout.pipeline)


@lru_cache(maxsize=1024)
def _of_degrees(
    tensor: int,
    context: int,
    data: int,
    pipeline: int,
    expert: int,
    expert_tensor: int | None,
    gpus_per_server: int,
    order: AxisOrder,
) -> Placement:
    """Return one placement for all of these degrees, which keeps what was worked out for it."""
    layout = Layout(tensor, context, data, pipeline, expert, expert_tensor=expert_tensor)
    return Placement(layout, gpus_per_server, order)


def axis_orders(layout: Layout, axes: AxisOrder = AXES) -> list[AxisOrder]:
    """Return the orders of axes that place ranks differently.

    Parameters
    ----------
    layout : Layout
    axes : tuple of str, optional
        Degrees of the layout, in the order that comes first.

    Returns
    -------
    list of tuple of str
        The given one first (Megatron's by default); axes of degree 1 are not moved.
    """
    seen: set[tuple[str, ...]] = set()
    found: list[AxisOrder] = []
    for first, second, third in permutations(axes):
        order = (first, second, third)
        moved = tuple(axis for axis in order if getattr(layout, axis) > 1)
        if moved not in seen:
            seen.add(moved)
            found.append(order)
    return found


def different_orders(layout: Layout, gpus_per_server: int) -> tuple[AxisOrder, ...]:
    """Return the orders of axes that put other ranks together on servers.

    Parameters
    ----------
    layout : Layout
    gpus_per_server : int

    Returns
    -------
    tuple of tuple of str
        Of `axis_orders` the first of those that differ in the numbers of servers only.
    """
    degrees = layout.tensor, layout.context, layout.data, layout.pipeline
    return _different_orders(*degrees, gpus_per_server)


@lru_cache(maxsize=1024)
def _different_orders(
    tensor: int, context: int, data: int, pipeline: int, gpus_per_server: int
) -> tuple[AxisOrder, ...]:
    layout = Layout(tensor, context, data, pipeline)
    found: dict[bytes, AxisOrder] = {}
    for order in axis_orders(layout):
        home = Placement(layout, gpus_per_server, order).home.ravel()
        _, first, server = np.unique(home, return_index=True, return_inverse=True)
        # Servers numbered as they come: equal for ranks that sit together alike.
        found.setdefault(np.argsort(np.argsort(first))[server].tobytes(), order)
    return tuple(found.values())
