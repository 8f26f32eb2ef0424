"""Orchestre's tools: analysis, plans, research, review, starters."""
