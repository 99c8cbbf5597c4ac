"""Small random jobs that several test modules share."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

from hypothesis import strategies as st

from parallelism.graph import Mode, ModelGraph, Operator, OperatorKind, Split
from parallelism.operator_family import OperatorFamily
from parallelism.strategy import OperatorConfig, Strategy

FEATURES = 12
BATCH = 24
SPLITS = (Split(Mode.OUTPUT, FEATURES), Split(Mode.REDUCTION, FEATURES),
          Split(Mode.HEADS, FEATURES), Split(Mode.CHANNEL, FEATURES))  # fmt: skip


@dataclass(frozen=True)
class FixedTime:
    forward: float
    backward: float
    update: float


@dataclass(frozen=True)
class FakeCompute:
    """Times that are not linear in the parts: a fixed share does not shrink."""

    with_update: bool = True
    fixed: float = 0.0

    def operator_time(self, graph, index, batch, sample, parameter, mode):
        work = (1 + index % 3) / (sample * parameter) + self.fixed
        return FixedTime(work, 2 * work, 0.1 / parameter if self.with_update else 0.0)


@dataclass(frozen=True)
class FakeServer:
    gpus: int = 2

    def intra_allreduce_time(self, size):
        return size * 1e-9 if self.gpus > 1 else 0.0


def operator(name, inputs, parameters=1000, sparse=False):
    return Operator(
        name, OperatorKind.DENSE, tuple(inputs), (FEATURES,), 1.0, 2.0, parameters, 1.0, 1.0,
        SPLITS, sparse, name,
    )  # fmt: skip


def family_of(builder):
    """Return the family of a builder whose servers have endless memory."""
    server = SimpleNamespace(accelerator=SimpleNamespace(memory_bytes=float("inf")))
    return OperatorFamily(builder, server, builder.compute, 1, "sgd")


@st.composite
def jobs(draw, sizes=(1, 2, 3, 4, 6, 8)):
    """Draw (model graph, legal strategy, servers) for a batch of `BATCH` samples."""
    servers = draw(st.sampled_from(sizes))
    count = draw(st.integers(1, 5))
    ops = []
    for i in range(count):
        inputs = draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else []
        ops.append(
            operator(f"op{i}", inputs, draw(st.sampled_from([0, 1000])), draw(st.booleans()))
        )
    configs = []
    for _ in ops:
        sample = draw(st.sampled_from([s for s in (1, 2, 3, 4, 6, 8) if s <= servers]))
        parameter = draw(st.sampled_from([p for p in (1, 2, 3, 4, 6) if sample * p <= servers]))
        chosen = draw(st.permutations(range(servers)))[: sample * parameter]
        configs.append(
            OperatorConfig(sample, parameter, draw(st.sampled_from(list(Mode))), tuple(chosen))
        )
    return ModelGraph("random", tuple(ops), 1), Strategy(tuple(configs)), servers


@st.composite
def concat_jobs(draw, sizes=(1, 2, 3, 4, 6)):
    """Draw (model graph, legal strategy, servers) of tables and a dense layer side by side.

    Some are joined in a concatenation that may be split by channels, wherever its inputs begin.
    """
    servers = draw(st.sampled_from(sizes))
    widths = draw(st.lists(st.sampled_from([1, 2, 3, 5, 6, 12]), min_size=2, max_size=4))
    ops = []
    for i, width in enumerate(widths):
        splits = tuple(Split(mode, width) for mode in (Mode.OUTPUT, Mode.REDUCTION, Mode.CHANNEL))
        sparse = i > 0
        made = operator(f"in{i}", [], draw(st.sampled_from([0, 1000])), sparse)
        ops.append(replace(made, output_shape=(width,), splits=splits[: 2 if sparse else 3]))
    total = sum(widths)
    slices = (Split(Mode.CHANNEL, total),)
    count = len(ops)
    join = operator("concat", range(count), 0)
    ops.append(replace(join, kind=OperatorKind.CONCAT, output_shape=(total,), splits=slices))
    if draw(st.booleans()):
        through = operator("through", [len(ops) - 1], draw(st.sampled_from([0, 1000])))
        ops.append(replace(through, output_shape=(total,), splits=slices))
    rows = (Split(Mode.OUTPUT, FEATURES), Split(Mode.REDUCTION, total))
    ops.append(replace(operator("sum", [len(ops) - 1]), splits=rows))
    ops.append(operator("last", [len(ops) - 1], draw(st.sampled_from([0, 1000]))))
    configs = []
    for op in ops:
        sample = draw(st.sampled_from([s for s in (1, 2, 3, 4, 6) if s <= servers]))
        legal = [(1, Mode.OUTPUT)] + [
            (p, split.mode)
            for split in op.splits
            for p in range(2, servers // sample + 1)
            if split.extent % p == 0
        ]
        parameter, mode = draw(st.sampled_from(legal))
        chosen = draw(st.permutations(range(servers)))[: sample * parameter]
        configs.append(OperatorConfig(sample, parameter, mode, tuple(chosen)))
    return ModelGraph("tables", tuple(ops), 1), Strategy(tuple(configs)), servers
