"""Progress of a run on standard error: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from topoopt.experiment.declaration import case_text
from topoopt.experiment.rows import Row


class LineProgress:
    """Writes one line a case; times are of the wall clock and appear nowhere else.

    Parameters
    ----------
    total : int
        Cases to compute.
    silent : bool
        Write nothing.
    """

    def __init__(self, total: int, *, silent: bool = False) -> None:
        self._total = total
        self._silent = silent
        self._start = time.monotonic()

    def note(self, text: str) -> None:
        """Write something in a line or more."""
        if not self._silent:
            print(text, file=sys.stderr, flush=True)

    def advance(self, done: int, inputs: Row, status: str) -> None:
        """Write the case with its status, the time elapsed and an estimate of what is left."""
        self.note(f"{self.line(done, inputs, status)}  {self.clock(done)}")

    def line(self, done: int, inputs: Row, status: str) -> str:
        """Return the case and its status in one line."""
        return f"[{done:>{len(str(self._total))}}/{self._total}] {status:<10}  {case_text(inputs)}"

    def clock(self, done: int) -> str:
        """Return the time elapsed and an estimate of what is left."""
        elapsed = time.monotonic() - self._start
        left = elapsed / done * (self._total - done) if done else 0.0
        return f"(elapsed {_clock(elapsed)}, about {_clock(left)} left)"


class LiveProgress(LineProgress):
    """A bar at the bottom of the terminal, with the lines of finished cases above it."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        super().__init__(total)
        self.bar = Progress(
            TextColumn("cases"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self.bar.add_task("", total=total)

    def note(self, text: str) -> None:
        """Write the text above the bar."""
        self.bar.console.print(text, markup=False, highlight=False)

    def advance(self, done: int, inputs: Row, status: str) -> None:
        """Write the case above the bar, and move the bar."""
        self.note(self.line(done, inputs, status))
        self.bar.update(self._task, completed=done, description=self.clock(done))


@contextmanager
def progress_of(total: int, *, silent: bool) -> Iterator[LineProgress]:
    """Show the progress of so many cases on standard error while the block runs, or nothing."""
    if total and not silent and sys.stderr.isatty():
        live = LiveProgress(total)
        with live.bar:
            yield live
    else:
        yield LineProgress(total, silent=silent)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
