"""What ai_session and ccswarm both need and neither owns: it knows no terminal, no swarm, and neither of them."""
