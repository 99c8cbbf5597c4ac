"""The strategy as a table, operators that are split alike in one row."""

from parallelism.operator_text import server_names
from topoopt.plan.plan import OperatorPlan
from topoopt.problem.units import format_bytes, format_time
from topoopt.report.evaluate import Evaluation
from topoopt.report.layers import layer_names
from topoopt.report.markup import Html, element, joined, number, table

_HEAD = ("operators", "kind", "count", "split", "servers", "forward", "backward", "update",
         "memory a GPU")  # fmt: skip


def strategy_section(found: Evaluation) -> Html:
    """Return the table, and which operators run where for rows of several placements."""
    plan = found.plan
    rows, placed = [], []
    for members in _alike(found).values():
        operators = [plan.strategy[i] for i in members]
        first, names = operators[0], layer_names([op.operator for op in operators])
        places = list(dict.fromkeys(tuple(sorted(op.servers)) for op in operators))
        rows.append(
            (
                names,
                plan.model.operators[members[0]].kind,
                str(len(members)),
                split_text(first),
                server_names(places[0]) if len(places) == 1 else f"{len(places)} placements",
                number(first.forward_s, format_time(first.forward_s)),
                number(first.backward_s, format_time(first.backward_s)),
                number(first.update_s, format_time(first.update_s)),
                number(found.part_memory[members[0]], format_bytes(found.part_memory[members[0]])),
            )
        )
        if len(places) > 1:
            placed.append(_placements(names, operators))
    limit = format_bytes(plan.server["accelerator"]["memory_bytes"])
    words = (
        "Times and memory are those of one part of one operator; memory counts parameters, "
        "gradients, optimizer state and outputs. With what parts receive from other servers the "
        "fullest GPU holds "
    )
    total = number(plan.memory_per_gpu_bytes, format_bytes(plan.memory_per_gpu_bytes))
    return joined(
        element("p", words, total, f" of {limit}. The strategy comes from ",
                element("em", plan.strategy_origin), ".", class_="note"),
        table(_HEAD, rows, words={0, 1, 3, 4}, caption="The strategy, operator by operator"),
        placed,
    )  # fmt: skip


def _alike(found: Evaluation) -> dict[tuple[object, ...], list[int]]:
    """Return operators by all that a row shows but their placement."""
    rows: dict[tuple[object, ...], list[int]] = {}
    for index, op in enumerate(found.plan.strategy):
        mode = op.mode if op.parameter > 1 else ""
        kind = found.plan.model.operators[index].kind
        times = (op.forward_s, op.backward_s, op.update_s, found.part_memory[index])
        # Where all hold the same servers the row names them; see the details where not.
        key = (kind, op.sample, op.parameter, mode, len(op.servers), *times)
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
