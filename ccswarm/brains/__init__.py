"""Who decides the next step of an agent: one file each."""
