"""Extension point: the sets of tools of the MCP server, the swarm's own and Orchestre's."""
