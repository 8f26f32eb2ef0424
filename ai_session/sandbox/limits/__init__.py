"""Limits on what all processes of a box use together, enforced by a cgroup or by polling."""
