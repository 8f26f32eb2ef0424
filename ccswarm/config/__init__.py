"""Settings and the files they come from, which are used only in the version a person approved."""
