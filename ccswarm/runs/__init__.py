"""Runs begun, gone on with and stopped; how far they are and what happened in them."""
