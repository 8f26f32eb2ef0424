"""What the operating system reports about processes, files, paths and terminals; fair shares of limited resources."""
