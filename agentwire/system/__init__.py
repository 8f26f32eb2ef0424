"""Paths, programs and peers as the operating system and careless file systems see them."""
