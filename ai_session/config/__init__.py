"""Settings and the files they come from; extensions by name."""
