"""What the operating system says of files, paths and signals."""
