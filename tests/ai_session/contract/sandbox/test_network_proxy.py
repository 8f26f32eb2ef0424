"""The proxy of a box carries what is listed, says why it does not carry the rest, and dials what it judged."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from ai_session.sandbox.network.connection import HEAD_BYTES
from ai_session.sandbox.network.entry import environment
from ai_session.sandbox.network.proxy import EVENTS_WHOLE
from tests.ai_session.support.networks import BOUND_SECONDS, NAME, Names, origin, proxied, refusal, request

pytestmark = pytest.mark.anyio


async def test_a_tunnel_to_a_listed_name(home: Path) -> None:
    async with origin(home) as server, proxied([NAME, f"*.{NAME}"], [server.tls_port]) as way:
        assert await way.get(NAME, server, "/a") == b"GET /a HTTP/1.1"
        assert await way.get(f"files.{NAME}", server, "/b") == b"GET /b HTTP/1.1"
        assert way.reported == [("net.allow", NAME), ("net.allow", f"files.{NAME}")]
        assert way.events[0] == {
            "kind": "net.allow",
            "host": NAME,
            "port": server.tls_port,
            "method": "CONNECT",
            "address": "127.0.0.1",
            "count": 1,
        }


async def test_a_name_is_compared_in_lower_case_and_without_its_last_dot(home: Path) -> None:
    async with origin(home) as server, proxied([NAME], [server.tls_port]) as way:
        status, _, writer = await way.connect("ORIGIN.Test.", server.tls_port)
        writer.close()
        assert status.startswith(b"HTTP/1.1 200")
        assert way.names.asked == [NAME]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("evil.org", "evil.org is not on this session's list of allowed domains"),
        ("evilorigin.test", "evilorigin.test is not on this session's list of allowed domains"),
        ("origin.test.evil.org", "origin.test.evil.org is not on this session's list of allowed domains"),
        ("127.0.0.1", "127.0.0.1 is an address, not a name"),
        ("127.1", "127.1 is an address, not a name"),
        ("0x7f.1", "0x7f.1 is an address, not a name"),
        ("2130706433", "2130706433 is an address, not a name"),
        ("[::1]", "not a plain host name"),
        ("[::ffff:127.0.0.1]", "not a plain host name"),
        ("evil.org%00.origin.test", "not a plain host name"),
        ("me@origin.test", "not a plain host name"),
        ("origin.test..", "not a plain host name"),
        ("\xe4.origin.test", "not a request: illegal request line"),
        ("evil.org\0.origin.test", "not a request: illegal request line"),
        ("", "not a plain host name"),
    ],
)
async def test_a_tunnel_elsewhere_is_refused_with_the_reason(host: str, reason: str) -> None:
    async with proxied([NAME, f"*.{NAME}"], [443]) as way:
        assert refusal(await way.send(request(f"{host}:443", method="CONNECT"))) == (b"403", reason)
        assert way.names.asked == []
        assert way.reported == [("net.deny", reason)]


@pytest.mark.parametrize("target", [f"{NAME}:80", f"{NAME}:22", f"{NAME}:0", f"{NAME}:", NAME, f"{NAME}:443443"])
async def test_a_tunnel_to_another_port_is_refused(target: str) -> None:
    async with proxied([NAME], [443]) as way:
        status, reason = refusal(await way.send(request(target, method="CONNECT")))
        assert status == b"403"
        assert "port" in reason
        assert len(way.events) == 1
        assert way.names.asked == []


async def test_an_empty_list_is_nothing() -> None:
    async with proxied([], [443, 80]) as way:
        for sent in (request(f"{NAME}:443", method="CONNECT"), request(f"http://{NAME}/")):
            assert refusal(await way.send(sent))[0] == b"403"
        assert way.names.asked == []


async def test_a_name_that_leads_inside_is_refused() -> None:
    inside = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1")
    async with proxied([NAME], [443], Names([inside]), private=()) as way:
        status, reason = refusal(await way.send(request(f"{NAME}:443", method="CONNECT")))
        assert (status, reason) == (b"403", f"{NAME} resolves to no public address")


async def test_a_name_is_resolved_once_and_that_address_dialled(home: Path) -> None:
    """A name that answers with a harmless address first and with another one afterwards gains nothing."""
    async with origin(home) as server:
        names = Names([("127.0.0.1",), ("127.0.0.2",)])
        async with proxied([NAME], [server.tls_port], names) as way:
            assert await way.get(NAME, server) == b"GET / HTTP/1.1"
            assert names.asked == [NAME]
            status, _, writer = await way.connect(NAME, server.tls_port)
            writer.close()
            assert status.startswith(b"HTTP/1.1 403")


async def test_only_the_public_ones_of_several_addresses_are_dialled(home: Path) -> None:
    async with origin(home) as server:
        names = Names([("10.0.0.1", "127.0.0.2", "127.0.0.1")])
        async with proxied([NAME], [server.tls_port], names) as way:
            assert await way.get(NAME, server) == b"GET / HTTP/1.1"
            assert way.events[0]["address"] == "127.0.0.1"


async def test_tls_must_ask_for_the_name_of_the_tunnel(home: Path) -> None:
    async with origin(home) as server, proxied([NAME, f"*.{NAME}"], [server.tls_port]) as way:
        for other in (f"other.{NAME}", "evil.org"):
            with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
                await way.get(NAME, server, sni=other)
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            await way.get(NAME, server, sni="")
        assert server.received == []
        assert way.reported == [
            ("net.deny", f"TLS asks for {name}, the tunnel is for {NAME}")
            for name in (f"other.{NAME}", "evil.org", "no name")
        ]


async def test_a_listed_address_needs_no_name(home: Path) -> None:
    async with origin(home) as server, proxied(["127.0.0.1"], [server.tls_port]) as way:
        assert await way.get("127.0.0.1", server) == b"GET / HTTP/1.1"


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", b"\x16\3\1\0\x04\2\0\0\0", b""])
async def test_a_tunnel_carries_nothing_but_tls(home: Path, first: bytes) -> None:
    async with origin(home) as server, proxied([NAME], [server.port]) as way:
        _, reader, writer = await way.connect(NAME, server.port)
        writer.write(first)
        writer.write_eof()
        async with asyncio.timeout(BOUND_SECONDS):
            assert (await reader.read())[:1] == b"\x15"
        writer.close()
        assert server.received == []
        assert way.events[0]["kind"] == "net.deny"


async def test_a_hello_may_come_byte_by_byte_and_with_the_request(home: Path) -> None:
    async with origin(home) as server, proxied([NAME], [server.tls_port]) as way:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(server.certificate))
        with pytest.raises(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing, server_hostname=NAME).do_handshake()
        hello = outgoing.read()
        head = request(f"{NAME}:{server.tls_port}", method="CONNECT")
        for first, rest in ((head + hello, b""), (head + hello[:7], hello[7:]), (head[:9], head[9:] + hello)):
            reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
            writer.write(first)
            await writer.drain()
            for byte in rest:
                writer.write(bytes((byte,)))
            async with asyncio.timeout(BOUND_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
                assert (await reader.read(1)) == b"\x16"
            writer.close()


async def test_ssh_is_carried_where_its_port_is_listed() -> None:
    """Its server may speak first, so nothing is looked at."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-test\r\n" + await reader.readline())
        writer.close()

    # The kernel lets root listen on port 22 of an address nobody uses, whatever listens on another.
    async with await asyncio.start_server(speak, "127.0.0.77", 22):
        names = Names([("127.0.0.77",)])
        async with proxied([NAME], [22], names, private=["127.0.0.77"]) as way:
            _, reader, writer = await way.connect(NAME, 22)
            writer.write(b"SSH-2.0-client\r\n")
            async with asyncio.timeout(BOUND_SECONDS):
                assert await reader.read() == b"SSH-2.0-test\r\nSSH-2.0-client\r\n"
            writer.close()


