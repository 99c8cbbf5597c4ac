"""A table of scores a second, beside another version's and beside what memory bandwidth allows.

    python benchmarks/score_table.py [--beside PATH_OF_ANOTHER_CHECKOUT]

Both versions are measured in turns, model by model, in CPU seconds: the least of several scores
with batched completions, as searches beyond 32 servers take them (exact on fewer). The limit is
that of a score that reads each array of its task graph, and each link of its routes, once, at the
rate at which this machine reads a large array.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
REPEATS, SECONDS = 5, 3.0


def read_rate() -> float:
    """Return the bytes a second at which one core adds up a large array."""
    array = np.ones(1 << 25)
    best = float("inf")
    for _ in range(5):
        begun = time.process_time()
        array.sum()
        best = min(best, time.process_time() - begun)
    return array.nbytes / best


def least_bytes(tasks, fabric) -> int:
    """Return the bytes of a task graph, and of the links that its transfers and groups use."""
    arrays = (
        tasks.kind, tasks.first, tasks.second, tasks.size, tasks.delay, tasks.successor_offsets,
        tasks.successors, tasks.predecessors,
    )  # fmt: skip
    moves = tasks.kind == 1
    begin, end = fabric.rows.entries(
        tasks.first[moves] * fabric.network.hosts + tasks.second[moves]
    )
    entries = int((end - begin).sum())
    for group in tasks.groups:
        if len(group) > 1:
            entries += fabric.group_streams(group).links.size
    return sum(array.nbytes for array in arrays) + 12 * entries


def measured(model: str) -> dict[str, float]:
    """Return the CPU seconds of one score of a model, and the bytes that it reads at least."""
    from bench_scores import prepared

    from topoopt.evaluate.scoring import Scorer, search_tolerance

    problem, strategy, fabric = prepared(model)
    score = Scorer(problem, fabric, search_tolerance(problem.family.servers))
    score(strategy)
    spent: list[float] = []
    while len(spent) < REPEATS and sum(spent) < SECONDS:
        begun = time.process_time()
        score(strategy)
        spent.append(time.process_time() - begun)
    own = problem.family.represented(strategy)
    return {"seconds": min(spent), "tasks": own.tasks, "bytes": least_bytes(own, fabric)}


def run(checkout: Path, model: str) -> dict[str, float]:
    """Measure a model in a process of its own, with the packages of a checkout."""
    environment = dict(os.environ, PYTHONPATH=f"{checkout}{os.pathsep}{HERE}")
    command = [sys.executable, __file__, "--measure", model]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--beside", type=Path, help="checkout of another version")
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measured(given.measure)))
        return
    from bench_scores import CASES

    rate = read_rate()
    print(f"reads {rate / 1e9:.1f} GB/s")
    print("| model | servers | tasks | before | now | limit of memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for model, (servers, _) in CASES.items():
        before = run(given.beside, model)["seconds"] if given.beside else float("nan")
        now = run(HERE.parent, model)
        print(
            f"| {model.split('@')[0]} | {servers:,} | {now['tasks']:,} | {1 / before:.3g} "
            f"| {1 / now['seconds']:.3g} | {rate / now['bytes']:.3g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
