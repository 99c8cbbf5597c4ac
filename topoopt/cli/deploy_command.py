"""`topoopt deploy`: everything that builds and runs a plan, and checks of it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codesign_base import InputError
from codesign_base.counted import counted
from topoopt.cli import common

if TYPE_CHECKING:
    from topoopt.deploy.deployment import Deployment


_TOLD = 5
"""Changed files that are named; `--json` lists all."""


def deploy_command(
    plan: Annotated[Path, typer.Argument(help="A plan file, of operators or layouts.")],
    hosts: Annotated[
        Path | None,
        typer.Option(
            help="Site file: hosts, ports, panels and address ranges (docs/deploy.md).",
            show_default="that of --files, or made-up names",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Directory to write; an older deployment is replaced."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Follow every pair's packets through the files, and try them in network "
            "namespaces of this machine (needs root and ip).",
        ),
    ] = False,
    files: Annotated[
        Path | None,
        typer.Option(help="Check the files in this directory rather than new ones."),
    ] = None,
    verify_cabling: Annotated[
        Path | None,
        typer.Option(
            help="Compare what is cabled with the plan: neighbours as CSV, or JSON of lldpcli."
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Label of a cable that is dead or was pulled: routes go around it, addresses "
            "stay; may be repeated."
        ),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Write cables, addresses, routes and launch files of a plan, or check them.

    Example: topoopt deploy plan.json --hosts hosts.yaml -o deploy --check
    """
    if output is None and not check and verify_cabling is None:
        raise InputError("nothing to do; give -o, --check or --verify-cabling")
    if files is not None and (not check or output is not None):
        raise InputError("--files goes with --check, and without -o; leave it out")
    from topoopt.deploy.deployment import deployment
    from topoopt.deploy.files import check_target, deploy_files, read_files, site_of, write_files
    from topoopt.deploy.site import load_site
    from topoopt.plan.verify import load_sound_plan

    if output is not None:
        common.refuse_dash(output, "folder")
        check_target(output)
    written = None if files is None else read_files(files)
    recorded = None if written is None else site_of(written)
    site = recorded if hosts is None else load_site(hosts)
    with common.first_run_notice() as started:
        made = deployment(load_sound_plan(plan), site)
        if without:
            from topoopt.deploy.pulled import cable_named, without_cables

            # Each once: a label given twice is one cable.
            cables = {cable_named(made, name): None for name in without}
            made = without_cables(made, list(cables))
        started()
    report: dict[str, object] = {}
    faults: list[str] = []
    lines: list[str] = []
    if verify_cabling is not None:
        faults += _verify(made, verify_cabling, report, lines)
    if written is None and (check or output is not None):
        written = deploy_files(made)
    if written is not None and output is not None:
        write_files(written, output)
        notes = written["NOTES.txt"].splitlines()
        report |= {"output": str(output), "notes": notes}
        lines.append(f"deployment of {counted(len(made.servers), 'host')} written to {output}")
        lines += [f"note: {note}" for note in notes]
    if written is not None and check:
        kept = "" if output is None else f"{output} is written, but not checked"
        with common.kept_if_interrupted(kept):
            if files is not None:
                faults += _check_job(made, written, files, report, lines)
            faults += _check(made, written, report, lines)
    if as_json:
        common.print_json(report)
    else:
        for line in lines:
            print(line)
    if faults:
        raise InputError("; ".join(faults))


def _verify(
    made: "Deployment", path: Path, report: dict[str, object], lines: list[str]
) -> list[str]:
    from topoopt.deploy.verify_cabling import read_neighbours, verify_cabling

    verdict = verify_cabling(made, *read_neighbours(path, made))
    report["cabling"] = asdict(verdict)
    if not verdict.wrong:
        heard = counted(verdict.checked, "port hears whom it", "ports hear whom they")
        lines.append(f"cabling: ok ({heard} should)")
        return []
    lines += [
        f"silent: no port of {host} hears anybody; if it was not asked, add what it hears before "
        "you touch cables"
        for host in verdict.silent
    ]
    lines += [f"wrong: {each}" for each in verdict.wrong]
    lines += [f"repair {number}: {each}" for number, each in enumerate(verdict.repairs, start=1)]
    wrong = counted(len(verdict.wrong), "port does not hear whom it", "ports do not hear whom they")
    if not verdict.repairs:
        return [f"{wrong} should; no exchange of plugs repairs that: see whether they hear anybody"]
    return [f"{wrong} should; see the {counted(len(verdict.repairs), 'repair')}"]


def _check_job(
    made: "Deployment", written: dict[str, str], directory: Path, report: dict[str, object],
    lines: list[str],
) -> list[str]:  # fmt: skip
    from topoopt.deploy.files import changed_job_files

    changed = changed_job_files(made, written)
    report["job"] = {"changed": changed}
    if not changed:
        lines.append("job: ok (its files are those of the plan)")
        return []
    told = changed if len(changed) <= _TOLD else changed[: _TOLD - 1]
    named = ", ".join(told) + (f" and {len(changed) - len(told)} more" if changed != told else "")
    return [
        f"{directory}/job: {named} {'is' if len(changed) == 1 else 'are'} not what "
        "the plan gives; deploy again, and keep settings of your own in other files"
    ]


def _check(
    made: "Deployment", files: dict[str, str], report: dict[str, object], lines: list[str]
) -> list[str]:
    from topoopt.deploy.check import check_files
    from topoopt.deploy.namespaces import why_not
    from topoopt.deploy.pulled_check import check_repair, repair_of
    from topoopt.deploy.trial import try_files

    checked = check_files(made, files)
    report["files"] = asdict(checked)
    if checked.faults:
        return list(checked.faults)
    lines.append(
        f"files: ok ({counted(checked.pairs, 'pair')} of servers and "
        f"{counted(checked.channels, 'RDMA channel')} go over the plan's cables)"
    )
    repair = repair_of(made)
    report["repair"] = None
    if repair is None:
        lines.append("note: no cable can be spared, so that none was pulled")
    else:
        followed = check_repair(made, repair)
        report["repair"] = asdict(followed)
        if followed.faults:
            return [f"without cable {repair.label}: {fault}" for fault in followed.faults]
        lines.append(
            f"files without cable {repair.label}: ok ("
            f"{counted(followed.pairs, 'pair goes', 'pairs go')} around it, and addresses stay)"
        )
    reason = why_not()
    if reason is not None:
        report["namespaces"] = {"skipped": reason}
        lines.append(f"namespaces: not tried, since {reason}")
        return []
    tried = try_files(made, files, repair)
    report["namespaces"] = asdict(tried)
    if tried.faults:
        return list(tried.faults)
    lines.append(
        f"namespaces: ok ({counted(tried.pairs, 'pair')} reached with "
        f"{counted(tried.probes, 'packet')}, {counted(tried.cables, 'way')} from port to port)"
    )
    if tried.pulled is not None:
        lines.append(f"namespaces without cable {tried.pulled}: ok (pulled, and routes made anew)")
    if not tried.seeded:
        lines.append(
            "note: this kernel is older than Linux 6.11 and divides alike in all namespaces: "
            "shares beyond a first division were followed in the files only"
        )
    if not tried.rdma:
        lines.append(
            "note: this kernel lacks tc flower or pedit: RDMA forwarding was followed in the "
            "files only"
        )
    return []
