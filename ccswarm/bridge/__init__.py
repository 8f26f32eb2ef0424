"""The bridge by which a program that thinks for an agent calls the agent's tools."""
