"""From a strategy to its task graph, fast enough to sit inside a search.

What an operator's configuration implies (times, gradient bytes, memory, groups) is worked out
once and remembered; a build gathers these records and runs one compiled kernel.
"""

from functools import partial
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from codesign_base import InputError
from codesign_base.rows import starts, summed
from parallelism.build_kernels import build_tasks, moved_bytes
from parallelism.builder_rows import (
    GRADIENT,
    MEMORY,
    SECONDS,
    UPDATE,
    Edges,
    PortLoad,
    Record,
    StrategyRecords,
)
from parallelism.device import ComputeModel, OperatorTime, Server
from parallelism.edge_kernels import sort_rows
from parallelism.graph import Mode, ModelGraph
from parallelism.memory_kernels import PARAMETER, SAMPLE, server_memory
from parallelism.reductions import Reductions, reductions_of
from parallelism.strategy import OperatorConfig, Strategy
from parallelism.strategy_rotation import rotated_strategy
from parallelism.taskgraph import TaskGraph, member_bytes


class TaskGraphBuilder:
    """Builds task graphs of one model on one kind of server.

    Parameters
    ----------
    graph : ModelGraph
    compute : ComputeModel
        Times of operator parts.
    server : Server
        GPUs and intra-server reduction.
    servers : int
        Number of servers.
    batch : int
        Global batch, samples an iteration.
    optimizer_states : int
        Extra copies of every parameter that the optimizer keeps (SGD 0, momentum 1, Adam 2).
    """

    def __init__(
        self,
        graph: ModelGraph,
        compute: ComputeModel,
        server: Server,
        servers: int,
        batch: int,
        optimizer_states: int = 0,
    ) -> None:
        if servers < 1:
            raise InputError(f"servers is {servers}; give at least 1")
        if batch < 1:
            raise InputError(f"global batch is {batch}; give at least 1")
        self.graph = graph
        self.compute = compute
        self.server = server
        self.servers = servers
        self.batch = batch
        self.optimizer_states = optimizer_states
        self._lock = RLock()
        self._records: dict[tuple[int, int], Record] = {}
        self._part_times: dict[tuple[int, int, int, Mode], OperatorTime] = {}
        self._group_ids: dict[tuple[int, ...], int] = {}
        self._groups: list[tuple[int, ...]] = []
        # Identical operators share their measured or modelled times.
        signatures: dict[tuple[object, ...], int] = {}
        self._representative = [
            signatures.setdefault(
                (op.kind, op.output_shape, op.forward_flops, op.backward_flops, op.parameters,
                 op.forward_bytes, op.backward_bytes, op.splits, op.sparse, op.profile_key),
                index,
            )
            for index, op in enumerate(graph.operators)
        ]  # fmt: skip
        edges = [
            (source, index)
            for index, op in enumerate(graph.operators)
            for source in sorted(set(op.inputs))
        ]
        self._last: StrategyRecords | None = None
        self._of_microbatch: dict[int, TaskGraphBuilder] = {}
        beside = [graph.inputs_side_by_side(index) for index in range(len(graph.operators))]
        self._edges = Edges(
            np.array([e[0] for e in edges], dtype=np.int64),
            np.array([e[1] for e in edges], dtype=np.int64),
            np.array([graph.output_bytes(e[0]) * batch for e in edges]),
            np.array([beside[e[1]].get(e[0], (0, 0)) for e in edges], dtype=np.int64)
            .reshape(len(edges), 2).T.copy(),
            np.array([op.features for op in graph.operators], dtype=np.int64),
        )  # fmt: skip
        self._is_sink = np.array([not readers for readers in graph.consumers])

    def __reduce__(self) -> tuple[type["TaskGraphBuilder"], tuple[Any, ...]]:
        """Return what is sent to another process: nothing that can be worked out there."""
        return TaskGraphBuilder, (
            self.graph, self.compute, self.server, self.servers, self.batch, self.optimizer_states,
        )  # fmt: skip

    def of_microbatch(self, microbatches: int) -> "TaskGraphBuilder":
        """Return the (remembered) builder of one of so many equal parts of the batch.

        Raises
        ------
        InputError
            If the global batch is not divisible.
        """
        if self.batch % microbatches:
            raise InputError(
                f"microbatches is {microbatches}, which does not divide the global batch "
                f"{self.batch}; choose a divisor"
            )
        with self._lock:
            if microbatches not in self._of_microbatch:
                self._of_microbatch[microbatches] = TaskGraphBuilder(
                    self.graph,
                    self.compute,
                    self.server,
                    self.servers,
                    self.batch // microbatches,
                    self.optimizer_states,
                )
            return self._of_microbatch[microbatches]

    @property
    def representatives(self) -> list[int]:
        """For each operator, the first operator that is alike in everything but its place."""
        return list(self._representative)

    def part_time(self, index: int, sample: int, parameter: int, mode: Mode) -> OperatorTime:
        """Return the (remembered) times of one part of an operator."""
        representative = self._representative[index]
        key = (representative, sample, parameter, mode if parameter > 1 else Mode.OUTPUT)
        found = self._part_times.get(key)
        if found is None:
            found = self.compute.operator_time(
                self.graph, representative, self.batch, sample, parameter, mode
            )
            self._part_times[key] = found
        return found

    def _record(self, index: int, config: OperatorConfig) -> Record:
        key = (index, id(config))
        record = self._records.get(key)
        if record is None:
            # Chains in several threads share one builder; numbering groups must not race.
            with self._lock:
                record = self._records.get(key) or self._new_record(index, config)
                self._records[key] = record
        return record

    def _new_record(self, index: int, config: OperatorConfig) -> Record:
        op = self.graph.operators[index]
        times = self.part_time(index, config.sample, config.parameter, config.mode)
        gradient = self.graph.parameter_bytes(index) / config.parameter
        # A table's shards on the GPUs of a server are not copies of each other.
        inside = 0.0 if op.sparse else self.server.intra_allreduce_time(gradient)
        ids = []
        for group in config.groups:
            number = self._group_ids.setdefault(group, len(self._groups))
            if number == len(self._groups):
                self._groups.append(group)
            ids.append(number)
        return Record(
            config=config,
            splits=(
                config.sample, config.parameter, int(config.mode.slices_input),
                int(config.mode.slices_output), int(config.mode),
            ),
            times=(
                times.forward, times.backward, times.update, gradient, inside,
                self.part_memory(index, config.sample, config.parameter, config.mode),
            ),
            groups=np.array(ids, dtype=np.int64),
        )  # fmt: skip

    def part_memory(self, index: int, sample: int, parameter: int, mode: Mode) -> float:
        """Return the bytes that one part of an operator holds on each GPU of its server.

        Dense weights and gradients are replicated on the server's GPUs; embedding tables are
        sharded over them, and need a gradient buffer only where they are replicated over servers
        (otherwise touched rows are updated in place). Activations are kept for the backward pass,
        spread over the GPUs by sample.

        Parameters
        ----------
        index : int
            Operator.
        sample, parameter, mode
            The split, as in `OperatorConfig`.

        Returns
        -------
        float
            Bytes per GPU.
        """
        op, gpus = self.graph.operators[index], self.server.gpus
        weights = op.parameters * self.graph.element_bytes / parameter
        if op.sparse:
            copies = 1.0 + self.optimizer_states + (1.0 if sample > 1 else 0.0)
            weights = weights / gpus
        else:
            copies = 2.0 + self.optimizer_states
        share = parameter if mode.slices_output else 1
        outputs = op.output_elements * self.graph.element_bytes * self.batch / sample / share / gpus
        return weights * copies + outputs

    def memory(self, strategy: Strategy) -> npt.NDArray[np.float64]:
        """Return the bytes that a strategy needs on each GPU of every server.

        The parts (`part_memory`), and the inputs that parts receive from elsewhere. Where a
        producer is split or placed otherwise than its reader, all of the input counts as
        received, also what happens to be on the same server.

        Parameters
        ----------
        strategy : Strategy

        Returns
        -------
        float64 array, shape (servers,)
            Bytes per GPU.
        """
        rows = self._gather(strategy)
        return server_memory(
            rows.splits, rows.offsets, rows.servers, rows.times[MEMORY],
            *self._edges, self.server.gpus, self.servers,
        )  # fmt: skip

    def _gather(self, strategy: Strategy) -> StrategyRecords:
        """Return a strategy's records as arrays; only what differs from the last is looked up."""
        configs, last = strategy.configs, self._last
        if last is None or len(last.configs) != len(configs):
            records = [self._record(i, config) for i, config in enumerate(configs)]
            splits = np.array([record.splits for record in records], dtype=np.int64).T.copy()
            times = np.array([record.times for record in records]).T.copy()
        else:
            pairs = zip(last.configs, configs, strict=True)
            changed = [i for i, (old, new) in enumerate(pairs) if old is not new]
            if not changed:
                return last
            records, splits, times = [*last.records], last.splits.copy(), last.times.copy()
            for index in changed:
                record = records[index] = self._record(index, configs[index])
                splits[:, index] = record.splits
                times[:, index] = record.times
        offsets = starts(splits[SAMPLE] * splits[PARAMETER])
        rows = StrategyRecords(
            configs, tuple(records), splits, times, offsets,
            np.concatenate([record.config.servers_array for record in records]),
        )  # fmt: skip
        # Replaced as a whole, so that chains in several threads may share it.
        self._last = rows
        return rows

    def device_seconds(self, strategy: Strategy) -> npt.NDArray[np.float64]:
        """Return for how long the device of each server computes, without building any task.

        Parameters
        ----------
        strategy : Strategy

        Returns
        -------
        float64 array, shape (servers,)
            Seconds an iteration: forward and backward passes and updates of all its parts.
        """
        rows = self._gather(strategy)
        each = rows.times[:SECONDS].sum(axis=0)
        return summed(rows.servers, np.repeat(each, np.diff(rows.offsets)), self.servers)

    def port_load(self, strategy: Strategy, packet_bytes: float = 0.0) -> PortLoad:
        """Return what each server sends, in a fraction of the time that a build takes.

        Parameters
        ----------
        strategy : Strategy
        packet_bytes : float
            As of `build`.

        Returns
        -------
        PortLoad
        """
        rows = self._gather(strategy)
        transfers, sent = moved_bytes(*rows.split, *self._edges, self.servers)
        groups, _, reduced = self._reductions(rows, packet_bytes)
        twice = 2.0 * summed(reduced.group, reduced.size, len(groups))
        for members, amount in zip(groups, member_bytes(groups, twice).tolist(), strict=True):
            sent[list(members)] += amount
        parts = np.diff(rows.offsets)
        updated = parts[rows.times[UPDATE] > 0.0].sum()
        return PortLoad(
            int(2 * parts.sum() + updated + reduced.group.size + transfers), transfers, sent
        )

    def _reductions(self, rows: StrategyRecords, packet_bytes: float) -> Reductions:
        size, delay = rows.times[GRADIENT : GRADIENT + 2]
        numbers = np.concatenate([record.groups for record in rows.records])
        return reductions_of(
            rows.splits[SAMPLE], rows.splits[PARAMETER], size, delay, numbers, self._groups,
            packet_bytes,
        )  # fmt: skip

    def build(self, strategy: Strategy, packet_bytes: float = 0.0) -> TaskGraph:
        """Return the task graph of one iteration under a legal strategy.

        Transfers move exactly the overlap of the producer's and the consumer's index ranges; a
        slice of a concatenation needs what lies in it of the inputs.
        A backward pass returns each of them in the other direction. Gradients of a parameter
        shard are reduced over its replicas as soon as all of them have finished its backward
        pass, overlapping with the rest of the backward pass.

        Parameters
        ----------
        strategy : Strategy
            Must be legal (`check_legal`); it is not checked again here.
        packet_bytes : float
            Where an AllReduce has less than so many bytes for each member, gradients are in
            buckets (`parallelism.buckets`), filled in the reverse order of the operators. 0: every
            gradient is reduced by itself.

        Returns
        -------
        TaskGraph
        """
        rows = self._gather(strategy)
        reduced = self._reductions(rows, packet_bytes)
        forward, backward, update = rows.times[:SECONDS]
        base, place, group, synced, inside, own, shard = reduced.gradients
        arrays = build_tasks(
            *rows.split, forward, backward, update, base, place, group, synced, inside, own,
            shard, *self._edges, self._is_sink,
        )  # fmt: skip
        kind, first, second, size, delay, operator, phase, part, succ_offsets, succ, pred = arrays
        if reduced.fused:
            sort_rows(succ_offsets, succ)
        tasks = TaskGraph(
            servers=self.servers,
            devices=self.servers,
            kind=kind,
            first=first,
            second=second,
            size=size,
            delay=delay,
            operator=operator,
            phase=phase,
            part=part,
            successor_offsets=succ_offsets,
            successors=succ,
            predecessors=pred,
            groups=reduced.groups,
            server_of_device=np.arange(self.servers, dtype=np.int64),
        )
        tasks.rotations.find = partial(
            rotated_strategy, rows, self._edges, self._is_sink, reduced.gradients
        )
        return tasks
