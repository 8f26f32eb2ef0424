"""What a collector is told of calls, where one is set."""
