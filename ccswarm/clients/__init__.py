"""Clients of tool servers: one file for each protocol."""
