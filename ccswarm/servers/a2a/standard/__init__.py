"""A2A as its specification defines it."""
