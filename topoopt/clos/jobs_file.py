"""Jobs files (YAML or JSON): which jobs train on a Clos fabric, and where.

See ``docs/clos.md`` for every field::

    jobs:
      - {model: bloom, replicas: 4}                     # a preset on random ToRs
      - name: mine
        parameters: 13_000_000_000
        tensor: 4
        pipeline: 2
        replicas: 2
        compute_time: 400ms
        placement: [["0:0-7"], ["1:0-7"]]               # one list a replica, tor:first-last
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codesign_base import InputError
from codesign_base.arrays import Ints
from codesign_base.counted import counted
from parallelism.reading import parse_json, parse_yaml, read_text, shown, wrong_value
from routing.clos.fabric import Clos
from routing.clos.jobs import RingJob, place_rings, ring_flow_bytes
from topoopt.clos.presets import ELEMENT_BYTES, get_clos_model
from topoopt.problem.units import parse_time

if TYPE_CHECKING:
    from topoopt.clos.jobs_schema import JobSpec

_RANGE = re.compile(r"\s*([0-9]{1,18})\s*:\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?")


def load_jobs(path: str | Path, clos: Clos, seed: int = 0) -> tuple[RingJob, ...]:
    """Read a jobs file and place its jobs.

    Parameters
    ----------
    path : str or Path
        JSON if it ends in ``.json``, else YAML.
    clos : Clos
        Where to place them. Jobs whose place is given come first, the others in the order of
        the file.
    seed : int
        Of random placement.

    Returns
    -------
    tuple of RingJob
        In the order of the file.

    Raises
    ------
    InputError
        If the file cannot be read, has an unknown or missing field, or a value out of range.
    InfeasibleError
        If the jobs do not fit on the fabric.
    """
    where = f"jobs file {str(path)!r}"
    text = read_text(path, "jobs file")
    data = parse_json(text, where) if Path(path).suffix == ".json" else parse_yaml(text, where)
    try:
        return _jobs(_checked(data), clos, np.random.default_rng(seed))
    except InputError as error:
        raise type(error)(f"{where}: {error}") from None


def _checked(data: Any) -> "list[JobSpec]":
    from pydantic import ValidationError

    from topoopt.clos.jobs_schema import JobsFile, JobSpec

    if not isinstance(data, dict):
        raise InputError("expected the field jobs at the top, a list of jobs")
    try:
        return JobsFile.model_validate(data).jobs
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        steps = [str(step) for step in first["loc"]]
        at = ""
        if steps[:1] == ["jobs"] and len(steps) > 1:
            at, steps = f"job {int(steps[1]) + 1}: ", steps[2:]
        field = steps[0] if steps else "jobs"
        if first["type"] == "extra_forbidden":
            known = ", ".join(JobSpec.model_fields if at else JobsFile.model_fields)
            raise InputError(f"{at}unknown field {field!r}; choose one of {known}") from None
        if first["type"] == "missing":
            raise InputError(f"{at}field {field!r} is missing; add it") from None
        if field == "placement":
            raise InputError(
                f'{at}placement is not packed, random, or one list of "tor:first-last" a replica'
            ) from None
        if first["type"] == "value_error":
            raise InputError(
                f"{at}field {field!r} is {shown(first['input'])}; {first['ctx']['error']}"
            ) from None
        raise InputError(f"{at}field {field!r} {wrong_value(first)}") from None


def _jobs(specs: "Sequence[JobSpec]", clos: Clos, rng: np.random.Generator) -> tuple[RingJob, ...]:
    wanted: list[tuple[int, JobSpec, str]] = []
    for number, spec in enumerate(specs, start=1):
        base = spec.name or spec.model or f"job {number}"
        for copy in range(spec.count):
            name = base if spec.count == 1 else f"{base}-{copy + 1}"
            wanted.append((number, spec, name))
    placed: dict[int, RingJob] = {}
    # Given places first: the rest takes what is free.
    order = sorted(range(len(wanted)), key=lambda i: isinstance(wanted[i][1].placement, str))
    for index in order:
        number, spec, name = wanted[index]
        try:
            placed[index] = _job(spec, name, clos, list(placed.values()), rng)
        except InputError as error:
            raise type(error)(f"job {number}: {error}") from None
    return tuple(placed[index] for index in range(len(wanted)))


def _job(
    spec: "JobSpec", name: str, clos: Clos, taken: Sequence[RingJob], rng: np.random.Generator
) -> RingJob:
    parameters, tensor, pipeline = spec.parameters, spec.tensor, spec.pipeline
    element, compute = spec.element_bytes, spec.compute_time
    compute_time = None if compute is None else parse_time(compute, "compute_time", allow_zero=True)
    start_time = parse_time(spec.start_time, "start_time", allow_zero=True)
    if spec.model is not None:
        preset = get_clos_model(spec.model)
        parameters = preset.parameters if parameters is None else parameters
        tensor = preset.tensor if tensor is None else tensor
        pipeline = preset.pipeline if pipeline is None else pipeline
        compute_time = preset.compute_time if compute_time is None else compute_time
    for field, value in (("parameters", parameters), ("compute_time", compute_time)):
        if value is None:
            raise InputError(f"field {field!r} is missing; add it, or name a preset as model")
    assert parameters is not None and compute_time is not None
    group = (tensor or 1) * (pipeline or 1)
    copy_bytes = parameters * (ELEMENT_BYTES if element is None else element)
    if isinstance(spec.placement, str):
        nics = place_rings(clos, group, spec.replicas, spec.placement, taken, rng)
    else:
        if spec.count > 1:
            raise InputError(
                f"count is {spec.count}, but the NICs of its placement are for one job; list each "
                "job with its own, or choose placement packed or random"
            )
        nics = _given(spec.placement, clos, group, spec.replicas)
        used = np.concatenate([np.zeros(0, dtype=np.int64), *(job.nics.ravel() for job in taken)])
        twice = np.intersect1d(nics, used)
        if twice.size:
            tor, place = divmod(int(twice[0]), clos.nics_per_tor)
            raise InputError(f"NIC {tor}:{place} belongs to another job; choose a free one")
    return RingJob(
        name,
        nics,
        ring_flow_bytes(copy_bytes, group, spec.replicas),
        compute_time,
        start_time,
    )


def _given(places: list[list[str]], clos: Clos, group: int, replicas: int) -> Ints:
    """Return rings from one list of NIC ranges a replica."""
    if len(places) != replicas:
        raise InputError(
            f"placement lists {counted(len(places), 'replica')} of {replicas}; list each"
        )
    rows = []
    for number, ranges in enumerate(places, start=1):
        nics: list[int] = []
        for text in ranges:
            match = _RANGE.fullmatch(text)
            if match is None:
                raise InputError(f'placement {text!r} is not "tor:nic" or "tor:first-last"')
            tor, first = int(match[1]), int(match[2])
            last = first if match[3] is None else int(match[3])
            if last < first:
                raise InputError(
                    f"placement {text!r} ends before it begins; give tor:first-last with first "
                    f"at most last, such as {f'{tor}:{last}-{first}'!r}"
                )
            if tor >= clos.tors or last >= clos.nics_per_tor:
                raise InputError(
                    f"placement {text!r} lies outside the fabric; it has ToRs 0..{clos.tors - 1} "
                    f"with NICs 0..{clos.nics_per_tor - 1}"
                )
            nics += range(tor * clos.nics_per_tor + first, tor * clos.nics_per_tor + last + 1)
        if len(nics) != group:
            raise InputError(
                f"placement gives replica {number} {counted(len(nics), 'NIC')}; a copy needs "
                f"{group} (tensor x pipeline)"
            )
        rows.append(nics)
    return np.array(rows, dtype=np.int64).T.copy()
