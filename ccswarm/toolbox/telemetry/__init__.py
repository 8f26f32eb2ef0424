"""Spans and metrics of runs for a collector, if one is configured."""
