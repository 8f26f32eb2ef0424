"""The process that serves one user: it builds the gate from settings and listens on a socket."""
