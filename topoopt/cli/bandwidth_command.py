"""`topoopt bandwidth`: divide bandwidth over the dimensions of a network."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base.counted import counted
from topoopt.base.option_groups import Options, option, takes
from topoopt.cli import common

if TYPE_CHECKING:
    from codesign_base.arrays import Floats
    from topoopt.bandwidth.allocate import Allocation
    from topoopt.bandwidth.explore.sweep import Sweep, SweepProgress
    from topoopt.bandwidth.model.network import MultiDimNetwork
    from topoopt.bandwidth.solve.question import Question


DESIGNS: Options = {
    "search_shapes": option(
        int | None, None, "Search all shapes of so many NPUs, in place of --network."
    ),
    "max_dimensions": option(int, 4, "Of the shapes."),
    "blocks": option(
        str, "RI(2..64),FC(3..16),SW(2..1024)",
        "Blocks that shapes may use, with their least and most members.",
    ),
    "search_parallelism": option(
        bool, False, "Search tensor x data x pipeline parallelism, too.", "--search-parallelism"
    ),
    "memory": option(
        str | None, None, "Of an NPU, for --search-parallelism; none for no limit.",
        show_default="80GB",
    ),
    "top": option(int, 10, "Designs to list."),
    "jobs": option(int, 1, "Processes of a search.", min=1),
}  # fmt: skip
"""Which designs are searched."""


@takes(DESIGNS)
def bandwidth_command(
    context: typer.Context,
    given: Mapping[str, Any],
    workload: Annotated[
        list[str],
        typer.Option(
            help="turing-nlg, gpt-3, msft-1t, dlrm, resnet-50, a model of `topoopt models` "
            "(preset:NAME where the names collide), a model file, a plan or a workload file "
            "(.txt); repeat it for several workloads."
        ),
    ],
    network: Annotated[
        str | None, typer.Option(help="RI(4)_FC(8)_RI(4)_SW(32), or a network file (YAML).")
    ] = None,
    communicator: Annotated[
        list[str] | None,
        typer.Option(
            help="Groups of each phase (YAML), one a workload.",
            show_default="the built-in workload's own",
        ),
    ] = None,
    cost: Annotated[
        str | None, typer.Option(help="Prices (YAML).", show_default="built-in table")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Sum of an NPU's bandwidths: 500GB/s exactly, '<= 500GB/s' at most."),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="time (fastest), time*cost (performance per dollar) or cost.")
    ] = "time",
    constraint: Annotated[
        list[str] | None,
        typer.Option(help="Linear constraint such as 'b0 >= 2 b1' (GB/s); repeatable."),
    ] = None,
    loop: Annotated[
        str, typer.Option(help="none, or overlap: hide gradient collectives behind each other.")
    ] = "none",
    partial_groups: Annotated[
        str,
        typer.Option(help="A group smaller than a dimension has its usable links, or full."),
    ] = "usable",
    npu_cost: Annotated[float | None, typer.Option(help="US dollars of one NPU.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Largest iteration time, with its unit.")
    ] = None,
    tensor_parallel: Annotated[
        int | None,
        typer.Option(
            help="NPUs of a tensor-parallel group.", show_default="the built-in workload's own"
        ),
    ] = None,
    together: Annotated[
        str, typer.Option(help="Several workloads: sum of relative times, or max.")
    ] = "sum",
    relative_to: Annotated[
        str,
        typer.Option(
            help="Several workloads: each time over its optimum alone, or over that at equal "
            "bandwidths of 100 GB/s (equal)."
        ),
    ] = "optimum",
    rates: Annotated[
        list[str] | None,
        typer.Option(
            help="Rates to choose from: '25,50,100GB/s', '1..16 x 25GB/s' lanes, 'b0: ...' for "
            "one dimension; repeatable."
        ),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity", help="Also solve with each limit and price 50 % less to twice."
        ),
    ] = False,
    save_network: Annotated[
        Path | None,
        typer.Option(help="Write links and capacities, for `topoopt compare --fabrics`."),
    ] = None,
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Divide bandwidth over the dimensions of a network, with proof of optimality.

    Example: topoopt bandwidth --network "RI(4)_FC(8)_RI(4)_SW(32)" --workload gpt-3
    --budget 500GB/s
    """
    from codesign_base import InputError
    from topoopt.bandwidth.model.collectives import PartialGroups
    from topoopt.bandwidth.model.cost import load_cost
    from topoopt.bandwidth.model.loops import Loop
    from topoopt.bandwidth.model.several import RelativeTo, Together
    from topoopt.bandwidth.solve.problem import AllocationObjective
    from topoopt.bandwidth.solve.question import Question
    from topoopt.cli.bandwidth_inputs import member_named, read_workload
    from topoopt.problem.units import parse_time

    searching = given["search_shapes"] is not None or given["search_parallelism"]
    if given["search_shapes"] is None:
        common.refuse_given(
            context, ("max_dimensions", "blocks"), "no shapes are searched; give --search-shapes"
        )
        if not searching:
            common.refuse_given(
                context,
                ("top", "jobs"),
                "there is one design; give --search-shapes or --search-parallelism",
            )
    if not given["search_parallelism"]:
        common.refuse_given(
            context, ("memory",), "no parallelism is searched; give --search-parallelism"
        )
    common.check_outputs(save_network, inputs=[network, cost, *workload, *(communicator or ())])
    question = Question(
        budget,
        tuple(constraint or ()),
        member_named("objective", objective, AllocationObjective),
        member_named("loop", loop, Loop),
        member_named("partial-groups", partial_groups, PartialGroups),
        load_cost(cost) if cost is not None else None,
        npu_cost,
        parse_time(deadline, "deadline") if deadline is not None else None,
    )
    joined = member_named("together", together, Together)
    reference = member_named("relative-to", relative_to, RelativeTo)
    if len(workload) == 1:
        common.refuse_given(
            context, ("together", "relative_to"), "there is one workload; leave it out"
        )
    if searching:
        unfit = {
            "--communicator": bool(communicator),
            "--rates": bool(rates),
            "--sensitivity": sensitivity,
            "a second --workload": len(workload) > 1,
            "--network": given["search_shapes"] is not None and network is not None,
        }
        for name, wrong in unfit.items():
            if wrong:
                raise InputError(f"{name} does not go with a search for designs; leave it out")
        found = _search(workload[0], network, tensor_parallel, given, quiet, question)
        _print_designs(found, as_json)
        best = found.designs[0]
        _save(save_network, best.network, best.solution.bandwidth, as_json)
        return
    if network is None:
        raise InputError("no network; give --network, or --search-shapes N to look for one")
    from topoopt.bandwidth.allocate import allocate_bandwidth
    from topoopt.bandwidth.model.communicator import load_communicator
    from topoopt.bandwidth.model.network import read_network

    fabric = read_network(network)
    answer = allocate_bandwidth(
        fabric,
        [read_workload(name, tensor_parallel) for name in workload],
        question,
        [load_communicator(path, fabric) for path in communicator] if communicator else None,
        together=joined,
        relative_to=reference,
        rates=rates or (),
    )
    _print_answer(answer, sensitivity, as_json)
    _save(save_network, fabric, answer.bandwidth, as_json)


