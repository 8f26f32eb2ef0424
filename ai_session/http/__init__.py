"""The HTTP front: a process of its own that reaches the gate over the daemon's socket."""
