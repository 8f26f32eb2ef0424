"""What a person is told who is elsewhere: by a program of theirs, on the desktop, at an address."""
