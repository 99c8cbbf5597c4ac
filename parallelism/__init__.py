"""Models, strategies and the task graphs that they make. Knows nothing of networks."""
