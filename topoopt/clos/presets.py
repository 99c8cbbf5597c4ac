"""Jobs of the paper's experiments: models, how one copy is split, how long they compute."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codesign_base import InfeasibleError, InputError
from codesign_base.counted import counted
from routing.clos.fabric import Clos
from routing.clos.jobs import RingJob, place_rings, ring_flow_bytes


@dataclass(frozen=True)
class ClosModel:
    """A model as a load on the fabric.

    Parameters
    ----------
    name : str
    parameters : float
        Trainable parameters.
    tensor, pipeline : int
        Ways in which one copy is split.
    compute_time : float
        Seconds between two AllReduces.
    source : str
        Where the numbers are.
    """

    name: str
    parameters: float
    tensor: int
    pipeline: int
    compute_time: float
    source: str

    @property
    def group(self) -> int:
        """Accelerators of one copy."""
        return self.tensor * self.pipeline


ELEMENT_BYTES = 4.0
"""Of a gradient, unless a job file says otherwise."""

START_SPREAD = 10.0
"""Seconds within which drawn jobs start."""

_TIMES = "compute time: traffic files of the public simulator of arXiv 2503.05324's experiments"

CLOS_MODELS = {
    model.name: model
    for model in (
        ClosModel(
            "gpt-3", 175e9, 8, 8, 1.009615385,
            "Brown et al., arXiv 2005.14165 (size); Narayanan et al., arXiv 2104.04473 (8 x 8); "
            + _TIMES,
        ),
        ClosModel(
            "bloom", 176e9, 4, 12, 1.238769231,
            "BigScience, arXiv 2211.05100, section 3.2 (176 B, tensor 4, pipeline 12); " + _TIMES,
        ),
        ClosModel(
            "llama2-70b", 70e9, 8, 16, 2.692307693,
            "Touvron et al., arXiv 2307.09288 (size); Cohen et al., arXiv 2503.05324 (8 x 16); "
            + _TIMES,
        ),
    )
}  # fmt: skip


def get_clos_model(name: str) -> ClosModel:
    """Return a preset.

    Parameters
    ----------
    name : str
        A key of `CLOS_MODELS`.

    Returns
    -------
    ClosModel

    Raises
    ------
    InputError
        If there is no preset of this name.
    """
    if name not in CLOS_MODELS:
        raise InputError(f"model {name!r} is unknown; choose one of {', '.join(CLOS_MODELS)}")
    return CLOS_MODELS[name]


def draw_jobs(
    clos: Clos,
    count: int,
    replicas: int,
    seed: int,
    models: Sequence[ClosModel] = tuple(CLOS_MODELS.values()),
) -> tuple[RingJob, ...]:
    """Draw jobs, place them on random ToRs and start them at random times, as the paper does.

    Models are drawn uniformly among the sets that fit on the fabric.

    Parameters
    ----------
    clos : Clos
    count : int
        Number of jobs, at least 1.
    replicas : int
        Ring size of every job.
    seed : int
    models : sequence of ClosModel, optional
        The presets by default.

    Returns
    -------
    tuple of RingJob

    Raises
    ------
    InfeasibleError
        If no set fits.
    """
    if count < 1:
        raise InputError(f"{count} random jobs are to be drawn; give at least 1")
    if not models:
        raise InputError("random jobs are to be drawn of no models; give at least one")
    if replicas < 2:
        raise InputError(f"replicas is {replicas}; a ring needs at least 2")
    rng = np.random.default_rng(seed)
    room = clos.tors * clos.nics_per_tor
    sizes = np.array([model.group * replicas for model in models])
    if count * sizes.min() > room:
        raise InfeasibleError(
            f"{counted(count, 'job')} with {counted(replicas, 'replica')} would fill at least "
            f"{count * sizes.min()} NICs; the fabric has {room}: take fewer jobs or replicas, or "
            "more ToRs"
        )
    drawn = rng.integers(len(models), size=count)
    while sizes[drawn].sum() > room:
        drawn = rng.integers(len(models), size=count)
    jobs: list[RingJob] = []
    for index in drawn:
        model = models[int(index)]
        jobs.append(
            RingJob(
                model.name,
                place_rings(clos, model.group, replicas, "random", jobs, rng),
                ring_flow_bytes(model.parameters * ELEMENT_BYTES, model.group, replicas),
                model.compute_time,
                float(rng.uniform(0.0, START_SPREAD)),
            )
        )
    return tuple(jobs)
