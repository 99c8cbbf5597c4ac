"""The parallelization: a strategy operator by operator, or a layout with its memory by stage."""

from parallelism.operator_family import OperatorFamily
from parallelism.operator_records import OperatorPlan, OperatorQuestion, StrategyRecord
from parallelism.operator_text import server_names
from parallelism.strategy import Strategy
from parallelism.transformers.records import LayoutRecord
from parallelism.transformers.schedules import SCHEDULE_WORDS
from parallelism.transformers.text import order_text, stage_map_text
from topoopt.problem.units import format_bytes, format_count, format_time
from topoopt.report.evaluation import Evaluation
from topoopt.report.layers import layer_names
from topoopt.report.markup import Html, element, joined, number, table
from topoopt.report.ranks import ranks_section

_OPERATORS = ("operators", "kind", "count", "split", "servers", "forward", "backward", "update",
              "memory per GPU")  # fmt: skip
_DEGREES = ("tensor", "context", "data", "pipeline", "expert", "microbatch", "virtual_stages")
_MEMORY = ("weights", "gradients", "optimizer", "activations", "buffers", "runtime", "total")


def parallelization_section(found: Evaluation) -> Html:
    """Return the section of what is split how, in the terms of the plan's family."""
    record, family = found.plan.parallelization, found.built.family
    if isinstance(record, LayoutRecord):
        return _layout(found, record)
    assert isinstance(family, OperatorFamily)  # of the same kind as the record
    return _strategy(found, record, _part_bytes(family, found.built.strategy))


def _part_bytes(family: OperatorFamily, strategy: Strategy) -> tuple[float, ...]:
    """Return the bytes that one part of each operator holds on a GPU."""
    return tuple(
        family.builder.part_memory(index, config.sample, config.parameter, config.mode)
        for index, config in enumerate(strategy.configs)
    )


def _strategy(found: Evaluation, record: StrategyRecord, memory: tuple[float, ...]) -> Html:
    """Return the table, and which operators run where for rows of several placements."""
    plan = found.plan
    assert isinstance(plan.job, OperatorQuestion)
    kinds = [op.kind for op in plan.job.model.operators]
    rows, placed = [], []
    for members in _alike(record, kinds, memory).values():
        operators = [record.operators[i] for i in members]
        first, names = operators[0], layer_names([op.operator for op in operators])
        places = list(dict.fromkeys(tuple(sorted(op.servers)) for op in operators))
        rows.append(
            (
                names,
                kinds[members[0]],
                str(len(members)),
                split_text(first),
                server_names(places[0]) if len(places) == 1 else f"{len(places)} placements",
                number(first.forward_s, format_time(first.forward_s)),
                number(first.backward_s, format_time(first.backward_s)),
                number(first.update_s, format_time(first.update_s)),
                number(memory[members[0]], format_bytes(memory[members[0]])),
            )
        )
        if len(places) > 1:
            placed.append(_placements(names, operators))
    words = (
        "Times and memory are those of one part of one operator; memory counts parameters, "
        "gradients, optimizer state and outputs. With what parts receive from other servers the "
        "fullest GPU holds "
    )
    return joined(
        element("p", words, _fullest(found), ". The strategy comes from ",
                element("em", plan.origin), ".", class_="note"),
        table(_OPERATORS, rows, words={0, 1, 3, 4}, caption="The strategy, operator by operator"),
        placed,
    )  # fmt: skip


def _fullest(found: Evaluation) -> Html:
    """Return how much of its memory the fullest GPU uses."""
    used = found.plan.memory_per_gpu_bytes
    return joined(
        number(used, format_bytes(used)), f" of {format_bytes(found.built.family.memory_limit)}"
    )


def _alike(
    record: StrategyRecord, kinds: list[str], memory: tuple[float, ...]
) -> dict[tuple[object, ...], list[int]]:
    """Return operators by all that a row shows but their placement."""
    rows: dict[tuple[object, ...], list[int]] = {}
    for index, op in enumerate(record.operators):
        mode = op.mode if op.parameter > 1 else ""
        times = (op.forward_s, op.backward_s, op.update_s, memory[index])
        # Where all hold the same servers the row names them; see the details where not.
        key = (kinds[index], op.sample, op.parameter, mode, len(op.servers), *times)
        rows.setdefault(key, []).append(index)
    return rows


def split_text(op: OperatorPlan) -> str:
    """Return how an operator is split: degrees and mode."""
    words = []
    if op.sample > 1:
        words.append(f"{op.sample} x sample")
    if op.parameter > 1:
        words.append(f"{op.parameter} x {op.mode}")
    return ", ".join(words) or "whole"


def _placements(names: str, operators: list[OperatorPlan]) -> Html:
    rows = [(op.operator, server_names(tuple(op.servers))) for op in operators]
    return element(
        "details",
        element("summary", f"Where {names} run"),
        table(("operator", "servers"), rows, words={0, 1}, caption=f"Placements of {names}"),
    )


def _layout(found: Evaluation, record: LayoutRecord) -> Html:
    """Return degrees and schedule, which ranks are neighbours, speed, and memory by stage."""
    plan, layout = found.plan, record.layout
    split = layout.expert_tensor
    counts = {name.replace("_", " "): getattr(layout, name) for name in _DEGREES}
    counts |= {"microbatches": layout.microbatches(plan.global_batch), "ZeRO": layout.zero}
    rows: list[tuple[str, str]] = [(name, number(n, str(n))) for name, n in counts.items()]
    rows += [
        *(
            [("replicate", number(layout.replicate, str(layout.replicate)))]
            * (layout.replicate > 1)
        ),
        *([("expert tensor", number(split, str(split)))] if split is not None else []),
        *(
            [("layers of parts", stage_map_text(layout.stage_layers))]
            if layout.stage_layers
            else []
        ),
        (
            "schedule",
            f"{layout.schedule}: {SCHEDULE_WORDS[layout.schedule]}"
            if layout.pipeline > 1
            else "no pipeline",
        ),
        ("recomputation", ", ".join(layout.modules) or layout.recompute),
        ("sequence parallel", "yes" if layout.tensor > 1 and layout.sequence_parallel else "no"),
    ]
    speed: Html | str = ""
    if plan.tokens_per_s is not None and plan.model_flops_utilisation is not None:
        speed = joined(
            number(plan.tokens_per_s, format_count(plan.tokens_per_s)),
            " tokens/s, model FLOP utilisation ",
            number(plan.model_flops_utilisation, f"{plan.model_flops_utilisation:.1%}"),
            "; ",
        )
    stages = [
        (str(stage), *(number(size, format_bytes(size)) for size in sizes))
        for stage, sizes in enumerate(
            [float(getattr(use, kind)) for kind in _MEMORY] for use in record.stages
        )
    ]
    return joined(
        element("p", speed, f"{order_text(record.order, layout)}.", class_="note"),
        table(("what", "value"), rows, words={0}, caption="Degrees of parallelism and schedule",
              kind="pairs"),
        ranks_section(found, layout),
        element("h3", "Memory"),
        element("p", "Bytes on one GPU of each pipeline stage. The fullest holds ",
                _fullest(found), " that may be used.", class_="note"),
        table(("stage", *_MEMORY), stages, words=set(), caption="Memory per GPU by stage"),
    )  # fmt: skip
