"""Files of a workspace, read and written without leaving it."""
