"""Calls that the HTTP front forwards for its users."""
