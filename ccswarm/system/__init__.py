"""What the operating system says of files, paths and signals; text as people may see it."""
