"""The proxy inside a box's network: names, addresses, the way in."""
