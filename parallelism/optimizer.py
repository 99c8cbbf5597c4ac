"""Optimizers that train a model."""

from enum import StrEnum


class Optimizer(StrEnum):
    """Which optimizer trains the model; it decides how many copies of a parameter are kept."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"

    @property
    def states(self) -> int:
        """Extra copies of every parameter."""
        return {"sgd": 0, "momentum": 1, "adam": 2}[self.value]
