"""Options that several commands share, and progress on standard error."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from topoopt.job import Cluster, Job
    from topoopt.prices import PriceTable
    from topoopt.search_types import Progress, ProgressCallback

Model = Annotated[
    str, typer.Argument(help="A preset (see `topoopt models`) or an operator-graph file.")
]
Servers = Annotated[int, typer.Option(help="Number of servers.")]
Degree = Annotated[int, typer.Option(help="Network ports a server.")]
Bandwidth = Annotated[str, typer.Option(help='Speed of a port each way, such as "100Gbps".')]
Ports = Annotated[str, typer.Option(help="Port model: directed or bidirectional.")]
Latency = Annotated[str, typer.Option(help='Time for one hop, such as "1us".')]
Device = Annotated[str, typer.Option(help="Accelerator: a100, h100, h200, ...")]
Gpus = Annotated[int, typer.Option("--gpus-per-server", help="GPUs a server.")]
Batch = Annotated[int | None, typer.Option("--batch-per-gpu", help="Samples a GPU; the preset's.")]
Profile = Annotated[Path | None, typer.Option(help="File of measured operator times.")]
OptimizerName = Annotated[str, typer.Option("--optimizer", help="sgd, momentum or adam.")]
Seed = Annotated[int, typer.Option(help="Same seed and steps, same plan.")]
Steps = Annotated[int | None, typer.Option(help="Search budget in strategy proposals.")]
Prices = Annotated[Path | None, typer.Option(help="Price table (JSON) instead of the default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]


def make_job(
    model: str,
    device: str,
    gpus: int,
    batch: int | None,
    profile: Path | None,
    optimizer: str,
) -> "Job":
    """Return the job that the options describe."""
    from parallelism.accelerators import get_accelerator
    from parallelism.device import Server
    from parallelism.model_file import load_model
    from parallelism.models import get_model
    from topoopt.job import Job

    # A suffix or a separator makes it a file; presets have neither.
    is_file = Path(model).suffix.lower() in (".yaml", ".yml", ".json") or "/" in model
    graph = load_model(Path(model)) if is_file else get_model(model)
    server = Server(accelerator=get_accelerator(device), gpus=gpus)
    return Job(graph, batch, server, profile, optimizer)


def make_cluster(servers: int, degree: int, bandwidth: str, ports: str, latency: str) -> "Cluster":
    """Return the cluster that the options describe."""
    from topoopt.job import Cluster

    return Cluster(servers, degree, bandwidth, ports, latency)


def make_prices(path: Path | None) -> "PriceTable | None":
    """Return the user's price table, if one is given."""
    if path is None:
        return None
    from topoopt.prices import load_prices

    return load_prices(path)


def print_json(document: Any) -> None:
    """Print a JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


@contextmanager
def progress_reports(quiet: bool) -> "Iterator[ProgressCallback | None]":
    """Show a search's progress on standard error: a live line on a terminal, else a few lines.

    Yields
    ------
    callable or None
        To be given to the search.
    """
    if quiet:
        yield None
        return
    from topoopt_base.jit import compiled_cache_is_warm

    if not compiled_cache_is_warm():
        print("first run: compiling kernels (10 to 20 s, once)", file=sys.stderr, flush=True)
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("starting") as status:
            yield lambda report: status.update(_line(report))
        return
    seen: dict[str, int] = {}

    def report_rarely(report: "Progress") -> None:
        tenth = 10 * report.done // report.total if report.total else report.done // 200
        if seen.get(report.stage) != tenth:
            seen[report.stage] = tenth
            print(_line(report), file=sys.stderr, flush=True)

    yield report_rarely


def _line(report: "Progress") -> str:
    from topoopt.units import format_time

    best = format_time(report.best) if report.best < float("inf") else "none fits yet"
    # A budget in seconds has no number of steps to count towards.
    total = f"/{report.total}" if report.total and report.total < 2**60 else ""
    return f"{report.stage}: {report.done}{total}, best {best}"


def check_writable(path: Path | None) -> None:
    """Refuse an output file that cannot be written before the work is done.

    Raises
    ------
    InputError
        If its directory does not exist, or it is a directory.
    """
    from topoopt_base import InputError

    if path is None:
        return
    if path.is_dir():
        raise InputError(f"output {path} is a directory; give a file name")
    if not path.parent.is_dir():
        raise InputError(f"output {path}: directory {path.parent} does not exist; create it first")
