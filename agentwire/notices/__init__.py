"""Notices for a person who is elsewhere: by a program of theirs, on the desktop, to a URL."""
