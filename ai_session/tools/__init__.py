"""Extension point: what a caller may ask for; one file per topic."""
