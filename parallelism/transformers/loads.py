"""What one iteration of a placed layout asks of devices and network, in numbers."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from codesign_base.arrays import Floats
from parallelism.device import Server
from parallelism.transformers.architecture import Transformer
from parallelism.transformers.collectives import (
    Communication,
    end_communications,
    layer_communications,
    pipeline_send,
    tied_bytes,
    weight_bytes,
)
from parallelism.transformers.costs import layer_costs
from parallelism.transformers.end_costs import embedding_costs, head_costs
from parallelism.transformers.gpu import GpuRates
from parallelism.transformers.iteration import optimizer_seconds
from parallelism.transformers.layout import SPLIT
from parallelism.transformers.links import Links, near_links
from parallelism.transformers.pass_seconds import (
    PassSeconds,
    layer_seconds,
    part_seconds,
    scale_seconds,
    shard_seconds,
    without_bytes,
)
from parallelism.transformers.placement import Placement
from parallelism.transformers.reach import servers_reached
from parallelism.transformers.schedules import PassKind
from parallelism.transformers.stages import (
    Part,
    WeightCount,
    alike_parts,
    all_part_weights,
    parts_of,
)
from parallelism.transformers.training import Training
from parallelism.transformers.work import PassCosts

_ROWS = {
    "forward": PassKind.FORWARD,
    "recompute": PassKind.BACKWARD,
    "backward": PassKind.BACKWARD,
    "weight": PassKind.WEIGHT,
}
_AROUND = ("all-keys", "near-keys")
_VOLUMES = ("tensor", "inputs", "heads", "expert", *_AROUND)
"""What counts where its group spans servers: tensor groups gather inputs, context groups exchange
heads of linear attention; what goes round these is told apart by the tokens that it is for."""
_ROWS_OF_COLUMNS = 1 + len(_VOLUMES) + len(_AROUND)
# Of what an AllReduce sends.
_SHARE = {"allreduce": 1.0, "allgather": 0.5, "reducescatter": 0.5}


@dataclass(frozen=True, eq=False)
class Loads:
    """What one microbatch costs on one rank (tensor group), and what is synchronised.

    Parameters
    ----------
    seconds : float64 array, shape (3, parts)
        Device time of forward, backward and weight passes (`PassKind`), communication inside
        servers included, also of outputs for a stage on the same server. Where the schedule does
        not split backward passes, the second row holds both and the third is not used.
    boundary_bytes : float
        From a part to the next, and of the gradient back, over all GPUs of the rank.
    tensor_bytes : float64 array, shape (3, parts)
        Reduced over the servers of a rank in each pass; zero within one server.
    input_bytes : float64 array, shape (3, parts)
        Inputs that each rank gathers again over its servers for gradients of weights, while the
        pass runs; zero within one server.
    context_bytes : float64 array, shape (2, 3, parts)
        Keys and values (and their gradients) of all context ranks together that go round the
        context group in each pass; zero within one server. Of layers whose tokens meet all keys,
        and of those with windows or linear attention, which can hide less.
    attention_s : float64 array, shape (2, 3, parts)
        Of the seconds of each pass those of attention to what goes round, which alone can hide it;
        zero within one server.
    heads_bytes : float64 array, shape (3, parts)
        Of linear attention: sent by one rank to all ranks of its context group together (itself
        included) in each pass, there and back; zero within one server.
    expert_bytes : float64 array, shape (3, parts)
        Sent by one rank to all ranks of its expert group together (itself included) in each
        pass, there and back; zero within one server.
    gradients, weights : tuple of WeightCount
        Bytes of each part's gradients, and of its weights, on a whole rank.
    tied_bytes : float
        Gradient of an embedding that first and last stage share, as far as a rank has it; 0 if they
        do not.
    update_s : float
        Optimizer step, and what else the software does once an iteration.
    gather_rate : float
        Bytes/s at which a GPU exchanges data with the others of its server.
    exposed : float
        Share of summing gradients and gathering weights that no pass may run beside.
    beside : float
        Share of sending tokens to experts and back that runs beside the pass, as that of another
        half batch.

    Notes
    -----
    Bytes are those that links carry: payload over the share of a NIC's rate that long messages
    reach (`links.switched_links`), so that a plan's times rest on the same network as validated
    ones.
    """

    seconds: Floats
    boundary_bytes: float
    tensor_bytes: Floats
    input_bytes: Floats
    context_bytes: Floats
    attention_s: Floats
    heads_bytes: Floats
    expert_bytes: Floats
    gradients: tuple[WeightCount, ...]
    weights: tuple[WeightCount, ...]
    tied_bytes: float
    update_s: float
    gather_rate: float
    exposed: float = 0.0
    beside: float = 0.0

    def inside_s(self, placement: Placement) -> Floats:
        """Return the seconds in which GPUs pass on sums of tensor groups inside their servers."""
        share = 1.0 - 1.0 / placement.layout.tensor
        return 2.0 * share * self.tensor_bytes / self.gather_rate


def loads_of(
    training: Training,
    placement: Placement,
    rates: GpuRates,
    server: Server,
    far: Set[str] | None = None,
) -> Loads:
    """Work out what a placed layout asks for.

    Parameters
    ----------
    training : Training
    placement : Placement
        Of its layout.
    rates : GpuRates
    server : Server
    far : set of str, optional
        Of "tensor", "context" and "expert" the groups that span servers, where stages are on
        servers of their own; by default all is as in the placement.

    Returns
    -------
    Loads

    Notes
    -----
    A group within one server communicates at the server's own bandwidth, and that time is the
    device's; what crosses servers is left to the network. Of tensor groups over servers a message
    still holds ranks up by calls and copies, and GPUs of one server pass them on
    (`Loads.inside_s`); what members of other groups on one server exchange is not counted besides.
    """
    assert training.layout == placement.layout, "the placement is of another layout"
    spanning = frozenset(_far_groups(placement) if far is None else far)
    found = _loads(training, rates, server, spanning)
    if training.implementation.forwarded_tokens:
        crossing = _crossing(training.model, placement)
        found = replace(found, expert_bytes=found.expert_bytes * crossing)
    stays = _stays(placement) if far is None else np.zeros(0)
    if not stays.any():
        return found
    # What the parts of one server send each other takes its own links, and the sender's time.
    rate = placement.layout.tensor * found.gather_rate
    once = found.boundary_bytes / rate + near_links(server).intra_latency
    seconds = found.seconds.copy()
    seconds[PassKind.FORWARD, :-1] += once * stays
    seconds[PassKind.BACKWARD, 1:] += once * stays
    return replace(found, seconds=seconds)


@lru_cache(maxsize=16)
def _loads(training: Training, rates: GpuRates, server: Server, far: frozenset[str]) -> Loads:
    """Return what a layout asks for wherever its ranks are, but for the groups that span servers.

    Of tokens one copy an expert is sent.
    """
    model, layout, implementation = training.model, training.layout, training.implementation
    parts, near, sends = parts_of(model, layout), near_links(server), pipeline_send(training)
    outputs = [one for one in sends if one.group == "pipeline" and one.when == "forward"]
    known = _columns(training.of_layers, rates, server, far)
    scales = scale_seconds(training, Links.of_server(server, 1.0))
    alike = alike_parts(model, layout)
    columns: dict[int, Floats] = {}
    for index in set(alike):
        part = parts[index]
        column = known.part(part)
        for one in (shard_seconds(training, part, rates), scales):
            column[0] += (one.forward, one.backward, one.weight)
        columns[index] = column
    table = np.stack([columns[index] for index in alike], axis=2)
    seconds, attention = table[0], table[-len(_AROUND) :]
    volumes = dict(zip(_VOLUMES, table[1 : -len(_AROUND)], strict=True))
    if layout.schedule not in SPLIT:
        for both in (seconds, volumes["inputs"]):
            both[PassKind.BACKWARD] += both[PassKind.WEIGHT]
            both[PassKind.WEIGHT] = 0.0
    for carried in volumes.values():
        carried /= near.inter_efficiency
    each = layout.tensor / near.inter_efficiency
    gradients, weights = _shared_bytes(training.of_weights, each)
    return Loads(
        seconds=seconds,
        boundary_bytes=each * sum(message.size for message in outputs),
        tensor_bytes=volumes["tensor"],
        input_bytes=volumes["inputs"],
        context_bytes=np.stack([volumes[name] for name in _AROUND]),
        attention_s=attention,
        heads_bytes=volumes["heads"],
        expert_bytes=volumes["expert"],
        gradients=gradients,
        weights=weights,
        tied_bytes=tied_bytes(training) / near.inter_efficiency,
        update_s=optimizer_seconds(training, rates) + implementation.iteration_s,
        gather_rate=near.rates()[0] / near.inter_efficiency,
        exposed=1.0 - implementation.hidden("data"),
        beside=implementation.hidden("expert"),
    )


@lru_cache(maxsize=256)
def _shared_bytes(
    training: Training, each: float
) -> tuple[tuple[WeightCount, ...], tuple[WeightCount, ...]]:
    """Return the bytes of each part's gradients and weights, ``each`` times those of a GPU."""
    implementation = training.implementation
    counts = [
        weights.times(each / implementation.bucketing)
        for weights in all_part_weights(training.model, training.layout)
    ]
    gradient, weight = float(implementation.gradient_bytes), weight_bytes(training)
    return tuple(one.times(gradient) for one in counts), tuple(one.times(weight) for one in counts)


