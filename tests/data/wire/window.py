"""A client in another window, which hands its streams to the server that it starts, loaded as it is.

What it starts is not among its words: programs that carry them are taken for a part of the server, and whoever started
those for its client.
"""

import os
import sys

from tests.support.forked import become
from tests.support.forked_holders import name_it

name_it([sys.executable, __file__], os.environ)
server = os.fork()
if server == 0:
    os.setpgid(0, 0)
    become("ai_session", [sys.executable, "-m", "ai_session", "mcp-server", "--stdio"], dict(os.environ))
for fd in (0, 1, 2):
    os.close(fd)
os._exit(os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]) % 256)
