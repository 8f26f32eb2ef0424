"""Settings and the files they come from."""
