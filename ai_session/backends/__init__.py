"""Where a terminal lives: one file per backend."""
