"""One module for each file format that other programs, or other commands, read."""
