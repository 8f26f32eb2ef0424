"""Access to the daemon's socket: the relay for MCP clients, connections for verbs. Standard library only."""
