"""The operating system's view of processes, files, paths and terminals; fair shares of limited resources."""
