"""One terminal with its shell, from being opened to being closed; all of them, and who sees which."""
