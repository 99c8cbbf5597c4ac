"""The co-design loop: its population, its moves, refinement by packets, its saved state."""
