"""Traffic files of Clos experiments: one text file a job, one line a flow.

The first line names the columns after a ``#``; times are nanoseconds, sizes bytes. Hosts are
numbered after all ToRs and spines: ``tors + spines + nics_per_tor * tor + k``. Flows of one
``stage_index`` form a ring.
"""

import re
from pathlib import Path

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from codesign_base.paths import is_directory
from parallelism.reading import read_text
from routing.clos.fabric import Clos
from routing.clos.jobs import RingJob

_COLUMNS = (
    "src", "dst", "src_tor", "dst_tor", "start_time", "flow_size", "compute_time", "stage_index",
)  # fmt: skip
_SRC, _DST, _SRC_TOR, _DST_TOR, _START, _SIZE, _COMPUTE, _STAGE = range(8)


def load_traffic_folder(path: str | Path, clos: Clos) -> tuple[RingJob, ...]:
    """Read all job files (``*.txt``) of a folder, ordered by the numbers in their names.

    Parameters
    ----------
    path : str or Path
    clos : Clos
        The fabric that the files were written for: it says what host numbers mean.

    Returns
    -------
    tuple of RingJob
        Named like their files, without the suffix.

    Raises
    ------
    InputError
        If the folder or a file cannot be read, or a file is malformed: it names the line.
    """
    folder = Path(path)
    if not is_directory(folder):
        raise InputError(f"traffic folder {str(path)!r} does not exist; give a folder of job files")
    files = sorted(folder.glob("*.txt"), key=lambda file: _natural(file.name))
    if not files:
        raise InputError(
            f"traffic folder {str(path)!r} holds no job files (*.txt); give their folder"
        )
    jobs = tuple(load_traffic_file(file, clos) for file in files)
    owner: dict[int, str] = {}
    for job in jobs:
        for nic in job.nics.ravel().tolist():
            if nic in owner:
                raise InputError(
                    f"traffic folder {str(path)!r}: jobs {owner[nic]!r} and {job.name!r} both use "
                    f"host {nic + clos.tors + clos.spines}; give each host to one job"
                )
            owner[nic] = job.name
    return jobs


def load_traffic_file(path: str | Path, clos: Clos) -> RingJob:
    """Read one job file.

    Parameters
    ----------
    path : str or Path
    clos : Clos
        As `load_traffic_folder`.

    Returns
    -------
    RingJob

    Raises
    ------
    InputError
        If the file cannot be read or is malformed.
    """
    where = f"traffic file {str(path)!r}"
    lines = read_text(path, "traffic file").splitlines()
    if tuple(lines[0].lstrip("#").split()) != _COLUMNS or not lines[0].startswith("#"):
        raise InputError(f"{where}: the first line must be '#{' '.join(_COLUMNS)}'")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            rows.append((number, _row(line, f"{where}, line {number}", clos)))
    if not rows:
        raise InputError(f"{where} lists no flows; give at least one ring")
    _, first = rows[0]
    for number, row in rows:
        for column in (_START, _SIZE, _COMPUTE):
            if row[column] != first[column]:
                raise InputError(
                    f"{where}, line {number}: {_COLUMNS[column]} is {row[column]}, in the first "
                    f"flow {first[column]}; flows of one job must agree"
                )
    stages: dict[int, list[tuple[int, list[int]]]] = {}
    for number, row in rows:
        stages.setdefault(row[_STAGE], []).append((number, row))
    base = clos.tors + clos.spines
    rings = [_ring(flows, where) - base for flows in stages.values()]
    sizes = {ring.size for ring in rings}
    if len(sizes) > 1:
        raise InputError(f"{where}: rings have {sorted(sizes)} flows; all must have as many")
    try:
        return RingJob(
            Path(path).stem,
            np.stack(rings),
            float(first[_SIZE]),
            first[_COMPUTE] * 1e-9,
            first[_START] * 1e-9,
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _row(line: str, where: str, clos: Clos) -> list[int]:
    words = line.split()
    if len(words) != len(_COLUMNS):
        raise InputError(f"{where}: {counted(len(words), 'column')}; give {len(_COLUMNS)}")
    row = []
    for word, column in zip(words, _COLUMNS, strict=True):
        if re.fullmatch(r"[0-9]{1,18}", word) is None:
            raise InputError(f"{where}: {column} is {word!r}; give a whole number, zero or more")
        row.append(int(word))
    base, room = clos.tors + clos.spines, clos.tors * clos.nics_per_tor
    for end, tor in ((_SRC, _SRC_TOR), (_DST, _DST_TOR)):
        if not base <= row[end] < base + room:
            raise InputError(
                f"{where}: {_COLUMNS[end]} is {row[end]}; hosts of {counted(clos.tors, 'ToR')} and "
                f"{counted(clos.spines, 'spine')} are {base}..{base + room - 1}: check --tors and "
                "--spines"
            )
        expected = (row[end] - base) // clos.nics_per_tor
        if row[tor] != expected:
            raise InputError(
                f"{where}: {_COLUMNS[tor]} is {row[tor]}, but host {row[end]} is at ToR {expected}"
                "; correct one, or check --tors and --spines"
            )
    return row


def _ring(flows: list[tuple[int, list[int]]], where: str) -> Ints:
    """Return the hosts of a ring in its order; its flows may be in any."""
    after: dict[int, int] = {}
    for number, row in flows:
        if row[_SRC] in after:
            raise InputError(
                f"{where}, line {number}: host {row[_SRC]} sends twice in stage {row[_STAGE]}; "
                "a ring passes each host once"
            )
        after[row[_SRC]] = row[_DST]
    start = flows[0][1][_SRC]
    order = [start]
    while after.get(order[-1], start) != start and len(order) <= len(after):
        order.append(after[order[-1]])
    if len(order) != len(after) or len(order) < 2 or after.get(order[-1]) != start:
        raise InputError(
            f"{where}, line {flows[0][0]}: the flows of stage {flows[0][1][_STAGE]} are not one "
            "closed ring; each host must send to the next and the last to the first"
        )
    return np.array(order, dtype=np.int64)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts job_2 before job_10."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
    ]
