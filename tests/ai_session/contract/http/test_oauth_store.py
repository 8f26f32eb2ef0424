"""The store: killed in the middle of writing, used by several at once, full."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ai_session.errors import StorageFull
from ai_session.http.oauth import grants
from ai_session.http.oauth.store import FILE, Refused, Store
from tests.ai_session.support import oauth_writer
from tests.ai_session.support.oauth_writer import LIVES, WISH, begun, renewed
from tests.support import forked
from tests.support.full_disk import no_file_longer_than

ROOT = Path(__file__).parents[4]


@contextmanager
def writer(file: Path) -> Iterator[forked.Forked]:
    process = forked.piped("ai_session", [str(file)], cwd=ROOT, env=os.environ, script=oauth_writer.__file__)
    try:
        yield process
    finally:
        process.close()


def killed(file: Path, lines: int, draw: random.Random) -> list[tuple[str, str]]:
    """What a writer told before it was killed, some time after its ``lines``-th line."""
    with writer(file) as process:
        assert process.stdout is not None
        reported = [process.stdout.readline() for _ in range(lines)]
        for _ in range(draw.randrange(20_000)):
            pass  # so that it dies anywhere in what comes next
        process.kill()
        reported += process.stdout.readlines()
    whole = [line.decode().split() for line in reported if line.endswith(b"\n")]
    return [(access, refresh) for access, refresh in whole]


def check(file: Path, reported: list[tuple[str, str]]) -> None:
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    with Store(file) as store:
        now = time.time()
        for access, _ in reported:
            assert store.do(lambda db, token=access: grants.verify(db, now, token)), "what was told holds"


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.torture)])
def test_killed_while_it_writes(tmp_path: Path, seed: int) -> None:
    file, draw, reported = tmp_path / FILE, random.Random(seed), []
    for _ in range(2):
        reported += killed(file, draw.randrange(1, 12), draw)
        check(file, reported)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10, 40))
def test_killed_while_it_writes_many_times(tmp_path: Path, seed: int) -> None:
    file, draw, reported = tmp_path / FILE, random.Random(seed), []
    for _ in range(4):
        reported += killed(file, draw.randrange(1, 30), draw)
        check(file, reported)


def test_several_processes_at_once(tmp_path: Path) -> None:
    file = tmp_path / FILE
    Store(file).close()
    with writer(file) as one, writer(file) as other:
        assert one.stdout is not None
        assert other.stdout is not None
        assert [stream.readline().count(b"ais_") for stream in (one.stdout, other.stdout) for _ in range(3)] == [2] * 6
        with Store(file) as store:
            access = store.do(begun).access_token
            assert store.do(lambda db: grants.verify(db, time.time(), access))


def test_one_of_many_gets_a_refresh_token_turned(tmp_path: Path) -> None:
    """By as many connections as there are tries."""
    file = tmp_path / FILE
    with Store(file) as store:
        token = store.do(begun).refresh_token

    def turned(_: int) -> bool:
        with Store(file) as store:
            try:
                store.do(lambda db: renewed(db, token))
            except Refused:
                return False
            return True

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(turned, range(4))) <= 1
    with Store(file) as store:
        assert store.do(lambda db: grants.listed(db, time.time())) == [], "the family ended"


def test_a_full_disk_is_reported_and_nothing_is_half_done(tmp_path: Path) -> None:
    file = tmp_path / FILE
    with Store(file) as store:
        before = store.do(begun)
        with no_file_longer_than(file.stat().st_size), pytest.raises(StorageFull):
            store.do(lambda db: [begun(db) for _ in range(200)])
        assert store.do(lambda db: grants.verify(db, time.time(), before.access_token))
        store.do(begun)
    check(file, [(before.access_token, before.refresh_token)])


def test_what_is_over_is_forgotten_and_what_holds_is_not(tmp_path: Path) -> None:
    with Store(tmp_path / FILE) as store:
        access = store.do(begun).access_token
        now = time.time()
        store.do(lambda db: grants.sweep(db, now))
        assert store.do(lambda db: grants.verify(db, now, access))
        later = now + 3 * 86_400
        store.do(lambda db: grants.sweep(db, later))
        rows = store.do(
            lambda db: [db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("grants", "codes", "tokens")]
        )
        assert rows == [0, 0, 0]


def test_machines_have_one_grant_however_often_they_ask(tmp_path: Path) -> None:
    with Store(tmp_path / FILE) as store:
        issued = [store.do(lambda db: grants.machine_token(db, time.time(), LIVES, WISH)) for _ in range(3)]
        assert len({each.grant_id for each in issued}) == 1
        assert len({each.access_token for each in issued}) == 3
