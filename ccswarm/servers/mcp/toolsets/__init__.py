"""What the MCP server offers: the swarm's own tools, and Orchestre's."""
