"""Agents that think by asking a model."""
