"""What a caller may ask for: one file per topic."""
