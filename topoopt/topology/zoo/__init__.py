"""Fabrics to compare with, one family a module; `registry` builds them by name."""
