"""The chained record of every call and its result, and its comparison with a server's audit log."""
