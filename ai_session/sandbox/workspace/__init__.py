"""What is protected from boxes in a workspace, and notices of what appears there."""
