"""Programs that register themselves: how many, and with what they are turned away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ai_session.http.oauth.authority import PER_MINUTE
from ai_session.http.oauth.clients import MAX_REGISTERED, SIGN_IN_SECONDS
from tests.ai_session.support.oauth_servers import CALLBACK, Front, opened, stored

pytestmark = pytest.mark.anyio


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with opened(tmp_path) as made:
        yield made


async def test_a_flood_of_registrations(front: Front) -> None:
    async with front.client() as http:
        statuses = [
            (await http.post("/register", json={"redirect_uris": [CALLBACK]})).status_code
            for _ in range(PER_MINUTE["registrations"] + 1)
        ]
        assert statuses == [201] * PER_MINUTE["registrations"] + [429]
        answer = await http.post("/register", json={"redirect_uris": [CALLBACK]})
        assert int(answer.headers["retry-after"]) >= 1


async def test_registrations_have_an_end_and_unused_ones_are_forgotten(front: Front) -> None:
    def fill(db: Any) -> None:
        for number in range(MAX_REGISTERED):
            db.execute(
                "INSERT INTO clients VALUES (?, 'registered', '', '', 'none', '[]', '', '', ?, NULL)",
                (f"c_{number}", front.clock()),
            )

    await stored(front, fill)
    async with front.client() as http:
        answer = await http.post("/register", json={"redirect_uris": [CALLBACK]})
        assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
        front.clock.now += SIGN_IN_SECONDS + 1
        assert (await http.post("/register", json={"redirect_uris": [CALLBACK]})).status_code == 201
        kept = await stored(front, lambda db: [name for (name,) in db.execute("SELECT client_id FROM clients")])
        assert len(kept) == MAX_REGISTERED
        assert len([name for name in kept if name.removeprefix("c_") in map(str, range(MAX_REGISTERED))]) == 999
        front.clock.now += 86_401
        assert (await http.post("/register", json={"redirect_uris": [CALLBACK]})).status_code == 201
    assert await stored(front, lambda db: db.execute("SELECT count(*) FROM clients").fetchone()[0]) == 1


def test_nobody_registers_faster_than_there_is_room() -> None:
    assert PER_MINUTE["registrations_of_all"] * (1 + SIGN_IN_SECONDS / 60) < MAX_REGISTERED


@pytest.mark.parametrize(
    "facts",
    [
        {"redirect_uris": []},
        {"redirect_uris": "http://127.0.0.1/"},
        {"redirect_uris": ["http://evil.example/callback"]},
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": ["data:text/html,x"]},
        {"redirect_uris": ["https://a.example/x#fragment"]},
        {"redirect_uris": ["https://user@a.example/x"]},
        {"redirect_uris": ["https://a.example/\nx"]},
        {"redirect_uris": ["https:///nohost"]},
        {"redirect_uris": [f"https://a.example/{number}" for number in range(11)]},
        {"redirect_uris": ["https://a.example/" + "x" * 2000]},
        {"redirect_uris": [CALLBACK, 7]},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"grant_types": ["client_credentials"]},
        {"grant_types": "authorization_code"},
        {"response_types": ["token"]},
    ],
)
async def test_registrations_that_are_not_taken(front: Front, facts: dict[str, Any]) -> None:
    async with front.client() as http:
        answer = await http.post("/register", json={"redirect_uris": [CALLBACK], **facts})
    assert answer.status_code == 400
    assert answer.json()["error"] in ("invalid_redirect_uri", "invalid_client_metadata")
