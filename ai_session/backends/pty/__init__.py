"""Plain pseudo-terminals, kept by a holder process while daemons come and go."""
