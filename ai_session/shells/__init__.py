"""Which shell runs in it: one file per shell, with its integration script beside it."""
