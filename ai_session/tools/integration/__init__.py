"""Integrates ai-session into people's projects."""