def _print_answer(answer: "Allocation", sensitive: bool, as_json: bool) -> None:
    from topoopt.bandwidth.files.report import (
        allocation_document,
        allocation_summary,
        sensitivity_document,
        sensitivity_lines,
    )

    rows = None
    if sensitive:
        from topoopt.bandwidth.explore.sensitivity import sensitivity

        rows = sensitivity(answer)
    if as_json:
        document = allocation_document(answer)
        if rows is not None:
            document["sensitivity"] = sensitivity_document(answer, rows)
        common.print_json(document)
        return
    print(allocation_summary(answer))
    if rows is not None:
        print("\n".join(["", *sensitivity_lines(answer, rows)]))


def _search(
    workload: str,
    network: str | None,
    tensor: int | None,
    given: Mapping[str, Any],
    quiet: bool,
    question: "Question",
) -> "Sweep":
    from codesign_base import InputError
    from topoopt.bandwidth.explore.shapes import network_shapes, parse_limits
    from topoopt.bandwidth.explore.sweep import search_designs
    from topoopt.bandwidth.model.network import read_network
    from topoopt.cli.bandwidth_inputs import read_divisions
    from topoopt.problem.units import parse_bytes

    if given["search_shapes"] is not None:
        limits = parse_limits(given["blocks"])
        shapes = network_shapes(
            given["search_shapes"], given["max_dimensions"], limits, question.prices
        )
    elif network is not None:
        shapes = (read_network(network),)
    else:
        raise InputError("nothing to search; give --search-shapes N, or a --network")
    room, memory = None, given["memory"]
    if memory is not None:
        room = float("inf") if memory == "none" else parse_bytes(memory, "memory")
    parallel = given["search_parallelism"]
    divisions = read_divisions(workload, shapes[0].npus, tensor, parallel, room)
    return search_designs(
        shapes,
        divisions,
        question,
        keep=given["top"],
        jobs=given["jobs"],
        progress=None if quiet else _progress(),
    )


def _progress() -> "SweepProgress":
    seen = [-1]

    def report(done: int, total: int, best: float) -> None:
        tenth = 10 * done // total
        if tenth != seen[0]:
            seen[0] = tenth
            shown = f"{best:.6g}" if best < float("inf") else "none yet"
            print(
                f"search: {done} of {counted(total, 'design')}, best objective {shown}",
                file=sys.stderr, flush=True,
            )  # fmt: skip

    return report


def _print_designs(found: "Sweep", as_json: bool) -> None:
    from topoopt.bandwidth.files.sweep_report import sweep_document, sweep_summary

    if as_json:
        common.print_json(sweep_document(found))
    else:
        print(sweep_summary(found))


def _save(
    path: Path | None, network: "MultiDimNetwork", bandwidth: "Floats", as_json: bool
) -> None:
    if path is None:
        return
    from topoopt.bandwidth.model.links import build_network
    from topoopt.topology.network_file import save_network

    save_network(build_network(network, bandwidth), path)
    if not as_json:
        print(f"network written to {path}")
