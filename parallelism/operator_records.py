"""Models by operators and their strategies as plan files hold them."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from codesign_base import InputError
from parallelism.builder import TaskGraphBuilder
from parallelism.device import ComputeModel, RooflineModel, Server
from parallelism.graph import Mode, ModelGraph, Operator, OperatorKind, Split
from parallelism.profile import ProfileModel
from parallelism.profile_file import Profile
from parallelism.record_fields import STRICT, Amount, Count, Seconds, Whole
from parallelism.strategy import OperatorConfig, Strategy


@checked(frozen=True, config=STRICT)
class ModelOperator:
    """One operator of the model; quantities are per sample (see `parallelism.graph.Operator`)."""

    name: str
    kind: str
    inputs: list[Count]
    output_shape: list[Whole]
    forward_flops: Amount
    backward_flops: Amount
    parameters: Count
    forward_bytes: Amount
    backward_bytes: Amount
    splits: dict[str, Annotated[int, Field(ge=1)]]
    sparse: bool
    profile_key: str


@checked(frozen=True, config=STRICT)
class ModelRecord:
    """The whole model graph, so that a plan can be verified without anything else."""

    name: str
    batch_per_gpu: Whole
    element_bytes: Whole
    operators: list[ModelOperator]
    shared: list[list[Count]] = field(default_factory=list)


@checked(frozen=True, config=STRICT)
class OperatorPlan:
    """How one operator is split and placed, and how long one of its parts takes."""

    operator: str
    sample: Whole
    parameter: Whole
    mode: str
    servers: list[Count]
    forward_s: Seconds
    backward_s: Seconds
    update_s: Seconds


@checked(frozen=True, config=STRICT)
class StrategyRecord:
    """An operator strategy: how each operator is split and placed."""

    operators: list[OperatorPlan]
    kind: Literal["operators"] = "operators"


@checked(frozen=True, config=STRICT)
class OperatorQuestion:
    """A job whose operators are split one by one."""

    model: ModelRecord
    server: Server
    batch_per_gpu: Whole
    optimizer: str
    compute: dict[str, Any]
    kind: Literal["operators"] = "operators"


def strategy_record(builder: TaskGraphBuilder, strategy: Strategy) -> StrategyRecord:
    """Return a strategy as a plan file holds it, with the times of its parts."""
    records = []
    for index, config in enumerate(strategy.configs):
        times = builder.part_time(index, config.sample, config.parameter, config.mode)
        records.append(
            OperatorPlan(
                operator=builder.graph.operators[index].name,
                sample=config.sample,
                parameter=config.parameter,
                # Along which dimension a whole operator is not split means nothing.
                mode=(config.mode if config.parameter > 1 else Mode.OUTPUT).name.lower(),
                servers=[int(v) for v in config.servers],
                forward_s=float(times.forward),
                backward_s=float(times.backward),
                update_s=float(times.update),
            )
        )
    return StrategyRecord(records)


# What a record says just as the operator does; amounts as floats.
_SAME = ("name", "parameters", "sparse", "profile_key")
_AMOUNTS = ("forward_flops", "backward_flops", "forward_bytes", "backward_bytes")


def _amounts(op: Operator) -> dict[str, Any]:
    return {name: float(getattr(op, name)) for name in _AMOUNTS}


def model_record(graph: ModelGraph) -> ModelRecord:
    """Return a model graph as a plan file holds it."""
    operators = [
        ModelOperator(
            kind=str(op.kind),
            inputs=list(op.inputs),
            output_shape=list(op.output_shape),
            splits={split.mode.name.lower(): split.extent for split in op.splits},
            **{name: getattr(op, name) for name in _SAME},
            **_amounts(op),
        )
        for op in graph.operators
    ]
    shared = [list(group) for group in graph.shared]
    return ModelRecord(graph.name, graph.batch_per_gpu, graph.element_bytes, operators, shared)


def rebuild_model(record: ModelRecord) -> ModelGraph:
    """Return the model graph of a plan."""
    operators = []
    for op in record.operators:
        if op.kind not in set(OperatorKind):
            raise InputError(f"model: operator {op.name!r} has unknown kind {op.kind!r}")
        operators.append(
            Operator(
                kind=OperatorKind(op.kind),
                inputs=tuple(op.inputs),
                output_shape=tuple(op.output_shape),
                splits=tuple(Split(mode_named(m), extent) for m, extent in op.splits.items()),
                **{name: getattr(op, name) for name in (*_SAME, *_AMOUNTS)},
            )
        )
    return ModelGraph(
        record.name, tuple(operators), record.batch_per_gpu, record.element_bytes,
        tuple(tuple(group) for group in record.shared),
    )  # fmt: skip


def mode_named(name: str) -> Mode:
    """Return the split mode of this (lower-case) name."""
    try:
        return Mode[name.upper()]
    except KeyError:
        names = ", ".join(mode.name.lower() for mode in Mode)
        raise InputError(f"split mode is {name!r}; choose {names}") from None


def rebuild_strategy(graph: ModelGraph, record: StrategyRecord) -> Strategy:
    """Return the strategy that a record describes."""
    records = record.operators
    names = [op.name for op in graph.operators]
    if [each.operator for each in records] != names:
        raise InputError("strategy does not list the model's operators in their order")
    return Strategy(
        tuple(
            OperatorConfig(r.sample, r.parameter, mode_named(r.mode), tuple(r.servers))
            for r in records
        )
    )


def rebuild_compute(recorded: Mapping[str, Any], server: Server) -> ComputeModel:
    """Return the model of operator times that a record describes.

    Raises
    ------
    InputError
        If it describes none.
    """
    kind = recorded.get("kind")
    try:
        if kind == "roofline":
            return RooflineModel(
                server,
                efficiency=recorded["efficiency"],
                memory_efficiency=recorded["memory_efficiency"],
                launch_overhead=recorded["launch_overhead_s"],
                precision=recorded["precision"],
            )
        if kind == "profile":
            return ProfileModel(
                Profile.from_dict(recorded["profile"]), server, missing=recorded["missing"]
            )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"compute record is malformed ({error})") from None
    raise InputError(f"compute model kind is {kind!r}; expected 'roofline' or 'profile'")
