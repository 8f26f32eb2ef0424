"""What the front serves: MCP over Streamable HTTP, and JSON-RPC."""
