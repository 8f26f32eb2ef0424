"""A verb of ai_session, as on a machine on which only Landlock can be had."""

from __future__ import annotations

from ai_session.__main__ import main
from tests.ai_session.escape.without_namespaces import install

install(without_landlock=False)
main()
