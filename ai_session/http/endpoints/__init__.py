"""Extension point: what a front serves. MCP over Streamable HTTP, and JSON-RPC."""
