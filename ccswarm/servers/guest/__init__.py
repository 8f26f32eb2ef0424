"""The tools of one agent, for the program that thinks for it."""
