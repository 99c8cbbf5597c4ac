"""One case: where its function comes from, how it is computed, what came of it."""

import ast
import math
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from codesign_base import InfeasibleError, InputError
from topoopt.experiment.declaration import Experiment
from topoopt.experiment.rows import Row, Value


@dataclass(frozen=True)
class Outcome:
    """What came of one case.

    Parameters
    ----------
    status : str
        ``"ok"``, ``"infeasible"`` or ``"failed"``.
    rows : tuple of dict
        Result rows; empty unless ok.
    message : str
        Why it is infeasible or failed.
    code : str
        Hash of the software that computed it.
    seconds : float
        Wall-clock time that it took.
    detail : str
        Traceback of a failure; not kept.
    """

    status: str
    rows: tuple[Row, ...] = ()
    message: str = ""
    code: str = ""
    seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True)
class ScriptCase:
    """The ``case`` of the experiment that a script declares, wherever it is called.

    It carries the script's text: worker processes need not find the script, and a machine of a
    cluster need not have it.

    Parameters
    ----------
    file : str
        Name of the script, for tracebacks.
    text : str
    """

    file: str
    text: str

    def __call__(self, **inputs: Value) -> Any:
        """Compute one case."""
        return script_experiment(self.file, self.text).case(**inputs)


@cache
def script_experiment(file: str, text: str) -> Experiment:
    """Execute a script as a module and return the experiment that it declares.

    Raises
    ------
    InputError
        If it declares none; without being run, if it assigns nothing to EXPERIMENT, or would run
        its experiment as it is loaded.
    """
    none = InputError(
        f"script {file} declares no experiment; assign an Experiment to EXPERIMENT in it"
    )
    tree = ast.parse(text)
    if not _assigned("EXPERIMENT", tree):
        raise none
    if any(_calls("run_from_command_line", statement) for statement in tree.body):
        raise InputError(
            f"script {file} runs its experiment as it is loaded; call run_from_command_line under "
            'if __name__ == "__main__":'
        )
    name = f"experiment_script_{Path(file).stem}"
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # dataclasses look their module up
    exec(compile(text, file, "exec"), module.__dict__)
    found = getattr(module, "EXPERIMENT", None)
    if not isinstance(found, Experiment):
        raise none
    return found


def _calls(name: str, statement: ast.stmt) -> bool:
    """Whether a statement is a call of a function by this name."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == name


def _assigned(name: str, tree: ast.Module) -> bool:
    """Whether a program assigns anything to a name, or imports something by it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name) == name:
            return True
    return False


def compute_case(
    case: Callable[..., Any], columns: tuple[str, ...], inputs: Row, code: str
) -> Outcome:
    """Compute one case and say what came of it; never raises an ordinary exception.

    Top level and with plain arguments, so that worker processes can be sent it.
    """
    start = time.perf_counter()
    try:
        found = Outcome("ok", _checked_rows(case(**inputs), columns), code=code)
    except InfeasibleError as error:
        found = Outcome("infeasible", message=_one_line(str(error)), code=code)
    except Exception as error:
        message = _one_line(f"{type(error).__name__}: {error}")
        found = Outcome("failed", message=message, code=code, detail=traceback.format_exc())
    return replace(found, seconds=time.perf_counter() - start)


def _checked_rows(result: object, columns: tuple[str, ...]) -> tuple[Row, ...]:
    if isinstance(result, Mapping):
        result = [result]
    if not isinstance(result, Sequence) or isinstance(result, str) or not result:
        raise TypeError(f"case() returned {result!r}; return a mapping or a list of mappings")
    rows = []
    for row in result:
        if not isinstance(row, Mapping) or set(row) != set(columns):
            names = sorted(map(str, row)) if isinstance(row, Mapping) else row
            raise TypeError(f"case() returned {names}; return exactly the columns {list(columns)}")
        rows.append({column: _plain(row[column], column) for column in columns})
    return tuple(rows)


def _plain(value: Any, column: str) -> Value:
    """Return a value as JSON keeps it; numpy scalars become Python's."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"column {column!r} is {value}; return None for an empty cell")
    if value is None or isinstance(value, bool):
        return value
    # Subclasses (enumerations, numpy's float64) would not come back from JSON as they went.
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"column {column!r} is {value!r}; return text, a number, a boolean or None")


def _one_line(text: str) -> str:
    return " ".join(text.split())
