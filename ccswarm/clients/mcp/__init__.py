"""The Model Context Protocol as a client: stdio and Streamable HTTP, every era, OAuth."""
