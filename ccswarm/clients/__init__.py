"""Ways out to a tool server: one file each."""
