"""Plain pseudo-terminals, which a holder process keeps open when a daemon ends."""
