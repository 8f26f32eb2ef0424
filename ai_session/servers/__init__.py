"""EXTENSION POINT: servers, which turn a client's bytes into tool calls."""
