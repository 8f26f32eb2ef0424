"""The protocol of people's programs on the daemon's socket."""
