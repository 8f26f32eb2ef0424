"""Questions about ai-session, answered from its own documentation."""
