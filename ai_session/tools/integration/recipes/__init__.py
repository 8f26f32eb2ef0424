"""EXTENSION POINT: one framework a file."""
