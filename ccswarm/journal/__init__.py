"""What was called and what came of it, chained; joined with a server's audit log."""
