"""Boxes that the kernel keeps: levels, arguments, filters, and what lies beside a box."""
