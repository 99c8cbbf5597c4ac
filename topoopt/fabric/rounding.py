"""How far sums of the same times differ that are added up in another order."""

ROUNDED_DOWN = 1.0 - 1e-9
"""Bounds are made so many times as long: sums in another order differ in the last bits, and the
simulator takes events within 1e-12 for one. A bound must not exceed the time it bounds, nor rule
out what is exactly as fast, because of that."""

ROUNDED_UP = 1.0 + 1e-9
"""Limits are made so many times as long, for the same reason."""
