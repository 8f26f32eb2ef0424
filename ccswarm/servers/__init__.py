"""Extension point: servers, by which other programs reach the swarm; one file or package per protocol."""
