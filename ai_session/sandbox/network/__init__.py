"""The proxy inside a box's network: allowed names and addresses, TLS names, and how the proxy gets into the box."""
