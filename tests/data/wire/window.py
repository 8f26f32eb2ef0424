"""A client in another window, which hands its streams to the server it starts. What it starts is not among its words:
programs that carry them are taken for a part of the server, and whoever started those for its client."""

import subprocess
import sys

sys.exit(subprocess.call([sys.executable, "-m", "ai_session", "mcp-server", "--stdio"], process_group=0))
