"""Units: published equalities, round trips, and what must be refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesign_base import InputError
from topoopt.problem.units import (
    bandwidth_text,
    format_bandwidth,
    format_bytes,
    format_count,
    format_flops,
    format_number,
    format_time,
    parse_bandwidth,
    parse_bytes,
    parse_time,
    time_text,
)

PARSERS = [parse_bandwidth, parse_bytes, parse_time]
magnitudes = st.floats(min_value=1e-3, max_value=1e18)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100Gbps", 12.5e9),
        ("100 Gb/s", 12.5e9),
        ("100Gbit/s", 12.5e9),
        ("25GB/s", 25e9),
        ("25GBps", 25e9),
        ("1GiB/s", 2.0**30),
        ("8Gibps", 2.0**30),
        ("400Mbps", 50e6),
        ("1.6Tbps", 200e9),
        (" 1e3kbps ", 125e3),
        ("8bps", 1.0),
        (".5B/s", 0.5),
        (12.5e9, 12.5e9),
        (7, 7.0),
        (np.float64(3.5), 3.5),
        (np.int64(4), 4.0),
    ],
)
def test_bandwidth(text, expected):
    result = parse_bandwidth(text)
    assert result == expected
    assert type(result) is float


@pytest.mark.parametrize(
    ("text", "expected"),
    [("16GiB", 16 * 2.0**30), ("80GB", 80e9), ("512 kB", 512e3), ("1e6B", 1e6), ("2TiB", 2.0**41)],
)
def test_bytes(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1us", 1e-6),
        ("3us", 3e-6),
        ("0.1us", 1e-7),
        ("1µs", 1e-6),
        ("1μs", 1e-6),
        ("10ms", 0.01),
        ("250ns", 250e-9),
        ("2.5s", 2.5),
        ("2min", 120.0),
        ("1.5h", 5400.0),
    ],
)
def test_time(text, expected):
    assert parse_time(text) == expected


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "value",
    [
        "", "Gbps", "12.5e9", "100", "-1", "nanGB/s", "infs", "nan", "1,000GB", "10 parsecs", "1m",
        "1gbps", "100gb/s", "1 G", "0x10B", "1e99999B", "٣B", "1__0B", math.nan, math.inf,
        -math.inf, -1.0, 0.0, 0, True, None, [1], 10**400, 1j,
    ],
)  # fmt: skip
def test_refuses(parse, value):
    with pytest.raises(InputError, match="the-input") as error:
        parse(value, "the-input")
    message = str(error.value)
    assert "write for example" in message
    assert "\n" not in message
    assert repr(value)[:20] in message


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_bandwidth, "1GB"),
        (parse_bandwidth, "1s"),
        (parse_bytes, "16Gb"),
        (parse_bytes, "1GB/s"),
        (parse_time, "1ks"),
        (parse_time, "1MS"),
    ],
)
def test_unknown_unit_is_named(parse, text):
    with pytest.raises(InputError, match="unknown unit"):
        parse(text)


@pytest.mark.parametrize(
    ("parse", "zero", "negative"),
    [(parse_bandwidth, "0Gbps", "-1Gbps"), (parse_time, "0s", "-1s")],
)
def test_zero_only_where_allowed(parse, zero, negative):
    assert parse(zero, allow_zero=True) == 0
    assert parse(0, allow_zero=True) == 0
    with pytest.raises(InputError, match="greater than zero"):
        parse(zero)
    with pytest.raises(InputError, match="zero or more"):
        parse(negative, allow_zero=True)


@given(magnitudes)
def test_round_trips_to_four_digits(value):
    assert parse_bandwidth(format_bandwidth(value)) == pytest.approx(value, rel=5.1e-4)
    assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=5.1e-4)


@given(st.floats(min_value=1e-9, max_value=1e7))
def test_time_round_trips_to_four_digits(value):
    assert parse_time(format_time(value)) == pytest.approx(value, rel=5.1e-4)


@given(st.floats(min_value=1e-30, max_value=1e30))
def test_numbers_in_full_digits_are_read_exactly(value):
    assert parse_time(f"{value!r}s") == value
    assert parse_bytes(f"{value!r} B") == value


@given(st.integers(min_value=1, max_value=9_999), st.sampled_from("kMGTP"))
def test_four_digit_values_survive_exactly(number, prefix):
    size = parse_bytes(f"{number}{prefix}B")
    assert parse_bytes(format_bytes(size)) == size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_bandwidth(12.5e9), "100 Gbps"),
        (format_bandwidth(0.0), "0 bps"),
        (format_bytes(306_343_940), "306.3 MB"),
        (format_bytes(999.96e6), "1 GB"),
        (format_bytes(999.94e6), "999.9 MB"),
        (format_bytes(5), "5 B"),
        (format_bytes(-2e9), "-2 GB"),
        (format_time(0.02316), "23.16 ms"),
        (format_time(1e-6), "1 us"),
        (format_time(0.99999), "1 s"),
        (format_time(0.9999999e-3), "1 ms"),
        (format_time(0.0), "0 s"),
        (format_time(-0.005), "-5 ms"),
        (format_time(90), "90 s"),
        (format_time(300), "5 min"),
        (format_time(7200), "2 h"),
        (format_time(2e-12), "0.002 ns"),
        (format_time(math.inf), "inf s"),
        (format_flops(4.1e9), "4.1 GFLOP"),
        (format_flops(312e12), "312 TFLOP"),
        (format_count(25_557_032), "25.56 M"),
        (format_count(12), "12"),
        (format_count(math.nan), "nan"),
        (format_number(12345.678), "12346"),
        (format_number(1.23456), "1.235"),
        (format_number(0.0), "0"),
    ],
)
def test_formats(text, expected):
    assert text == expected


@given(st.floats(1e-3, 1e13))
@settings(max_examples=200, deadline=None)
def test_bandwidths_as_text_are_exact(rate):
    assert parse_bandwidth(bandwidth_text(rate)) == rate
    assert bandwidth_text(12.5e9) == "100Gbps"


@given(st.floats(1e-12, 3600.0))
@settings(max_examples=200, deadline=None)
def test_times_as_text_are_exact(seconds):
    assert parse_time(time_text(seconds)) == seconds
    assert time_text(1e-6) == "1us"
