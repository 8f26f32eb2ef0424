"""Files that several processes make at the same moment."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest

from agentwire.cli import client_files
from agentwire.mcp.clients import ConfigLocation, entry, read
from agentwire.system import whole_files

AT_ONCE = 8


def test_of_several_who_make_a_file_one_does_and_all_find_the_same(tmp_path: Path) -> None:
    file, met = tmp_path / "key", Barrier(AT_ONCE)

    def make(number: int) -> bytes:
        met.wait()
        with suppress(FileExistsError):
            whole_files.create(file, b"%d" % number * 5000)
        return file.read_bytes()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = set(threads.map(make, range(AT_ONCE)))
    assert len(found) == 1
    assert len(found.pop()) == 5000
    assert [path.name for path in tmp_path.iterdir()] == ["key"], "nothing else is left"
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_replaced_is_there_whole_and_a_link_is_not_followed(tmp_path: Path) -> None:
    file, other = tmp_path / "link", tmp_path / "other"
    other.write_bytes(b"theirs")
    file.symlink_to(other)
    with pytest.raises(FileExistsError):
        whole_files.create(file, b"ours")
    whole_files.replace(file, b"ours", 0o640)
    assert (file.read_bytes(), other.read_bytes(), file.is_symlink()) == (b"ours", b"theirs", False)

    file.chmod(0o604)
    assert not whole_files.exchange(file, b"late", lambda: file.read_bytes() == b"before")
    assert file.read_bytes() == b"ours"
    assert whole_files.exchange(file, b"new", lambda: file.read_bytes() == b"ours")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o604)

    with pytest.raises(IsADirectoryError):
        whole_files.replace(tmp_path, b"")
    assert sorted(os.listdir(tmp_path)) == ["link", "other"]


def test_no_entry_of_a_clients_file_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def location(name: str) -> ConfigLocation:
        return ConfigLocation(name, "cursor", "user", tmp_path / "made/mcp.json", ("mcpServers",), {})

    names, met = [f"server{number}" for number in range(AT_ONCE)], Barrier(AT_ONCE)

    def add(name: str) -> None:
        met.wait()
        client_files.add(location(name), (name, []), "work", show=False, dry_run=False, as_json=True)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(add, names))
    assert all(entry(location(name), read(location(name))) == {"command": name, "args": []} for name in names)
    assert capsys.readouterr().out.count('"changed": true') == AT_ONCE
