"""The client of MCP servers: stdio and Streamable HTTP, every protocol era, OAuth."""
