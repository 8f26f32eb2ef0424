"""The swarm as an MCP server."""