async def test_plain_http_requests_are_rewritten(home: Path) -> None:
    async with origin(home) as server, proxied([NAME], [server.port]) as way:
        headers = [
            *("Proxy-Authorization: Basic x", "Proxy-Connection: keep-alive", "Connection: keep-alive, X-Hop"),
            *("X-Hop: 1", "Keep-Alive: 5", "Upgrade: websocket", "TE: trailers", "Accept: a", "Cookie: c"),
        ]
        answer = await way.send(request(f"http://{NAME}:{server.port}/a?b=c", *headers))
        assert answer.endswith(b"GET /a?b=c HTTP/1.1")
        lines = server.received[0].decode().split("\r\n")
        assert lines[0] == "GET /a?b=c HTTP/1.1"
        assert [line.lower() for line in sorted(lines[1:]) if line] == [
            *("connection: close", f"host: {NAME}:{server.port}", "accept: a", "cookie: c")
        ]


async def test_bodies_are_carried_whole(home: Path) -> None:
    async with origin(home) as server, proxied([NAME], [server.port]) as way:
        where = f"http://{NAME}:{server.port}/"
        body = b"z" * 300_000
        sent = request(where, f"Content-Length: {len(body)}", method="POST") + body
        assert (await way.send(sent)).endswith(b"POST / HTTP/1.1")
        assert server.received[0].endswith(body)
        chunked = request(where, "Transfer-Encoding: chunked", method="PUT") + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        assert (await way.send(chunked[:-9], chunked[-9:])).endswith(b"PUT / HTTP/1.1")
        assert b"abc\r\n" in server.received[1]
        assert b"de\r\n0\r\n\r\n" in server.received[1]


