"""The frame of a command line: verbs read quickly, shown by typer, tables."""
