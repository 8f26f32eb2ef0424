"""Calls that the HTTP front passes on for its users."""
