"""A run, its tasks and an agent at each: durable, scheduled, reviewed."""
