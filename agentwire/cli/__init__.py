"""The frame of a command line: verbs that are parsed quickly, their help by typer, and tables."""
