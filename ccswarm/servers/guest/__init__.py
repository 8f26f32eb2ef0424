"""The tools of an agent, for the program that decides for it."""
