"""How fast reconfigurable fabrics reconfigure."""

from dataclasses import dataclass

from codesign_base import InputError
from codesign_base.arguments import python_numbers
from topoopt.problem.units import format_time, parse_time

RECONFIGURABLE = ("sip-ml", "ocs-reconfig")
# Micro-rings switch in about this time (SiP-ML, SIGCOMM 2021); optical switches of today, and the
# window, as TopoOpt compares with them (NSDI 2023, section 5).
MICRO_RING_DELAY = 25e-6
SWITCH_DELAY = 10e-3
WINDOW = 50e-3


@dataclass(frozen=True)
class Reconfiguration:
    """How the reconfigurable fabrics work.

    Parameters
    ----------
    delay : str or float, optional
        Time for which circuits that are moved are dark, such as "10ms"; a number is seconds. By
        default 25 us for ``sip-ml``, 10 ms for ``ocs-reconfig``.
    window : str or float
        Time between two decisions of ``ocs-reconfig``, not less than the delay.
    forwarding : bool
        Whether servers forward for each other on ``ocs-reconfig``.

    Raises
    ------
    InputError
        If a time is out of range.
    """

    delay: str | float | None = None
    window: str | float = WINDOW
    forwarding: bool = True

    def __post_init__(self) -> None:
        python_numbers(self)
        window = parse_time(self.window, "demand window")
        delay = self.delay_of("ocs-reconfig")
        if delay > window:
            raise InputError(
                f"demand window is {format_time(window)}, shorter than the reconfiguration delay "
                f"of {format_time(delay)}; give a longer window"
            )

    def delay_of(self, name: str) -> float:
        """Return the seconds that circuits of a fabric of `RECONFIGURABLE` are dark."""
        if self.delay is None:
            return MICRO_RING_DELAY if name == "sip-ml" else SWITCH_DELAY
        return parse_time(self.delay, "reconfiguration delay", allow_zero=True)

    @property
    def window_s(self) -> float:
        """Seconds between two decisions."""
        return parse_time(self.window, "demand window")
