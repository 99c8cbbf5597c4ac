"""Model against reference: published packet-level times, and closed forms."""

from topoopt.studies.validation.closed_forms import ClosedForm, closed_forms
from topoopt.studies.validation.reference import ReferenceTable, ReferenceTime, packet_level
from topoopt.studies.validation.results import Case, ModelResult, Summary, Validation
from topoopt.studies.validation.validate import data_directory, validate

__all__ = [
    "Case",
    "ClosedForm",
    "ModelResult",
    "ReferenceTable",
    "ReferenceTime",
    "Summary",
    "Validation",
    "closed_forms",
    "data_directory",
    "packet_level",
    "validate",
]
