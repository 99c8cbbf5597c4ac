"""One parallelization on one cluster: wire it, route it, score it, schedule it."""
