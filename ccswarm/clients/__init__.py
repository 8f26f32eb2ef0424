"""Extension point: clients of tool servers; one file per protocol."""
