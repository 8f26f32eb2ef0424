"""The console: a page in the person's browser, from its own process, which is a client of the daemon."""
