"""A person's project: its tree, its sources, edits to them."""
