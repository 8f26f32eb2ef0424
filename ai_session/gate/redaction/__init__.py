"""Masks secrets in results, recordings and logs: known values and patterns."""
