"""Co-design of parallelization strategy, topology and routing for AI training clusters."""
