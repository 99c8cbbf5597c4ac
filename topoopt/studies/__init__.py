"""After the plan: simulation, failures, routing, shared clusters, validation."""
