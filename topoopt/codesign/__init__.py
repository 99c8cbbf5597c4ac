"""Whole answers: co-optimization, restarts, comparison, Pareto frontiers."""
