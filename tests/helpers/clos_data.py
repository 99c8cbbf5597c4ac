"""Where the published job files of Clos experiments lie, if they are here."""

import os
from pathlib import Path


def clos_data():
    """Return the folder; it may not exist."""
    if "TOPOOPT_DATA" in os.environ:
        return Path(os.environ["TOPOOPT_DATA"]) / "clos"
    for parent in Path(__file__).resolve().parents:
        for place in (parent / "shared", parent.parent / "shared"):
            if (place / "data" / "clos").is_dir():
                return place / "data" / "clos"
    return Path("absent")
