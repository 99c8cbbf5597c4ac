"""Units at the edges: text with a unit to SI floats, and SI floats to readable text.

Inside the program every quantity is a float in bytes, seconds, bytes/s or FLOP. In units, ``b``
is a bit and ``B`` a byte; ``k M G T P`` are powers of 1000 and ``Ki Mi Gi Ti Pi`` of 1024.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from codesign_base import InputError
from codesign_base.arguments import is_number

BYTES_PER_GBIT = 1e9 / 8

_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,4}))?\s*(.*?)\s*")
_PREFIXED = re.compile(r"([kKMGTP]i?|)(.+)")
_DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}
_BITS_PER_SECOND = ("bps", "b/s", "bit/s")
_BYTES_PER_SECOND = ("B/s", "Bps")
_SECONDS = {"ns": (-9, 1), "us": (-6, 1), "µs": (-6, 1), "μs": (-6, 1), "ms": (-3, 1)} | {
    "s": (0, 1), "min": (0, 60), "h": (0, 3600),
}  # fmt: skip
_DIGITS = 4
# Beyond these, events of a simulation are lost in the rounding of its clock.
_PORT_RATES = 0.125, 1.25e17
# Below this many bytes/s a plain number was likely meant in another unit.
_LEAST_PLAIN_RATE = 1e6
_MOST_LATENCY = 3600.0
# From this many seconds on likewise.
_MOST_PLAIN_LATENCY = 0.1


def parse_bandwidth(
    value: str | float, name: str = "bandwidth", *, allow_zero: bool = False
) -> float:
    """Read a bandwidth.

    Parameters
    ----------
    value : str or float
        Text with a unit (``"100Gbps"``, ``"12.5 GB/s"``, ``"1GiB/s"``), or a number of bytes/s.
    name : str
        What the input is called in an error.
    allow_zero : bool
        Whether zero is a legal value.

    Returns
    -------
    float
        Bytes per second.

    Raises
    ------
    InputError
        If the text has no unit or an unknown one, or the value is negative, zero (unless
        allowed) or not finite.

    Examples
    --------
    >>> parse_bandwidth("100Gbps")
    12500000000.0
    """
    remedy = "write for example 100Gbps (bits) or 12.5GB/s (bytes)"
    return _read(value, name, remedy, allow_zero, _bytes_per_second)


def parse_bytes(value: str | float, name: str = "size") -> float:
    """Read an amount of data or memory.

    Parameters
    ----------
    value : str or float
        Text with a unit (``"16GiB"``, ``"512 MB"``, ``"100B"``), or a number of bytes.
    name
        As in `parse_bandwidth`.

    Returns
    -------
    float
        Bytes.

    Raises
    ------
    InputError
        As `parse_bandwidth`; bits (``Gb``) are refused.

    Examples
    --------
    >>> parse_bytes("16GiB")
    17179869184.0
    """
    remedy = "write for example 16GiB or 80GB (b would be bits, B is bytes)"
    return _read(value, name, remedy, False, _bytes)


def parse_time(value: str | float, name: str = "time", *, allow_zero: bool = False) -> float:
    """Read a duration.

    Parameters
    ----------
    value : str or float
        Text with a unit (``ns us ms s min h``), or a number of seconds.
    name, allow_zero
        As in `parse_bandwidth`.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    InputError
        As `parse_bandwidth`.

    Examples
    --------
    >>> parse_time("10ms")
    0.01
    """
    remedy = "write for example 1us, 10ms or 2.5s (units: ns us ms s min h)"
    return _read(value, name, remedy, allow_zero, _seconds)


def parse_port_rate(value: str | float) -> float:
    """Read the bandwidth of a port that is simulated: 1 bps to a million Tbps.

    Parameters and errors are those of `parse_bandwidth`; a number without a unit of less than
    a million is refused as well, for ports are that slow by mistake only.

    Returns
    -------
    float
        Bytes per second.
    """
    rate = parse_bandwidth(value)
    if not isinstance(value, str) and rate < _LEAST_PLAIN_RATE:
        raise InputError(
            f"bandwidth is {value!r}, which without a unit is bytes/s; write the unit, such as "
            f"'{value:g}Gbps', or '{value:g}B/s' if that is meant"
        )
    if not _PORT_RATES[0] <= rate <= _PORT_RATES[1]:
        raise InputError(f"bandwidth {value!r} is out of range; give 1bps to 1e6Tbps")
    return rate


def parse_latency(value: str | float) -> float:
    """Read the latency of a hop that is simulated: zero to an hour.

    Parameters and errors are those of `parse_time`; a number without a unit of a tenth or more
    is refused as well, for hops are that slow by mistake only.

    Returns
    -------
    float
        Seconds.
    """
    seconds = parse_time(value, "latency", allow_zero=True)
    if not isinstance(value, str) and seconds >= _MOST_PLAIN_LATENCY:
        raise InputError(
            f"latency is {value!r}, which without a unit is seconds; write the unit, such as "
            f"'{value:g}us', or '{value:g}s' if that is meant"
        )
    if seconds > _MOST_LATENCY:
        raise InputError(f"latency {value!r} is out of range; give at most 1h, such as 1us")
    return seconds


def bandwidth_text(bytes_per_second: float) -> str:
    """Write a bandwidth as text that `parse_bandwidth` reads as the same number: ``"100Gbps"``."""
    rate = float(bytes_per_second)
    for unit, scale in (("Gbps", 1e9), ("Mbps", 1e6), ("bps", 1.0)):
        text = f"{rate * 8 / scale:.12g}{unit}"
        if rate * 8 >= scale and parse_bandwidth(text) == rate:
            return text
    return f"{rate!r}B/s"


def time_text(seconds: float) -> str:
    """Write a duration as text that `parse_time` reads as the same number: ``"1us"``."""
    exact = float(seconds)
    for unit, scale in (("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        text = f"{exact * scale:.12g}{unit}"
        if exact * scale >= 1.0 and parse_time(text) == exact:
            return text
    return f"{exact!r}s"


def format_bandwidth(bytes_per_second: float) -> str:
    """Write a bandwidth in bits per second, as networks are sold: ``"100 Gbps"``."""
    return _with_prefix(bytes_per_second * 8, "bps", "kMGTP")


def format_bytes(size: float) -> str:
    """Write an amount of data with a decimal prefix: ``"306.3 MB"``."""
    return _with_prefix(size, "B", "kMGTP")


def format_flops(operations: float) -> str:
    """Write floating-point operations: ``"4.1 GFLOP"``."""
    return _with_prefix(operations, "FLOP", "kMGTPE")


def format_count(count: float) -> str:
    """Write a count (parameters, links, steps) with k, M, G, T: ``"25.56 M"``."""
    return _with_prefix(count, "", "kMGT")


def format_time(seconds: float) -> str:
    """Write a duration in the unit that reads best, ns to h: ``"23.16 ms"``."""
    if not math.isfinite(seconds) or seconds == 0:
        return f"{seconds:g} s"
    if abs(seconds) >= 119.95:
        minutes = _rounded(seconds / 60)
        if abs(minutes) < 120:
            return f"{_plain(minutes)} min"
        return f"{_plain(_rounded(seconds / 3600))} h"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        number = _rounded(seconds * scale)
        if abs(number) >= 1 or unit == "ns":
            break
    return f"{_plain(number)} {unit}"


def format_number(value: float) -> str:
    """Write a plain number with four significant digits, or all digits of a larger one."""
    if not math.isfinite(value):
        return f"{value:g}"
    if 10**_DIGITS <= abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.{_DIGITS}g}"


def _with_prefix(value: float, unit: str, prefixes: str) -> str:
    if not math.isfinite(value):
        return f"{value:g} {unit}".rstrip()
    prefix, number = "", _rounded(value)
    for letter in prefixes:
        if abs(number) < 1000:
            break
        # Scale the original: 999.96 M must read 1 G, and rounding twice would drift.
        power = 3 * (prefixes.index(letter) + 1)
        prefix, number = letter, _rounded(value / 10.0**power)
    return f"{_plain(number)} {prefix}{unit}".rstrip()


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _plain(number: float) -> str:
    return f"{number:.{_DIGITS}g}" if abs(number) < 10**_DIGITS else f"{number:g}"


def _read(
    value: str | float,
    name: str,
    remedy: str,
    allow_zero: bool,
    in_unit: Callable[[str, int, str], float | None],
) -> float:
    """Read a number, or text whose number some unit scales."""
    if not isinstance(value, str):
        return _checked(_as_float(value, name, remedy), value, name, remedy, allow_zero)
    mantissa, exponent, unit = _split(value, name, remedy)
    number = in_unit(mantissa, exponent, unit)
    if number is None:
        raise InputError(f"{name} {value!r} has the unknown unit {unit!r}; {remedy}")
    return _checked(number, value, name, remedy, allow_zero)


def _bytes_per_second(mantissa: str, exponent: int, unit: str) -> float | None:
    prefix, base = _prefix(unit)
    if base in _BITS_PER_SECOND:
        return _scaled(mantissa, exponent, prefix) / 8
    return _scaled(mantissa, exponent, prefix) if base in _BYTES_PER_SECOND else None


def _bytes(mantissa: str, exponent: int, unit: str) -> float | None:
    prefix, base = _prefix(unit)
    return _scaled(mantissa, exponent, prefix) if base == "B" else None


def _seconds(mantissa: str, exponent: int, unit: str) -> float | None:
    if unit not in _SECONDS:
        return None
    power, factor = _SECONDS[unit]
    return float(f"{mantissa}e{exponent + power}") * factor


def _split(text: str, name: str, remedy: str) -> tuple[str, int, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InputError(f"{name} {text!r} does not start with a finite number; {remedy}")
    mantissa, exponent, unit = match.groups()
    if not unit:
        raise InputError(f"{name} {text!r} names no unit; {remedy}")
    return mantissa, int(exponent or 0), unit


def _prefix(unit: str) -> tuple[str, str]:
    match = _PREFIXED.fullmatch(unit)
    return (match[1], match[2]) if match else ("", unit)


def _scaled(mantissa: str, exponent: int, prefix: str) -> float:
    # Adding to the decimal exponent rounds once; multiplying by 1e9 would round twice.
    if prefix in _BINARY:
        return float(f"{mantissa}e{exponent}") * 2.0 ** _BINARY[prefix]
    return float(f"{mantissa}e{exponent + _DECIMAL[prefix]}")


def _as_float(value: Any, name: str, remedy: str) -> float:
    if not is_number(value):
        raise InputError(f"{name} {value!r} is neither text with a unit nor a number; {remedy}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _checked(number: float, value: object, name: str, remedy: str, allow_zero: bool) -> float:
    if not math.isfinite(number):
        raise InputError(f"{name} {value!r} is not a finite number; {remedy}")
    if number < 0 or (number == 0 and not allow_zero):
        least = "zero or more" if allow_zero else "greater than zero"
        raise InputError(f"{name} {value!r} must be {least}; {remedy}")
    return number
