"""The export of spans and metrics to a collector."""
