"""Extension point: one framework a file."""
