"""A run, its tasks and the agent at each: durable, scheduled, reviewed."""
