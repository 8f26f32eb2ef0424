"""What the operating system says of processes, files, paths and terminals; turns and shares of what there is."""
