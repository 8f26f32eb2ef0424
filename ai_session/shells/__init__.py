"""Extension point: shells, which run in sessions; one file per shell, with its integration script next to it."""
