"""A2A as its specification has it."""