class _Columns:
    """What layers and ends of a model ask for under layouts whose layers are alike.

    A column has a row of seconds, one of bytes for each of `_VOLUMES`, and of the seconds of
    attention to each of `_AROUND`; of each kind of pass.
    """

    def __init__(
        self, training: Training, rates: GpuRates, server: Server, far: frozenset[str]
    ) -> None:
        self.training, self.rates, self.near, self.far = training, rates, near_links(server), far
        self.known: dict[object, Floats] = {}

    def part(self, part: Part) -> Floats:
        """Return the column of a part, less what depends on more of the layout."""
        kinds = part.kinds(self.training.model)
        key = (kinds, part.embedding, part.head)
        found = self.known.get(key)
        if found is None:
            found = np.zeros((_ROWS_OF_COLUMNS, len(PassKind)))
            if part.embedding or part.head:
                found = self._ends(part)
            for layer, count in kinds:
                found = found + count * self._layer(layer)
            self.known[key] = found
        return found.copy()

    def _layer(self, layer: int) -> Floats:
        found = self.known.get(layer)
        if found is None:
            one = layer_seconds(self.training, layer, self.rates, self.near, self.far)
            messages = layer_communications(self.training, layer)
            near = self.training.model.meets_few(layer)
            found = self.known[layer] = self._column(one, messages, _AROUND[near])
            if found[1 + _VOLUMES.index(_AROUND[near])].any():
                found[near - len(_AROUND)] = self._attention(layer)
        return found

    def _attention(self, layer: int) -> tuple[float, float, float]:
        """Seconds of a layer's attention forward, backward with what is done again, and later."""
        costs, kernel = layer_costs(self.training, layer), self.training.implementation.attention
        forward, again, backward, later = (
            self.rates.attention_seconds(work, kernel) for work in costs.passes
        )
        return forward, again + backward, later

    def _ends(self, part: Part) -> Floats:
        """Costs and messages of embedding and head, where a part has them."""
        costs = PassCosts()
        if part.embedding:
            costs += embedding_costs(self.training)
        if part.head:
            costs += head_costs(self.training)
        messages = end_communications(self.training, part)
        near = without_bytes(messages, self.far)
        one = part_seconds(self.training, costs, near, self.rates, self.near)
        return self._column(one, messages)

    def _column(
        self, one: PassSeconds, messages: Iterable[Communication], around: str = _AROUND[0]
    ) -> Floats:
        found = np.zeros((_ROWS_OF_COLUMNS, len(PassKind)))
        found[0] = one.forward, one.backward, one.weight
        for message in messages:
            if message.group in self.far and message.when in _ROWS:
                row = 1 + _VOLUMES.index(_volume(message, around))
                found[row, _ROWS[message.when]] += _whole(message, self.training.layout.tensor)
        return found


