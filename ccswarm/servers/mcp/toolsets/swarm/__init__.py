"""Tools that start, follow and stop runs."""
