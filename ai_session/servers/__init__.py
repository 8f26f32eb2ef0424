"""Extension point: servers, which turn a client's bytes into tool calls."""
