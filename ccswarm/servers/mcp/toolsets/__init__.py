"""The tools of the MCP server: the swarm's own, and Orchestre's."""
