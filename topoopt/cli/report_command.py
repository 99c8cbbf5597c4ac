"""`topoopt report`: one HTML page of a plan, a comparison or an experiment."""

from pathlib import Path
from typing import Annotated

import typer

from topoopt.cli import common


def report_command(
    subject: Annotated[
        Path,
        typer.Argument(
            help="A plan file, the JSON of topoopt compare --json, an experiment's results folder, "
            "or a folder of plans."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The page to write (HTML), or the wiring as a picture (SVG)."
        ),
    ],
) -> None:
    """Write a page with the answer, charts, topology, traffic, timeline and strategy.

    The page is one file and opens offline.

    A name that ends in .svg gets the plan's wiring and nothing else.

    Example: topoopt report plan.json -o plan.html
    """
    from topoopt.report import write_report

    common.check_outputs(output, inputs=[subject])
    with common.first_run_notice() as started:
        write_report(subject, output)
        started()
    print(f"report written to {output}")
