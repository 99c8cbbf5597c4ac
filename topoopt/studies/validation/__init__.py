"""Model against reference: published packet-level times, and closed forms."""

from topoopt.studies.validation.validate import validate

__all__ = ["validate"]
