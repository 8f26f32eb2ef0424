"""Suites of small tasks that agents do in repositories of their own, judged by gates."""
