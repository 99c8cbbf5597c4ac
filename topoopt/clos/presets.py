"""Jobs of the paper's experiments: models, how one copy is split, how long they compute."""

from dataclasses import dataclass

import numpy as np

from codesign_base import InputError
from routing.clos.fabric import Clos
from routing.clos.jobs import JobKind, RingJob, random_job_set


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
        Where the numbers stand.
    element_bytes : float
        Bytes of a gradient.
    """

    name: str
    parameters: float
    tensor: int
    pipeline: int
    compute_time: float
    source: str
    element_bytes: float = 4.0

    @property
    def kind(self) -> JobKind:
        """The model as routing sees it."""
        return JobKind(
            self.name,
            self.tensor * self.pipeline,
            self.parameters * self.element_bytes,
            self.compute_time,
        )


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


def draw_jobs(clos: Clos, count: int, replicas: int, seed: int) -> tuple[RingJob, ...]:
    """Draw jobs of the presets on random ToRs, as in the paper's experiments.

    Parameters
    ----------
    clos : Clos
    count : int
        Number of jobs.
    replicas : int
        Ring size of every job.
    seed : int

    Returns
    -------
    tuple of RingJob

    Raises
    ------
    InfeasibleError
        If so many jobs do not fit.
    """
    kinds = [model.kind for model in CLOS_MODELS.values()]
    return random_job_set(clos, kinds, count, replicas, np.random.default_rng(seed))
