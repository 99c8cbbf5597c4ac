"""The manifest of a run: what it ran on, with which code and versions."""

import hashlib
import inspect
import json
import os
import platform
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from topoopt.base.atomic import write_text_atomically
from topoopt.base.version import installed_version, package_hash
from topoopt.experiment.cases import Outcome, ScriptCase
from topoopt.experiment.declaration import Experiment
from topoopt.experiment.rows import Row
from topoopt.plan.document import MANIFEST

SCHEMA = f"{MANIFEST}2"


def software_hash(experiment: Experiment, script: ScriptCase | None) -> str:
    """Return a hash of everything that could change a result besides its inputs.

    Parameters
    ----------
    experiment : Experiment
    script : ScriptCase or None
        Without one, the file that defines ``case`` counts, if there is one.

    Returns
    -------
    str
        Of the Python sources of the project's packages, the script, the version of topoopt and
        the versions of the libraries that it needs.
    """
    if script is None:
        file = inspect.getsourcefile(inspect.unwrap(experiment.case))
        text = Path(file).read_text(encoding="utf-8") if file and Path(file).is_file() else ""
    else:
        text = script.text
    parts = [package_hash(), text, json.dumps(package_versions(extras=False))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def package_versions(*, extras: bool = True) -> dict[str, str]:
    """Return the versions of topoopt and of what it needs, and of installed extras if asked."""
    from importlib.metadata import PackageNotFoundError, requires, version

    versions = {"topoopt": installed_version()}
    try:
        requirements = sorted(requires("topoopt") or ())
    except PackageNotFoundError:  # running from a source tree that was never installed
        return versions
    for requirement in requirements:
        extra = re.search(r"extra\s*==\s*['\"](\w+)['\"]", requirement)
        if extra is not None and (not extras or extra[1] == "dev"):
            continue  # development tools take no part
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed took no part
    return versions


def now() -> str:
    """Return the time of day in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine() -> dict[str, str | int | None]:
    """Return what computed a run; no host name enters it."""
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": names[0] if names else processor,
        "processors": os.cpu_count(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


@dataclass(frozen=True)
class RunUnderWay:
    """A run of an experiment: what is asked, and what is done so far.

    Parameters
    ----------
    experiment : Experiment
    output : Path
        Directory of its results.
    mode : str
        ``"quick"`` or ``"full"``.
    inputs : sequence of dict
        Of every case.
    code : str
        `software_hash` of this run.
    workers : int
        Cases at a time.
    engine : str
    started_at : str
        As `now` gave it.
    done : dict of int to Outcome
        Of the cases that are done, by their place.
    """

    experiment: Experiment
    output: Path
    mode: str
    inputs: Sequence[Row]
    code: str
    workers: int
    engine: str
    started_at: str
    done: dict[int, Outcome]

    def write_manifest(self, state: str, figures: Sequence[str] = ()) -> None:
        """Write ``manifest.json``; no host name, user or path enters it.

        Parameters
        ----------
        state : str
            ``"running"``, ``"interrupted"`` or ``"finished"``.
        figures : sequence of str
            Names of the figures drawn.
        """
        experiment, done = self.experiment, self.done.values()
        content = {
            "schema": SCHEMA,
            "experiment": experiment.name,
            "description": experiment.description,
            "source": experiment.source,
            "mode": self.mode,
            "state": state,
            "columns": list(experiment.columns),
            "figures": list(figures),
            "cases": list(self.inputs),
            "seeds": list(dict.fromkeys(case["seed"] for case in self.inputs if "seed" in case)),
            "case_counts": dict(sorted(Counter(outcome.status for outcome in done).items())),
            "code": self.code,
            "code_of_cases": dict(sorted(Counter(outcome.code for outcome in done).items())),
            "versions": package_versions(),
            "machine": machine(),
            "workers": self.workers,
            "engine": self.engine if self.engine in ("local", "ray") else "ray://",
            "started_at": self.started_at,
            "finished_at": now() if state == "finished" else None,
        }
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        write_text_atomically(self.output / "manifest.json", text)
