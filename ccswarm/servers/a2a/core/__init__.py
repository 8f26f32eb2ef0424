"""What both profiles of A2A share: HTTP, tasks, contexts."""
