"""The manifest of a run: what it ran on, with which code and versions."""

import inspect
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from codesign_base.jit import PACKAGES, installation_root, sources_hash
from topoopt.atomic import write_text_atomically
from topoopt.experiment.declaration import Experiment, Row

SCHEMA = "topoopt-experiment-manifest/1"


def topoopt_version() -> str:
    """Return the version of topoopt."""
    import topoopt

    return topoopt.__version__


def code_hash(experiment: Experiment) -> str:
    """Return a hash of the project's Python sources and of the script of the experiment."""
    root = installation_root()
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    script = inspect.getsourcefile(inspect.unwrap(experiment.case))
    if script is not None and Path(script).is_file():
        paths.append(Path(script).resolve())
    return sources_hash(paths, root)


def package_versions() -> dict[str, str]:
    """Return the versions of topoopt and of its installed dependencies, development tools not."""
    from importlib.metadata import PackageNotFoundError, requires, version

    versions = {"topoopt": topoopt_version()}
    try:
        requirements = sorted(requires("topoopt") or ())
    except PackageNotFoundError:  # running from a source tree that was never installed
        return versions
    for requirement in requirements:
        if re.search(r"extra\s*==\s*['\"]dev['\"]", requirement):
            continue
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed took no part
    return versions


def now() -> str:
    """Return the time of day in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_manifest(
    path: Path,
    experiment: Experiment,
    *,
    mode: str,
    cases: Sequence[Row],
    state: str,
    started_at: str,
    code: str,
    jobs: int,
    statuses: Iterable[str] = (),
    case_codes: Iterable[str] = (),
    figures: Sequence[str] = (),
) -> None:
    """Write ``manifest.json``; no host name, user or path enters it.

    Parameters
    ----------
    path : Path
    experiment : Experiment
    mode : str
        ``"quick"`` or ``"full"``.
    cases : sequence of dict
        Inputs of every case.
    state : str
        ``"running"``, ``"interrupted"`` or ``"finished"``.
    started_at : str
        As `now` gave it.
    code : str
        Hash of the source code of this run.
    jobs : int
        Number of worker processes.
    statuses, case_codes : iterable of str
        Status and code hash of every case that is done.
    figures : sequence of str
        Names of the figures drawn.
    """
    import platform

    content = {
        "schema": SCHEMA,
        "experiment": experiment.name,
        "description": experiment.description,
        "source": experiment.source,
        "mode": mode,
        "state": state,
        "columns": list(experiment.columns),
        "figures": list(figures),
        "cases": list(cases),
        "seeds": list(dict.fromkeys(case["seed"] for case in cases if "seed" in case)),
        "case_counts": dict(sorted(Counter(statuses).items())),
        "code": code,
        "code_of_cases": dict(sorted(Counter(case_codes).items())),
        "versions": package_versions(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "jobs": jobs,
        "started_at": started_at,
        "finished_at": now() if state == "finished" else None,
    }
    write_text_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
