"""Engines that store and execute runs, one file each."""
