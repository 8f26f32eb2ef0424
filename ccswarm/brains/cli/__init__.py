"""Agents of other programs: Claude Code, Codex, Gemini CLI."""
