"""What of a workspace is protected from boxes, and what appeared there meanwhile."""
