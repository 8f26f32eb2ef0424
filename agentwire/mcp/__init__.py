"""The Model Context Protocol below any server or client: where clients keep their servers."""
