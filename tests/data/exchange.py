"""Sends what is on standard input to a port of this machine as that user, and prints all that is answered."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - of a host name; that user may not read the libraries
import sys

from tests.support.strangers import as_that_user, exchange

user, host, port, over = sys.argv[1:]
data = sys.stdin.buffer.read()
as_that_user(int(user))
sys.stdout.buffer.write(exchange((host, int(port)), data, over=over == "over"))
