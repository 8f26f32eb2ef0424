"""Bytes of a terminal as text, marks, screens and recordings. It knows no processes."""
