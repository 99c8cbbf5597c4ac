"""Small random jobs that several test modules share."""

from dataclasses import dataclass
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
