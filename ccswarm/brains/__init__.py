"""Brains, which decide an agent's next step: one file each."""
