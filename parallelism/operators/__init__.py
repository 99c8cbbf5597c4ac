"""What models are built of: operators with their shapes and counts."""
