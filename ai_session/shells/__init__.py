"""The shells that a session can run: one file per shell, with its integration script next to it."""
