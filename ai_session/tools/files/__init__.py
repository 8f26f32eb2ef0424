"""Files of a workspace, read and changed without leaving it."""
