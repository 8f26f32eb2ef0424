"""AgentVault's dialect of A2A."""
