"""Secrets in what leaves: known values and patterns, masked."""
