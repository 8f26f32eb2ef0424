"""The tools that start, follow and stop runs."""
