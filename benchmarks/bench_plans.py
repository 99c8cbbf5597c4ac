"""Seconds and memory of whole plans of transformers, as ratios to another version.

Run by hand, a case or all: ``python benchmarks/bench_plans.py [--before DIRECTORY] [CASE ...]``.
``--before`` names a checkout of the version to compare with, such as one made by
``git worktree add ../before 1fe78af``. Every plan is made in a process of its own, after small
ones that compile the kernels. What fails, or passes the limits, says so. CPU seconds are user and
system seconds of all threads and processes, which a busy machine hardly changes; seconds of the
clock need an idle one with two cores.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CASES = {
    "llama3-8b-8": ("llama3-8b", 8, 128),
    "mixtral-8x7b-8": ("mixtral-8x7b", 8, 128),
    "llama3-70b-64": ("llama3-70b", 64, 1024),
    "llama3.1-405b-128": ("llama3.1-405b", 128, 1024),
    "deepseek-v3-64": ("deepseek-v3", 64, 1024),
    "deepseek-v3-256": ("deepseek-v3", 256, 4096),
    "llama3-70b-1024": ("llama3-70b", 1024, 4096),
    "llama3.1-405b-1024": ("llama3.1-405b", 1024, 4096),
    "deepseek-v3-1024": ("deepseek-v3", 1024, 4096),
}
# Their kernels are those of all others.
WARM = ("llama3-8b-8", "mixtral-8x7b-8")
MOST_SECONDS = 900
MOST_BYTES = 8 << 30


def spent(
    root: Path, most_seconds: int, most_bytes: int, *words: str
) -> tuple[int, float, float, float]:
    """Return the exit status, seconds, CPU seconds and GB of a checkout's command, within limits.

    GB are of the largest of its processes.
    """

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (most_seconds, most_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))

    begun = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "topoopt.cli", *words],
        env=os.environ | {"PYTHONPATH": str(root)},
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=limited,
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    cpu = used.ru_utime + used.ru_stime
    return child.returncode, time.monotonic() - begun, cpu, used.ru_maxrss * 1024 / 1e9


def measured(root: Path, *words: str) -> tuple[float, float, float] | None:
    """Return seconds, CPU seconds and GB of a command; None if it fails, or is too much."""
    status, *costs = spent(root, MOST_SECONDS, MOST_BYTES, *words)
    return None if status else (costs[0], costs[1], costs[2])


def plan_of(model: str, servers: int, batch: int, path: Path) -> tuple[str, ...]:
    """Return the words of the command that plans a case."""
    return (
        "plan", model, "--servers", str(servers), "--gpus-per-server", "8", "--device", "h100",
        "--degree", "8", "--bandwidth", "400Gbps", "--global-batch", str(batch), "-o", str(path),
    )  # fmt: skip


def main() -> None:
    """Print a line for each case: planning, verifying, and both over those of before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("case", nargs="*", default=list(CASES))
    asked = parser.parse_args()
    for case in asked.case:
        if case not in CASES:
            parser.error(f"case is {case!r}; choose some of {', '.join(CASES)}")
    print(
        "case                       s   CPU s     GB  verify"
        "   s / before  CPU / before  GB / before"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        roots = [HERE] if asked.before is None else [asked.before.resolve(), HERE]
        for root in roots:
            for case in WARM:
                measured(root, *plan_of(*CASES[case], path))
        for case in asked.case:
            made = [measured(root, *plan_of(*CASES[case], path)) for root in roots]
            before, now = (made[0] if asked.before else None), made[-1]
            if now is None:
                print(f"{case:20}   fails, or takes too much", flush=True)
                continue
            checked = measured(HERE, "verify", str(path))
            verify = "fails" if checked is None else f"{checked[1]:.1f}"
            ratios = [a / b for a, b in zip(now, before, strict=True)] if before else []
            said = "".join(f"{ratio:13.2f}" for ratio in ratios)
            print(
                f"{case:20} {now[0]:7.1f} {now[1]:7.1f} {now[2]:6.2f} {verify:>7}{said}", flush=True
            )


if __name__ == "__main__":
    main()
