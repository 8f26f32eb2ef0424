"""Bytes of a terminal as text, positions, marks and pictures. Knows no process."""
