"""Sandboxes enforced by the kernel: levels, arguments, filters, network, and what is protected in a workspace."""