async def test_a_connection_carries_one_request(home: Path) -> None:
    """A second request could name another host, to the same address."""
    async with origin(home) as server, proxied([NAME], [server.port]) as way:
        where = f"http://{NAME}:{server.port}/"
        two = request(where) + b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n"
        hidden = request(where, "Content-Length: 5", "Transfer-Encoding: chunked", method="POST") + (
            b"0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.org\r\n\r\n"
        )
        for sent in (two, hidden):
            await way.send(sent)
        assert not any(b"evil" in received for received in server.received)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (request("/"), "only http:// URLs are proxied as plain HTTP"),
        (request("*", method="OPTIONS"), "only http:// URLs are proxied as plain HTTP"),
        (request(f"https://{NAME}/"), "only http:// URLs are proxied as plain HTTP"),
        (request(f"http://{NAME}@evil.org/"), "only http:// URLs are proxied as plain HTTP"),
        (request(f"http://me:x@{NAME}/"), "only http:// URLs are proxied as plain HTTP"),
        (request(f"http://{NAME}/a#b"), "only http:// URLs are proxied as plain HTTP"),
        (request("http://[::1]/"), "only http:// URLs are proxied as plain HTTP"),
        (request("http://evil.org/"), "evil.org is not on this session's list"),
        (request(f"http://{NAME}:81/"), "port 81 is not allowed"),
        (request("http:///"), "not a plain host name"),
        (request(f"http://{NAME}\\@evil.org/"), "only http:// URLs are proxied as plain HTTP"),
        (b"\x16\3\1\0\0", "not a request"),
        (b"GET\r\n\r\n", "not a request"),
        (request(f"http://{NAME}/", "A\0B: c"), "not a request"),
        (request(f"http://{NAME}/", "A: " + "x" * HEAD_BYTES), "not a request"),
        (request(f"http://{NAME}/", "Content-Length: 1", "Content-Length: 2"), "not a request"),
        (request(f"http://{NAME}/", "Content-Length: 1", "Transfer-Encoding: chunked"), "not a request"),
        (request(f"http://{NAME}/").replace(b"\r\n", b"\n"), "not a request"),
        (request(f"http://{NAME}/", "A: b", " c"), "not a request"),
        (f"GET http://{NAME}/ HTTP/1.1\r\n\r\n".encode(), "not a request"),
    ],
)
async def test_other_requests_are_refused_with_the_reason(sent: bytes, reason: str) -> None:
    async with proxied([NAME], [80]) as way:
        status, said = refusal(await way.send(sent))
        assert (status, said[: len(reason)]) == (b"403", reason)
        assert way.names.asked == []
        assert len(way.events) == 1


