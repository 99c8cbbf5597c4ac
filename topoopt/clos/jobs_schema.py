"""What a jobs file may hold; apart, because only reading one needs pydantic."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from parallelism.record_fields import STRICT

Way = Annotated[int, Field(ge=1, le=10**6)]
Places = list[list[str]]


def _whole(parameters: float) -> float:
    if parameters < 1 or parameters % 1:
        raise ValueError("give a whole number of at least 1")
    return parameters


class JobSpec(BaseModel):
    """One job, or several alike."""

    model_config = STRICT
    name: str | None = None
    model: str | None = None
    parameters: Annotated[float, AfterValidator(_whole)] | None = None
    element_bytes: Annotated[float, Field(gt=0)] | None = None
    tensor: Way | None = None
    pipeline: Way | None = None
    replicas: Annotated[int, Field(ge=2, le=10**6)]
    placement: Literal["packed", "random"] | Places = "random"
    compute_time: str | None = None
    start_time: str = "0s"
    count: Annotated[int, Field(ge=1, le=10**4)] = 1


class JobsFile(BaseModel):
    """The document."""

    model_config = STRICT
    jobs: Annotated[list[JobSpec], Field(min_length=1)]
