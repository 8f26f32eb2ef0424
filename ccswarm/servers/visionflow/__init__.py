"""VisionFlow's protocol: swarms, agents and tasks over TCP."""
