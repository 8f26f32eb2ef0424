"""``python -m tests.ai_session.support.oauth_writer FILE`` creates grants and refreshes tokens without end.

After each, it prints a line with the access token and the refresh token that are valid then.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from sqlite3 import Connection

from ai_session.http.oauth import grants
from ai_session.http.oauth.grants import CodeRedemption, GrantRequest, Issued, TokenLifetimes
from ai_session.http.oauth.store import Store

LIVES = TokenLifetimes(3600, 86_400)
VERIFIER = "v" * 43
CHALLENGE = "7w_YNF9DSfIdPf_pRjSq646_kPr-2-o9NAl16JGghdM"
WISH = GrantRequest("c_1", "Writer", "alice", ("sessions:read",), "http://127.0.0.1/mcp")


def begun(db: Connection) -> Issued:
    now = time.time()
    grant = grants.open_grant(db, now, WISH)
    code = grants.issue_code(db, now, grant, "http://127.0.0.1/", False, CHALLENGE)
    shown = CodeRedemption(code, WISH.client_id, "", VERIFIER)
    return grants.redeem_code(db, now, LIVES, shown, refresh=True)


def renewed(db: Connection, token: str) -> Issued:
    return grants.refresh(db, time.time(), LIVES, token, WISH.client_id, WISH.resource, None)


def main() -> None:
    with Store(Path(sys.argv[1])) as store:
        while True:
            issued = store.do(begun)
            for _ in range(3):
                print(issued.access_token, issued.refresh_token, flush=True)
                issued = store.do(lambda db, token=issued.refresh_token: renewed(db, token))


if __name__ == "__main__":
    main()
