"""`topoopt space`: what a search may choose, and how much that is."""

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.base.text import table_lines
from topoopt.cli import common

if TYPE_CHECKING:
    from parallelism.search.size import SpaceSize, TiedGroup


def space_command(
    model: common.Model,
    servers: common.Servers,
    gpus: common.Gpus = 4,
    batch: common.Batch = None,
    no_parameter_splits: Annotated[
        bool,
        typer.Option(
            "--no-parameter-splits",
            help="Split operators by samples only; profiles measure no other splits.",
        ),
    ] = False,
    as_json: common.AsJson = False,
) -> None:
    """Print the choices of each group of identical operators, and the size of the space.

    Example: topoopt space dlrm-16 --servers 16
    """
    from parallelism.device import Server
    from parallelism.search.size import space_size
    from parallelism.search.space import StrategySpace
    from topoopt.problem.cluster import MAX_SERVERS
    from topoopt.problem.job import Job

    if servers < 1:
        raise InputError(f"servers is {servers}; give at least 1")
    if servers > MAX_SERVERS:
        raise InputError(f"servers is {servers}; at most {MAX_SERVERS} are supported")
    job = Job(common.read_model(model), batch, Server(gpus=gpus))
    builder = job.builder(servers)
    space = StrategySpace(
        builder.graph,
        servers,
        builder.batch,
        any_parts=True,
        parameter_splits=not no_parameter_splits,
    )
    size = space_size(space)
    if as_json:
        common.print_json(_document(builder.graph.name, size))
    else:
        print("\n".join(_lines(builder.graph.name, size)))


def _document(model: str, size: "SpaceSize") -> dict[str, Any]:
    return {
        "model": model,
        "servers": size.servers,
        "global_batch": size.batch,
        "tied_strategies_log10": size.tied_log10,
        "untied_strategies_log10": size.untied_log10,
        "untied_any_placement_log10": size.any_log10,
        "groups": [
            {
                "operators": list(group.operators),
                "kind": group.kind,
                "configurations": group.configurations,
                "choices": [asdict(choice) for choice in group.choices],
            }
            for group in size.groups
        ],
    }


def _lines(model: str, size: "SpaceSize") -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("operators", "kind", "count", "degrees", "placements", "sample x parameter")
    ]
    rows += [
        (
            group.operators[0] + (" ..." if len(group.operators) > 1 else ""),
            group.kind,
            str(len(group.operators)),
            str(len(group.choices)),
            str(group.configurations),
            _degrees(group),
        )
        for group in size.groups
    ]
    return [
        f"{model} on {counted(size.servers, 'server')}, global batch {size.batch}",
        *table_lines(rows),
        f"strategies, identical operators tied:   10^{size.tied_log10:.1f}",
        f"strategies, every operator for itself:  10^{size.untied_log10:.1f}",
        f"the same, parts on any servers:         10^{size.any_log10:.1f}",
    ]


def _degrees(group: "TiedGroup") -> str:
    """Return the sample degrees, and the parameter degrees of each mode."""
    samples = sorted({c.sample for c in group.choices if c.parameter == 1})
    modes = Counter(c.mode for c in group.choices if c.parameter > 1)
    found = [",".join(map(str, samples)) + " x 1"]
    for mode in modes:
        degrees = sorted({c.parameter for c in group.choices if c.mode == mode})
        found.append(f"{mode} {','.join(map(str, degrees))}")
    return "; ".join(found)
