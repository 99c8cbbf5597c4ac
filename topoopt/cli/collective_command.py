"""`topoopt collective`: schedules of a collective on a network file, and their bound."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.base.text import table_lines
from topoopt.cli import common
from topoopt.problem.units import format_bytes, format_time, parse_bytes

if TYPE_CHECKING:
    from routing.collectives.choice import CollectiveChoice

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


def collective_command(
    network: Annotated[Path, typer.Argument(help="A network file (JSON or GraphML).")],
    collective: Annotated[
        str,
        typer.Option(help="allreduce, allgather, reduce-scatter, broadcast, reduce or all-to-all."),
    ] = "allreduce",
    root: Annotated[
        int | None,
        typer.Option(help="Host that a broadcast is from, or a reduce to.", show_default="first"),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Hosts, such as 0,4,9 or 0-15 or 0-127:8; of several groups at once 0-15/16-31.",
            show_default="all",
        ),
    ] = None,
    sizes: Annotated[
        str, typer.Option(help="Bytes of the whole buffer (all-to-all: of a host's), with units.")
    ] = "1KB,1MB,1GB",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write what is best for the last size (JSON)."),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Find fast schedules of a collective on a network, for small buffers and large ones.

    Example: topoopt collective network.json --group 0-127:8 --sizes 1MB,1GB
    """
    from routing.collectives.choice import ROOTED, choose_at_once, choose_schedules
    from topoopt.formats.collective_json import save_schedule
    from topoopt.topology.network_file import load_network

    wanted = [parse_bytes(size, "sizes") for size in sizes.split(",")]
    common.check_outputs(output, inputs=[network])
    graph = load_network(network)
    groups = [list(range(graph.hosts))]
    if group is not None:
        groups = [_hosts(part, graph.hosts) for part in group.split("/")]
    if len(groups) > 1 and (output is not None or root is not None):
        raise InputError(f"--group has {len(groups)} groups; give one with --output and --root")
    if root is None and collective in ROOTED and groups[0]:
        root = min(groups[0])
    with common.shown_steps(f"finding schedules over {counted(graph.hosts, 'host')}", quiet=False):
        if len(groups) > 1:
            choice = choose_at_once(graph, groups, collective)
        else:
            choice = choose_schedules(graph, groups[0], collective, root)
    if output is not None:
        save_schedule(graph, choice, choice.best(wanted[-1]), wanted[-1], output)
    if as_json:
        common.print_json(_report(choice, wanted))
    else:
        print(_text(choice, wanted, graph.name, [len(set(members)) for members in groups]))


def _hosts(group: str, hosts: int) -> list[int]:
    found: list[int] = []
    for part in group.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(f"--group is {group!r}; give hosts such as 0,4,9 or 0-15 or 0-127:8")
        first, last, step = match.groups()
        if last is None:
            found.append(int(first))
            continue
        if int(last) >= hosts or int(step or 1) < 1:
            raise InputError(
                f"--group has {part.strip()!r}; give hosts 0 to {hosts - 1} and a step from 1 on"
            )
        if int(last) < int(first):
            raise InputError(
                f"--group has {part.strip()!r}, whose last host is before its first; exchange them"
            )
        found += range(int(first), int(last) + 1, int(step or 1))
    return found


def _report(choice: "CollectiveChoice", sizes: list[float]) -> dict[str, Any]:
    return {
        "collective": choice.collective,
        "members": list(choice.members),
        "root": choice.root,
        "sizes": [
            {
                "bytes": size,
                "lower_bound_s": choice.bound(size),
                "best": choice.best(size).name,
                "seconds": {s.name: s.time(size) for s in choice.schedules},
            }
            for size in sizes
        ],
        "schedules": [
            {"name": s.name, "bytes_per_s": s.bytes_per_s, "latency_s": s.latency_s}
            for s in choice.schedules
        ],
        "best_from_bytes": [
            {"bytes": size, "name": schedule.name} for size, schedule in choice.crossings()
        ],
    }


def _over(groups: list[int]) -> str:
    """Say over how many hosts, of so many hosts a group."""
    if len(groups) == 1:
        return counted(groups[0], "host")
    sizes = sorted(set(groups), reverse=True)
    words = [str(size) for size in sizes]
    each = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{len(groups)} groups of {each} hosts at once"


def _text(choice: "CollectiveChoice", sizes: list[float], name: str, groups: list[int]) -> str:
    from routing.collectives.found import MOST_PACKED

    head = ("schedule", *(format_bytes(size) for size in sizes))
    rows = [
        (schedule.name, *(format_time(schedule.time(size)) for size in sizes))
        for schedule in choice.schedules
    ]
    rows.append(("no schedule below", *(format_time(choice.bound(size)) for size in sizes)))
    crossings = choice.crossings()
    steps = [
        f"{schedule.name} from {format_bytes(size)} on" if size else schedule.name
        for size, schedule in crossings
    ]
    way = "from" if choice.collective == "broadcast" else "to"
    rooted = "" if choice.root is None else f" {way} host {choice.root}"
    left_out = choice.collective != "all-to-all"
    left_out &= all(each.name not in ("trees", "joint-trees") for each in choice.schedules)
    why = f"trees of the best rate are made for up to {MOST_PACKED} hosts"
    if len(choice.members) <= MOST_PACKED:
        why = "trees of the best rate are left out: too many nodes outside the group forward"
    return "\n".join(
        [
            f"{choice.collective}{rooted} over {_over(groups)} of {name}",
            *table_lines([head, *rows]),
            f"fastest: {', '.join(steps)}",
            *["sizes are those of each group's buffer"] * (len(groups) > 1),
            *[why] * left_out,
        ]
    )
