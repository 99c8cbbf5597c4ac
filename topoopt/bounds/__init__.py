"""How much faster anything could be, and the gap taken apart."""
