"""Paths, programs and peers as the operating system and lenient file systems see them."""
