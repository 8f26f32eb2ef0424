"""Suites of small tasks, done by agents in repositories of their own and judged by gates."""
