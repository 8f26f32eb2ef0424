"""How a program that thinks for an agent reaches the agent's tools."""
