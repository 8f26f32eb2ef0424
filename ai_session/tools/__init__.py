"""EXTENSION POINT: what a caller may ask for; one file per topic."""
