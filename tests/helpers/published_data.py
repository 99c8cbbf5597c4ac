"""Where published data lie that are not part of the project, if they are here."""

import os
from pathlib import Path


def published_data(name):
    """Return the folder of this name; it may not exist."""
    if os.environ.get("TOPOOPT_DATA"):
        return Path(os.environ["TOPOOPT_DATA"]) / name
    for parent in Path(__file__).resolve().parents:
        for place in (parent / "shared", parent.parent / "shared"):
            if (place / "data" / name).is_dir():
                return place / "data" / name
    return Path("absent")
