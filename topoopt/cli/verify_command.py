"""`topoopt verify`: recompute what a plan file, or a schedule of a collective, claims."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from codesign_base import InfeasibleError, InputError
from topoopt.cli import common


def verify_command(
    plan: Annotated[Path, typer.Argument(help="A plan file, or the schedule of a collective.")],
    as_json: common.AsJson = False,
    quiet: common.Quiet = False,
) -> None:
    """Recompute every invariant of a plan file and simulate it again.

    Of a schedule that `topoopt collective` wrote, do the collective on numbers and work out its
    time and bound again.
    """
    from topoopt.formats.collective_check import CHECKS, check_schedule, schedule_document
    from topoopt.plan.verify import verify_plan

    schedule = schedule_document(plan)
    if schedule is not None:
        try:
            check_schedule(schedule)
        except (InputError, InfeasibleError) as error:
            raise InputError(f"schedule file {plan} is wrong: {error}") from None
        if as_json:
            common.print_json({"ok": True, "checks": list(CHECKS), "failures": [], "skipped": []})
        else:
            print(f"{plan}: ok ({', '.join(CHECKS)})")
        return
    with common.shown_steps("checking", quiet) as progress:
        result = verify_plan(plan, progress=progress)
    if as_json:
        common.print_json(asdict(result))
    elif result.ok:
        print(f"{plan}: ok ({', '.join(result.checks)})")
    if not result.ok:
        raise InputError(f"plan file {plan} is wrong: {'; '.join(result.failures)}")
