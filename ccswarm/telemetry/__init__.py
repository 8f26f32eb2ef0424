"""What a collector is told of runs, where one is set."""
