"""Model against reference: published packet-level times, and closed forms."""

from topoopt.studies.validation.reference_cases import validate

__all__ = ["validate"]
