"""Co-design for transformers: layouts searched jointly with placement, topology and routing."""
