"""A verb of ai_session, as on a system that does not tell whose connections are."""

from __future__ import annotations

from ai_session.__main__ import main
from tests.support.strangers import ask_of_no_sockets

ask_of_no_sockets()
main()
