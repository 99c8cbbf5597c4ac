"""Searches over shapes and divisions of a job, and answers to changed questions."""
