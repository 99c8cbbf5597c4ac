"""What was found for a grid of clusters: the designs that none beats, as text, table and figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codesign_base.counted import counted
from topoopt.base.frames import frame, new_axes
from topoopt.base.text import dollars, table_lines
from topoopt.codesign.designs import Design, DesignObjective, frontier
from topoopt.problem.units import format_bandwidth, format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True)
class Exploration:
    """What was found for a grid of clusters.

    Parameters
    ----------
    model : str
    objective : DesignObjective
    designs : tuple of Design
        Every point of the grid, cheapest first.
    least_gain : float
        Share by which a more expensive design must be faster to count.
    interrupted : bool
        Whether points are missing because it was stopped.
    seed : int
    version : str
    """

    model: str
    objective: DesignObjective
    designs: tuple[Design, ...]
    least_gain: float
    interrupted: bool
    seed: int
    version: str

    @property
    def frontier(self) -> tuple[Design, ...]:
        """Designs than which none is both cheaper and faster, by increasing cost."""
        return frontier(self.designs, self.least_gain)

    @property
    def best(self) -> Design | None:
        """The design with the least objective, of equals the cheapest, if any could be planned."""
        return min(
            self.frontier,
            key=lambda design: (design.value(self.objective), design.point.cost_usd),
            default=None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with units in the names."""
        best = self.best
        return {
            "model": self.model,
            "objective": self.objective.value,
            "frontier": [design.to_dict() for design in self.frontier],
            "best": None if best is None else best.to_dict(),
            "designs": [design.to_dict() for design in self.designs],
            "least_gain": self.least_gain,
            "interrupted": self.interrupted,
            "seed": self.seed,
            "version": self.version,
        }

    def to_frame(self) -> "DataFrame":
        """Return one row a design, cheapest first, as a pandas DataFrame.

        Beside the fields of a design, ``frontier`` says whether none beats it in cost and time.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        best = set(self.frontier)
        return frame({**design.to_dict(), "frontier": design in best} for design in self.designs)

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw cost against time, with a line through the designs that none beats.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            By default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        InputError
            If matplotlib is not installed.
        """
        axes = new_axes(axes, (6.4, 4.0))
        best = self.frontier
        beaten = [design for design in self.designs if design.planned and design not in best]
        axes.plot(*_costs_and_times(beaten), "o", color="#999999", label="beaten")
        axes.plot(
            *_costs_and_times(best), "o-", color="#0072b2", drawstyle="steps-post",
            label="none is better",
        )  # fmt: skip
        costs, times = _costs_and_times(best)
        for place, (design, cost, time) in enumerate(zip(best, costs, times, strict=True)):
            point = design.point
            rate = format_bandwidth(point.bandwidth_bytes_per_s)
            # Words lean away from the line, which comes from above to the last point.
            last = place == len(best) - 1 and place > 0
            axes.annotate(
                f"{point.servers} x {point.degree} x {rate}", (cost, time),
                (4, 4) if last else (2, -6), textcoords="offset points", fontsize=8,
                rotation=35 if last else -35, rotation_mode="anchor",
                horizontalalignment="left", verticalalignment="bottom" if last else "top",
            )  # fmt: skip
        axes.set(xlabel="cost [US dollars]", ylabel="time a sample [us]", title=self.model)
        # What costs nothing, such as the network of one server, has no place on a log scale.
        if all(design.point.cost_usd > 0 for design in self.designs):
            axes.set_xscale("log")
        low, high = axes.transData.inverted().transform(
            axes.transAxes.transform([(0, 0), (1.3, 0)])
        )
        axes.set_xlim(low[0], high[0])  # room for the last point's words
        axes.set_ylim(bottom=0.0)
        axes.legend()
        return axes

    def __str__(self) -> str:
        """Return the summary, as `print` shows it."""
        return self.summary()

    def summary(self) -> str:
        """Return the frontier, and what became of the rest, as text."""
        best = self.best
        packets = any(design.packet_time_s is not None for design in self.frontier)
        times = ("packets", "flows") if packets else ("iteration",)
        rows: list[tuple[str, ...]] = [
            ("", "servers", "degree", "bandwidth", "cost", *times, "time a sample", "bound")
        ]
        for design in self.frontier:
            point = design.point
            assert design.iteration_time_s is not None
            assert design.time_per_sample_s is not None
            assert design.lower_bound_s_per_sample is not None
            trains = "-" if design.packet_time_s is None else format_time(design.packet_time_s)
            rows.append(
                (
                    "*" if design is best else "",
                    str(point.servers),
                    str(point.degree),
                    format_bandwidth(point.bandwidth_bytes_per_s),
                    dollars(point.cost_usd),
                    *((trains,) if packets else ()),
                    format_time(design.iteration_time_s),
                    format_time(design.time_per_sample_s),
                    format_time(design.lower_bound_s_per_sample),
                )
            )
        what = {"time": "time a sample", "cost-time": "cost x time a sample"}[self.objective]
        lines = [f"{self.model}: {_designs(self.frontier)} that none beats in cost and time"]
        if len(rows) > 1:
            lines += ["", *table_lines(rows), "", f"* least {what}"]
        states: dict[str, int] = {}
        for design in self.designs:
            states[design.state] = states.get(design.state, 0) + 1
        told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        lines.append(f"{_designs(self.designs)}: {told or 'none was finished'}")
        states_told = ["infeasible"] if len(rows) > 1 else ["infeasible", "over-limit"]
        for state in states_told:
            reasons = dict.fromkeys(d.why for d in self.designs if d.state == state)
            lines += [f"{state}: {reason}" for reason in [*reasons][:3]]
        if self.interrupted:
            lines.append("interrupted: designs that were not looked at may be better")
        return "\n".join(lines)


def _costs_and_times(designs: Sequence[Design]) -> tuple[list[float], list[float]]:
    """Return dollars, and microseconds a sample, of designs that were planned."""
    times = [1e6 * design.value(DesignObjective.TIME) for design in designs]
    return [design.point.cost_usd for design in designs], times


def _designs(designs: tuple[Design, ...]) -> str:
    return counted(len(designs), "design")
