"""Where runs are kept and executed: one file each."""
