"""Spans and metrics of calls for a collector, if one is configured."""
