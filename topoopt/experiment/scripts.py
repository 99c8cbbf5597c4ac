"""Experiment scripts: found in a directory, loaded, and asked for what they declare."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codesign_base import InputError
from codesign_base.paths import is_directory
from topoopt.experiment.cases import ScriptCase, script_experiment
from topoopt.experiment.declaration import Experiment

DIRECTORY = "experiments"


@dataclass(frozen=True)
class Script:
    """An experiment script.

    Parameters
    ----------
    path : Path
    case : ScriptCase
        Computes cases in any process.
    experiment : Experiment
    """

    path: Path
    case: ScriptCase
    experiment: Experiment


def load_script(path: Path) -> Script:
    """Load one script.

    Raises
    ------
    InputError
        If it cannot be read or run, or declares no experiment; that is seen before it is run.
    """
    try:
        case = ScriptCase(path.name, path.read_text(encoding="utf-8"))
        experiment = script_experiment(case.file, case.text)
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"script {path} cannot be loaded ({reason}); correct it") from None
    return Script(path, case, experiment)


def script_of(experiment: Experiment) -> ScriptCase | None:
    """Return the case of the script that is being run as the program, if it declares this one."""
    if getattr(experiment.case, "__module__", None) != "__main__":
        return None
    file = inspect.getsourcefile(inspect.unwrap(experiment.case))
    if file is None or not Path(file).is_file():
        return None
    return ScriptCase(Path(file).name, Path(file).read_text(encoding="utf-8"))


def find_scripts(directory: Path | None = None) -> Mapping[str, Script]:
    """Return the scripts of a directory by the names of their experiments.

    Parameters
    ----------
    directory : Path, optional
        By default ``experiments`` in the current directory.

    Returns
    -------
    mapping of str to Script
        In the order of their file names.

    Raises
    ------
    InputError
        If there is no such directory or no script in it, or two share a name.
    """
    place = Path(DIRECTORY) if directory is None else directory
    paths = sorted(place.glob("*.py")) if is_directory(place) else []
    if not paths:
        what = "no experiment scripts" if is_directory(place) else "no directory"
        raise InputError(
            f"{place}: {what}; run this in a checkout of the project, or name the directory of "
            "the scripts with --from"
        )
    scripts: dict[str, Script] = {}
    for path in paths:
        script = load_script(path)
        name = script.experiment.name
        if name in scripts:
            raise InputError(
                f"{path} and {scripts[name].path} both declare the experiment {name!r}; rename one"
            )
        scripts[name] = script
    return scripts
