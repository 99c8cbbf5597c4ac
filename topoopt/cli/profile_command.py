"""`topoopt profile`: time a model's operators on this machine."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Annotated

import typer

from codesign_base.counted import counted
from topoopt.base.atomic import write_text_atomically
from topoopt.cli import common

# After which an operator that is being timed is named.
_LONG_SECONDS = 10.0


def profile_command(
    model: common.Model,
    servers: common.Servers,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the profile (JSON).")],
    batch: common.Batch = None,
    device: Annotated[str, typer.Option(help="cpu or cuda: where the operators run.")] = "cpu",
    precision: Annotated[
        str | None,
        typer.Option(help="fp32 or tf32: of products on a GPU; PyTorch's defaults without it."),
    ] = None,
    max_seconds: Annotated[
        float, typer.Option(help="Start no measurement later; every operator gets one.")
    ] = 60.0,
    quiet: common.Quiet = False,
) -> None:
    """Time the operators of a model on this machine, for `topoopt plan --profile`.

    Example: topoopt profile gpt2 --servers 16 --batch-per-gpu 1 -o gpt2-profile.json
    """
    import json

    from parallelism.importers.profiling import profile_operators

    common.check_outputs(output, inputs=[model])
    graph = common.read_model(model)

    def report(done: int, total: int) -> None:
        if not quiet and (done == total or done % max(1, total // 10) == 0):
            print(f"profile: {done} of {total}", file=sys.stderr, flush=True)

    with _slow_ones_named(quiet) as timing:
        measured = profile_operators(
            graph,
            servers,
            batch_per_gpu=batch,
            device=device,
            precision=precision,
            max_seconds=max_seconds,
            progress=report,
            timing=timing,
        )
    write_text_atomically(output, json.dumps(measured.document, indent=1) + "\n")
    print(
        f"{counted(measured.measurements, 'measurement')} of "
        f"{counted(measured.operators, 'operator shape')} on {measured.device}; "
        f"{measured.left_out} left out for time or memory"
    )
    if measured.by_counts:
        print(f"timed by their FLOPs and bytes, or cut: {', '.join(measured.by_counts)}")
    print(f"profile written to {output}")


@contextmanager
def _slow_ones_named(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Say which operator is being timed where that takes long, so that nothing seems to hang."""
    waiting: list[Timer] = []

    def say(name: str) -> None:
        print(
            f"profile: timing {name}, which takes more than {_LONG_SECONDS:g} s",
            file=sys.stderr, flush=True,
        )  # fmt: skip

    def timing(name: str) -> None:
        for each in waiting:
            each.cancel()
        waiting[:] = [] if quiet else [Timer(_LONG_SECONDS, say, [name])]
        for each in waiting:
            each.daemon = True
            each.start()

    try:
        yield timing
    finally:
        for each in waiting:
            each.cancel()
