"""What ai_session and ccswarm both need; it depends on neither of them and knows nothing of terminals or swarms."""
