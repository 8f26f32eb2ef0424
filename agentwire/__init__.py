"""The code that ai_session and ccswarm share; it depends on neither and knows nothing of terminals or swarms."""
