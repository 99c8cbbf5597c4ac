"""Searching the space of strategies; the score is a callable that the caller gives."""
