"""Spans and metrics on their way to a collector."""
