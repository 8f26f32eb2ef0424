"""The server name is read from real hellos, whole or cut in any way; nothing else is taken for one."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.sandbox.network.tls_hello import Incomplete, NotHello, server_name


def hello(name: str | None, **options: ssl.TLSVersion) -> bytes:
    """What this Python's TLS says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for option, value in options.items():
        setattr(context, option, value)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


HELLO = hello("Files.pythonhosted.org")


def records(message: bytes, *sizes: int) -> bytes:
    """The handshake message of a hello in several records."""
    data, at = b"", 0
    for size in (*sizes, len(message) - sum(sizes)):
        data += b"\x16\x03\x01" + size.to_bytes(2, "big") + message[at : at + size]
        at += size
    return data


def rebuilt(extensions: list[tuple[int, bytes]], tail: bytes = b"") -> bytes:
    """A hello with these extensions and nothing else."""
    body = b"".join(kind.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data for kind, data in extensions)
    inner = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(body).to_bytes(2, "big") + body + tail
    return records(b"\1" + len(inner).to_bytes(3, "big") + inner)


def named(*names: bytes, kind: int = 0) -> bytes:
    entries = b"".join(bytes((kind,)) + len(name).to_bytes(2, "big") + name for name in names)
    return len(entries).to_bytes(2, "big") + entries


def test_the_name_of_a_hello() -> None:
    assert server_name(HELLO) == "files.pythonhosted.org"
    assert server_name(hello("a.org", maximum_version=ssl.TLSVersion.TLSv1_2)) == "a.org"
    assert server_name(hello(None)) is None
    assert server_name(rebuilt([(0, named(b"A.org"))])) == "a.org"
    assert server_name(HELLO + b"more") == "files.pythonhosted.org"


def test_a_hello_that_is_cut_is_waited_for() -> None:
    for end in range(len(HELLO)):
        with pytest.raises(Incomplete):
            server_name(HELLO[:end])


@given(st.lists(st.integers(1, 60), max_size=6))
def test_a_hello_may_lie_in_several_records(sizes: list[int]) -> None:
    assert server_name(records(HELLO[5:], *sizes)) == "files.pythonhosted.org"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x\r\n",
        b"\x80\x2e\1\3\1",
        b"\x15\3\1\0\2\2\x28",
        b"\x17" + HELLO[1:],
        b"\x16\3\1\0\0" + HELLO,
        b"\x16\3\1\xff\xff" + HELLO[5:],
        HELLO[:5] + b"\2" + HELLO[6:],
        rebuilt([(0, named(b"a.org")), (0, named(b"b.org"))]),
        rebuilt([(0, named(b"a.org", b"b.org"))]),
        rebuilt([(0, named(b"a.org", kind=1))]),
        rebuilt([(0, named(b"a.org") + b"x")]),
        rebuilt([(0, b"\0\x20\0\0\5a.org")]),
        rebuilt([(0, named(b"\xff.org"))]),
        rebuilt([(0, named(b"a.org"))], b"tail"),
        records(HELLO[5:] + b"\1\0\0\0"),
    ],
)
def test_what_is_no_hello_or_can_be_read_in_two_ways(data: bytes) -> None:
    with pytest.raises(NotHello):
        server_name(data)


@given(st.binary(max_size=600), st.booleans(), st.integers(0, len(HELLO)))
def test_any_bytes_are_judged(data: bytes, whole: bool, at: int) -> None:
    data = data if whole else HELLO[:at] + data[: len(HELLO) - at] + HELLO[at + len(data) :]
    try:
        name = server_name(data)
    except (Incomplete, NotHello):
        return
    assert name is None or name.encode() in data.lower()
