"""Plans of every preset on 16, 128 and 1,024 servers: times, bounds, and what they cost to find.

Run by hand: ``python benchmarks/bench_presets.py ROWS.jsonl [--models dlrm ncf] [--servers 16]
[--degrees 4]``. Every plan is made in a process of its own, after a small one that compiles the
kernels; its row is added to the file at once. Rows of the file that the same sources made are not
made again, so a run goes on where another was stopped. ``--table`` only prints the table of the
rows at hand. Seconds are of the processor, and of the clock on the wall, which other work prolongs.
"""

import argparse
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from bench_plans import HERE, spent

from topoopt.base.version import package_hash
from topoopt.problem.units import format_time

MODELS = ("dlrm", "candle", "bert", "ncf", "resnet50", "vgg16")
SERVERS = (16, 128, 1024)
DEGREES = (4, 8)
BANDWIDTH = "100Gbps"
MOST_BYTES = 9 << 30
MOST_SECONDS = 400


def planned(model: str, servers: int, degree: int, path: Path) -> tuple[int, float, float, float]:
    """Plan a case into a file; return the exit status, wall seconds, CPU seconds and GB."""
    return spent(
        HERE, MOST_SECONDS, MOST_BYTES, "plan", model, "--servers", str(servers),
        "--degree", str(degree), "--bandwidth", BANDWIDTH, "-o", str(path),
    )  # fmt: skip


def row_of(model: str, servers: int, degree: int, folder: Path) -> dict[str, Any]:
    """Plan a case and return its row; one without times where no plan was made."""
    path = folder / "plan.json"
    path.unlink(missing_ok=True)
    status, wall, seconds, memory = planned(model, servers, degree, path)
    row: dict[str, Any] = {
        "model": model, "servers": servers, "degree": degree, "status": status,
        "cpu_s": seconds, "wall_s": wall, "gb": memory,
    }  # fmt: skip
    if status == 0:
        plan = json.loads(path.read_text())
        for name in ("iteration_time_s", "packet_time_s", "lower_bound_s", "gap"):
            row[name] = plan[name]
        row["parts"] = {part["name"]: part["seconds"] for part in plan["gap_parts"]}
        row["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        row["mb"] = path.stat().st_size / 1e6
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table, in the order of the cases; times of those that ended."""
    parts = ("strategy", "topology", "routing", "collective", "scheduling")
    costs = ("CPU s", "wall s", "GB")
    head = ("model", "servers", "degree", "fluid", "packets", "bound", "gap", *parts, *costs)
    lines = [head, ("---",) + ("---:",) * (len(head) - 1)]
    order = {model: place for place, model in enumerate(MODELS)}
    for row in sorted(rows, key=lambda r: (order[r["model"]], r["servers"], r["degree"])):
        cost = (f"{row['cpu_s']:.0f}", f"{row['wall_s']:.0f}", f"{row['gb']:.1f}")
        case = (row["model"], f"{row['servers']:,}", str(row["degree"]))
        if row["status"]:
            lines.append((*case, "not ended", *[""] * (len(head) - 7), *cost))
            continue
        times = (row["iteration_time_s"], row["packet_time_s"], row["lower_bound_s"])
        bound = row["lower_bound_s"]
        lines.append((
            *case, *("" if time is None else format_time(time) for time in times),
            f"{100 * row['gap']:.1f} %",
            *(f"{100 * row['parts'][part] / bound:.1f}" for part in parts),
            *cost,
        ))  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Make the rows that are missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--servers", nargs="*", type=int, default=SERVERS)
    parser.add_argument("--degrees", nargs="*", type=int, default=DEGREES)
    parser.add_argument("--table", action="store_true", help="only print the table")
    asked = parser.parse_args()
    code = package_hash()
    text = asked.rows.read_text().splitlines() if asked.rows.exists() else []
    rows = [row for row in map(json.loads, text) if row["code"] == code or asked.table]
    made = {(row["model"], row["servers"], row["degree"]) for row in rows}
    cases = [(m, n, d) for n in asked.servers for d in asked.degrees for m in asked.models]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        left = [] if asked.table else [case for case in cases if case not in made]
        if left:
            planned("vgg16", 4, 4, folder / "warm.json")
        for case in left:
            row = row_of(*case, folder) | {"code": code}
            rows.append(row)
            with asked.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
