"""The Python API: sessions and commands of the user's daemon for programs, blocking or awaited.

Every call passes the daemon's gate like an agent's: policy, sandbox and audit apply to programs, too.
"""
