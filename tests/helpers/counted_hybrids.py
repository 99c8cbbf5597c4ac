"""Small configurations of hybrid families against the classes that Hugging Face loads them with.

Counted as those of `counted_configs`.
"""

import json
from pathlib import Path
from typing import Any

COUNTED_HYBRIDS: list[tuple[dict[str, Any], int, str]] = [
    tuple(one) for one in json.loads(Path(__file__).with_suffix(".json").read_text())
]
"""Configuration, parameters, and of each layer its mixer (f: attention to all keys, l: linear, b:
both, .: none) and, after a bar, its feed-forward part (d: dense, e: experts, .: none)."""
