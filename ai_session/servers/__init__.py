"""Ways in: how a peer's bytes become a tool call."""
