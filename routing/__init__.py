"""Networks, routes and fair rates. Knows nothing of models or strategies."""