async def test_a_head_or_a_hello_that_does_not_come_ends_the_connection(home: Path) -> None:
    async with origin(home) as server, proxied([NAME], [server.tls_port], head_seconds=0.05) as way:
        assert refusal(await way.send(b"CONNECT ")) == (b"403", "the request's head took too long")
        _, reader, writer = await way.connect(NAME, server.tls_port)
        writer.write(b"\x16\3\1")
        async with asyncio.timeout(BOUND_SECONDS):
            assert (await reader.read())[:1] == b"\x15"
        writer.close()
        assert way.reported[1] == ("net.deny", "no TLS hello came through the tunnel in time")


async def test_an_endless_hello_ends_the_connection(home: Path) -> None:
    async with origin(home) as server, proxied([NAME], [server.tls_port]) as way:
        _, reader, writer = await way.connect(NAME, server.tls_port)
        record = b"\x16\3\1\x10\0" + b"\1\xff\xff\xff" + bytes(4092)
        writer.write(record + (b"\x16\3\1\x10\0" + bytes(4096)) * 8)
        async with asyncio.timeout(BOUND_SECONDS):
            assert await reader.read() != b"\x16"
        writer.close()
        assert way.events[0]["kind"] == "net.deny"


async def test_what_cannot_be_reached_is_said(home: Path) -> None:
    async def unknown(name: str, port: int) -> list[str]:
        raise OSError(f"{name} has no address")

    async with origin(home) as server:
        tunnel = request(f"{NAME}:{server.tls_port}", method="CONNECT")
        async with proxied([NAME], [server.tls_port], resolve=unknown) as way:
            assert refusal(await way.send(tunnel)) == (b"502", f"{NAME} cannot be resolved: {NAME} has no address")
        async with proxied([NAME], [server.tls_port], Names([("127.0.0.9",)]), private=["127.0.0.9"]) as way:
            assert refusal(await way.send(tunnel)) == (b"502", f"{NAME} cannot be reached: Connection refused")
            assert way.events[0]["kind"] == "net.deny"


async def test_names_are_looked_up_where_nobody_else_waits_for_them(home: Path) -> None:
    """With the system's own resolver: localhost is known everywhere, and is no public name."""
    async with origin(home) as server, proxied(["localhost"], [server.tls_port], resolve=None) as way:
        status, _, writer = await way.connect("localhost", server.tls_port)
        writer.close()
        assert status.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("many", [20, pytest.param(100, marks=pytest.mark.torture)])
async def test_many_tunnels_at_once(home: Path, many: int) -> None:
    async with origin(home) as server, proxied([NAME], [server.tls_port]) as way:
        answers = await asyncio.gather(*(way.get(NAME, server, f"/{n}?bytes=20000") for n in range(many)))
        assert [len(answer) for answer in answers] == [
            len(f"GET /{n}?bytes=20000 HTTP/1.1") + 20000 for n in range(many)
        ]
        assert len(server.received) == many


async def test_data_flows_both_ways_until_both_have_ended(home: Path) -> None:
    async with origin(home) as server, proxied([NAME], [server.tls_port]) as way:
        assert len(await way.get(NAME, server, "/?bytes=5000000")) > 5_000_000


async def test_thousands_of_connections_alike_are_told_of_by_their_number() -> None:
    async with proxied([], [443]) as way:
        for _ in range(70):
            await way.send(request("evil.org:443", method="CONNECT"))
        assert [event["count"] for event in way.events] == [*range(1, EVENTS_WHOLE + 1), 32, 64]


async def test_closing_ends_every_connection(home: Path) -> None:
    async def never(name: str) -> bool:
        return await asyncio.Event().wait()

    async with origin(home) as server, proxied([NAME], [server.tls_port], ask=never) as way:
        _, reader, writer = await way.connect(NAME, server.tls_port)
        asking = asyncio.create_task(way.send(request(f"evil.org:{server.tls_port}", method="CONNECT")))
        await asyncio.sleep(0)
        await way.proxy.aclose()
        async with asyncio.timeout(BOUND_SECONDS):
            assert await reader.read() == b""
        writer.close()
        await asyncio.gather(asking, return_exceptions=True)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", way.port)


def test_programs_find_the_proxy_by_either_case() -> None:
    variables = environment()
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        assert variables[name] == variables[name.upper()] == "http://127.0.0.1:3128"
    assert variables["no_proxy"] == variables["NO_PROXY"] == "localhost,127.0.0.1,::1"
