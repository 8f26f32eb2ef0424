"""The Python API: sessions and commands of the user's daemon for people's programs, blocking or awaited.

Every call goes through the daemon's gate as an agent's does: policy, sandbox and audit hold for programs too.
"""
