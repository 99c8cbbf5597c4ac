"""The result: the file, its text, reading it back, verifying it."""
