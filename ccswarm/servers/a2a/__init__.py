"""Agent2Agent: the standard protocol and AgentVault's dialect."""
