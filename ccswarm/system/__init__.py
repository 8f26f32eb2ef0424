"""Files, paths and signals, and the processes that use them."""
