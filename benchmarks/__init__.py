"""Measurements against floors taken in the same run: ``python -m benchmarks [name …]``."""
