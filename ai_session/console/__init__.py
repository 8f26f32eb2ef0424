"""The console: a page in the person's browser, served by a process of its own that speaks the protocol for people's
programs."""
