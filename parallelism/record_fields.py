"""Types of the fields of records that are written to files and read back."""

from typing import Annotated

from pydantic import ConfigDict, Field

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
# Upper limits keep every whole number within 64 bits.
Count = Annotated[int, Field(ge=0, lt=2**63)]
Whole = Annotated[int, Field(ge=1, lt=2**63)]
Amount = Annotated[float, Field(ge=0)]
Seconds = Amount
