"""Agents that follow steps that a person wrote."""
