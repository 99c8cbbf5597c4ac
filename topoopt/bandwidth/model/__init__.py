"""The question: networks, prices, workloads, groups, and the times that they make."""
