"""Real, persistent terminals that AI agents and people share.

Importing the package costs nothing: the relay, which every MCP client starts, must answer in milliseconds.
"""

__version__ = "0.1.0"
