"""Durable runs in SQLite or PostgreSQL, by DBOS."""
