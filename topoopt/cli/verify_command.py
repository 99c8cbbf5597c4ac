"""`topoopt verify`: recompute a plan file's invariants and simulate it again."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from codesign_base import InputError
from topoopt.cli import common


def verify_command(
    plan: Annotated[Path, typer.Argument(help="A plan file.")],
    as_json: common.AsJson = False,
) -> None:
    """Recompute every invariant of a plan file and simulate it again."""
    from topoopt.plan.verify import verify_plan

    result = verify_plan(plan)
    if as_json:
        common.print_json(asdict(result))
    elif result.ok:
        print(f"{plan}: ok ({', '.join(result.checks)})")
    if not result.ok:
        raise InputError(f"plan file {plan} is wrong: {'; '.join(result.failures)}")
