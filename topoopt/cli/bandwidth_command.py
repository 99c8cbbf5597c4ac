"""`topoopt bandwidth`: divide bandwidth over the dimensions of a network."""

from typing import TYPE_CHECKING, Annotated

import typer

from topoopt.cli import common

if TYPE_CHECKING:
    from topoopt.bandwidth.workload import Workload


def bandwidth_command(
    network: Annotated[
        str, typer.Option(help="RI(4)_FC(8)_RI(4)_SW(32), or a network file (YAML).")
    ],
    workload: Annotated[
        list[str],
        typer.Option(
            help="turing-nlg, gpt-3, msft-1t, dlrm, resnet-50, a model of `topoopt models` "
            "(preset:NAME where the names collide), a model file or a workload file (.txt); "
            "repeat it for several workloads."
        ),
    ],
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
    as_json: common.AsJson = False,
) -> None:
    """Divide bandwidth over the dimensions of a network, with proof of optimality.

    Example: topoopt bandwidth --network "RI(4)_FC(8)_RI(4)_SW(32)" --workload gpt-3
    --budget 500GB/s
    """
    from topoopt.bandwidth.allocate import allocate_bandwidth
    from topoopt.bandwidth.collectives import PartialGroups
    from topoopt.bandwidth.communicator import load_communicator
    from topoopt.bandwidth.cost import load_cost
    from topoopt.bandwidth.loops import Loop
    from topoopt.bandwidth.network import read_network
    from topoopt.bandwidth.problem import Objective
    from topoopt.bandwidth.report import allocation_document, allocation_summary
    from topoopt.bandwidth.several import Together
    from topoopt.units import parse_time

    goal = Objective(_choice("objective", objective, [o.value for o in Objective]))
    training = Loop(_choice("loop", loop, [x.value for x in Loop]))
    groups = PartialGroups(
        _choice("partial-groups", partial_groups, [p.value for p in PartialGroups])
    )
    joined = Together(_choice("together", together, [t.value for t in Together]))
    fabric = read_network(network)
    answer = allocate_bandwidth(
        fabric,
        [_workload(name, tensor_parallel) for name in workload],
        [load_communicator(path, fabric) for path in communicator] if communicator else None,
        budget=budget,
        constraints=constraint or (),
        objective=goal,
        loop=training,
        partial=groups,
        cost=load_cost(cost) if cost is not None else None,
        npu_cost=npu_cost,
        deadline=parse_time(deadline, "deadline") if deadline is not None else None,
        together=joined,
    )
    if as_json:
        common.print_json(allocation_document(answer))
    else:
        print(allocation_summary(answer))


def _choice(name: str, value: str, known: list[str]) -> str:
    from codesign_base import InputError

    if value not in known:
        raise InputError(f"--{name} is {value!r}; choose {', '.join(known)}")
    return value


def _workload(name: str, tensor: int | None) -> "Workload":
    """Return a workload by name, or from a model file or a workload file."""
    from codesign_base import InputError
    from parallelism.model_file import load_model
    from parallelism.models import get_model, list_models
    from topoopt.bandwidth.builtin import NAMES, builtin_workload
    from topoopt.bandwidth.from_model import model_workload
    from topoopt.bandwidth.workload import load_workload

    if name in NAMES:
        return builtin_workload(name, tensor)
    if name.lower().endswith((".yaml", ".yml", ".json")):
        return model_workload(load_model(name), tensor or 1)
    if name.lower().endswith(".txt") or "/" in name:
        if tensor is not None:
            raise InputError(
                f"--tensor-parallel {tensor} does not apply to workload file {name!r}; "
                "its communicator says the groups"
            )
        return load_workload(name)
    preset = name.removeprefix("preset:")
    presets = [model.name for model in list_models()]
    if preset not in presets:
        raise InputError(
            f"unknown workload {name!r}; known: {', '.join(NAMES)}, {', '.join(presets)}, "
            "or a file ending in .txt, .yaml or .json"
        )
    return model_workload(get_model(preset), tensor or 1)
