"""Extension point: brains, which decide an agent's next step; one file per brain."""