# What was worked out before, or is to be.
_columns = lru_cache(maxsize=256)(_Columns)


def _stays(placement: Placement) -> Floats:
    """Return the share of a stage's ranks whose outputs stay on their server, of each part."""
    layout = placement.layout
    stage = np.array(layout.part_stages[:-1], dtype=np.int64)
    step = np.array(layout.part_steps, dtype=np.int64)
    lower = np.minimum(stage, stage + step)
    return np.asarray(_next_stays(placement.of_degrees)[lower] * np.abs(step))


@lru_cache(maxsize=256)
def _next_stays(placement: Placement) -> Floats:
    """Return the share of each stage's ranks that are on a server with those of the next stage.

    After the last stage comes the first.
    """
    home = placement.home
    return np.asarray((home == np.roll(home, -1, axis=2)).mean(axis=(0, 1)))


def _far_groups(placement: Placement) -> set[str]:
    """Return the kinds of groups that span servers."""
    layout, found = placement.layout, set()
    if placement.servers_per_rank > 1:
        found.add("tensor")
    if placement.context_spans_servers:
        found.add("context")
    groups = placement.expert_groups() // placement.ranks_per_server
    if layout.expert_ranks > 1 and (groups != groups[:, :1]).any():
        found.add("expert")
    return found


def _crossing(model: Transformer, placement: Placement) -> float:
    """Return what crosses of tokens that go once to each server, over one copy an expert."""
    if model.experts is None:
        return 1.0
    servers = np.unique(placement.expert_groups()[0, :, 0] // placement.ranks_per_server).size
    ranks = placement.layout.expert
    return servers_reached(model.experts, servers) / servers_reached(model.experts, ranks)


def _volume(message: Communication, around: str) -> str:
    """Return which of `_VOLUMES` a message counts in, ``around`` if it goes round."""
    if message.when == "weight":
        return "inputs"
    if message.group == "context":
        return "heads" if message.kind == "alltoall" else around
    return message.group


def _whole(message: Communication, tensor: int) -> float:
    """Return the bytes of a message as `Loads` counts them for its group, all repetitions."""
    if message.group == "tensor":
        share = 1.0 if message.when == "weight" else _SHARE[message.kind]
        return share * message.size * message.count
    if message.kind == "ring":
        return message.size * message.ranks * message.count * tensor
    return message.size * message.count * tensor
