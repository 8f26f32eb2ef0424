"""Orchestrates agents over MCP servers."""

__version__ = "0.1.0"
