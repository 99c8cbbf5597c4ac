"""An operator strategy in words."""

import re
from itertools import pairwise

from codesign_base.counted import counted
from parallelism.operator_records import OperatorPlan


def strategy_lines(strategy: list[OperatorPlan], servers: int) -> list[str]:
    """Describe a strategy, operators of the same kind of split together.

    Parameters
    ----------
    strategy : list of OperatorPlan
    servers : int

    Returns
    -------
    list of str
    """
    if servers == 1:
        return [f"strategy: all {counted(len(strategy), 'operator')} on the one server"]
    data: list[str] = []
    whole: list[OperatorPlan] = []
    rest: dict[tuple[int, int, str], list[OperatorPlan]] = {}
    for op in strategy:
        if op.parameter == 1 and op.sample == servers:
            data.append(op.operator)
        elif op.sample == op.parameter == 1:
            whole.append(op)
        else:
            rest.setdefault((op.sample, op.parameter, op.mode), []).append(op)
    lines = ["strategy:"]
    if data:
        lines.append(f"  data-parallel on all servers ({len(data)}): {operator_names(data)}")
    if whole:
        lines.append(f"  each whole on one server ({len(whole)}): {_placements(whole)}")
    for (sample, parameter, mode), ops in sorted(rest.items()):
        splits = [f"{sample} sample shards"] if sample > 1 else []
        if parameter > 1:
            splits.append(f"{parameter} {mode} shards")
        places = {tuple(op.servers) for op in ops}
        one = server_names(next(iter(places)))
        where = one if len(places) == 1 else f"{len(places)} placements"
        names = operator_names([op.operator for op in ops])
        lines.append(f"  {' x '.join(splits)} on {where} ({len(ops)}): {names}")
    return lines


def server_names(servers: tuple[int, ...]) -> str:
    """Return servers in few words: ``"servers 0..15"``, ``"servers 0..14 by 2"``."""
    ordered = sorted(servers)
    if len(ordered) == 1:
        return f"server {ordered[0]}"
    steps = {b - a for a, b in pairwise(ordered)}
    if len(steps) == 1:
        step = steps.pop()
        every = "" if step == 1 else f" by {step}"
        return f"servers {ordered[0]}..{ordered[-1]}{every}"
    return f"servers {_shortened([str(server) for server in ordered])}"


def _placements(ops: list[OperatorPlan]) -> str:
    """Write where single operators run; layers of one name on evenly spaced servers in one."""
    shown = []
    for run in _runs([op.operator for op in ops]):
        places = [ops[at].servers[0] for at in run]
        steps = {b - a for a, b in pairwise(places)}
        if len(run) > 2 and len(steps) == 1:
            name = _name_run([ops[at].operator for at in run])
            step = steps.pop()
            if step == 0:
                shown.append(f"{name}@{places[0]}")
            else:
                by = "" if step == 1 else f" by {step}"
                shown.append(f"{name}@{places[0]}..{places[-1]}{by}")
        else:
            shown += [f"{ops[at].operator}@{ops[at].servers[0]}" for at in run]
    return _shortened(shown)


# Names of a list that are shown; of longer ones the last, too.
_SHOWN = 8
_NUMBERED = re.compile(r"(|.*[^0-9])([0-9]{1,18})")


def _runs(names: list[str]) -> list[list[int]]:
    """Divide names into runs that differ in a last number which counts up by one."""
    runs: list[list[int]] = []
    before: tuple[str, int] | None = None
    for at, name in enumerate(names):
        match = _NUMBERED.fullmatch(name)
        key = (match[1], int(match[2])) if match else None
        if key is not None and before is not None and key == (before[0], before[1] + 1):
            runs[-1].append(at)
        else:
            runs.append([at])
        before = key
    return runs


def _name_run(names: list[str]) -> str:
    match = _NUMBERED.fullmatch(names[-1])
    return names[0] if len(names) == 1 or not match else f"{names[0]}..{match[2]}"


def operator_names(names: list[str]) -> str:
    """Return names in few words, those that count up as one: ``"top_0..15"``."""
    shown = []
    for run in _runs(names):
        if len(run) > 2:
            shown.append(_name_run([names[at] for at in run]))
        else:
            shown += [names[at] for at in run]
    return _shortened(shown)


def _shortened(names: list[str]) -> str:
    if len(names) <= _SHOWN:
        return ", ".join(names)
    return ", ".join(names[: _SHOWN - 1]) + f", ... {names[-1]}"
