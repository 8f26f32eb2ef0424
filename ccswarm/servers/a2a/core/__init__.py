"""What both dialects of A2A share: HTTP, tasks, contexts."""
