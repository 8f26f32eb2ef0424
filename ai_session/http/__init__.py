"""What is served over HTTP: the front and the console, processes of their own that reach the daemon by its socket."""
