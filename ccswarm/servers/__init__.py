"""The servers by which other programs reach the swarm."""
