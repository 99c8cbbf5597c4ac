"""`topoopt models`: the workloads that come with the program, or one of the user's."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from topoopt.base.text import table_lines
from topoopt.cli import common
from topoopt.problem.units import format_bytes, format_count, format_flops

if TYPE_CHECKING:
    from parallelism.models import ModelSummary


def models_command(
    model: Annotated[
        str | None,
        typer.Argument(
            help="One model: a preset, a model file or a config.json.", show_default="all presets"
        ),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """List the workloads with parameters, FLOPs and bytes per sample."""
    models = _summaries(model)
    if as_json:
        common.print_json([asdict(one) for one in models])
        return
    rows: list[tuple[str, ...]] = [
        ("model", "operators", "parameters", "forward/sample", "activations/sample", "batch/GPU")
    ]
    rows += [
        (
            m.name,
            str(m.operators),
            format_count(m.parameters),
            format_flops(m.forward_flops_per_sample),
            format_bytes(m.activation_bytes_per_sample),
            str(m.batch_per_gpu),
        )
        for m in models
    ]
    print("\n".join(table_lines(rows)))


def _summaries(model: str | None) -> "tuple[ModelSummary, ...]":
    from parallelism.models import list_models, summarise

    return list_models() if model is None else (summarise(common.read_model(model)),)
