"""Panes of a private tmux server, driven in control mode."""
