"""Ways in: what other programs reach the swarm by."""
