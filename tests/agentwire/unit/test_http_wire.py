"""Requests as they are read: strictly, in any pieces; and who may make them."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwire.http.wire import Site, StrictConnection, host_of, is_passed_on, tokens_in
from tests.support.browser_bytes import Target, by_pages, by_smugglers

TARGET = Target(8080, "/rpc", b'{"jsonrpc":"2.0","id":1,"method":"do"}')
SITE = Site({"127.0.0.1", "localhost", "::1"}, origins={"https://app.example"}, pages={"/authorize"}, forms={"/token"})
SMUGGLED, PAGES = by_smugglers(TARGET), by_pages(TARGET)


def read(data: bytes, piece: int = 0) -> list[object]:
    """The events in these bytes, in pieces of so many. Raises RemoteProtocolError."""
    connection, found = StrictConnection(1 << 16), list[object]()
    for start in range(0, len(data), piece or len(data)):
        connection.receive_data(data[start : start + (piece or len(data))])
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            found.append(event)
    return found


def refused(data: bytes, piece: int = 0) -> bool:
    """Whether the first request of these bytes reaches no handler, be it for its form or for who makes it."""
    try:
        events = read(data, piece)
    except h11.RemoteProtocolError:
        return True
    request = next(event for event in events if isinstance(event, h11.Request))
    path = request.target.decode().partition("?")[0]
    headers = list(request.headers)
    scope = {"method": request.method.decode(), "scheme": "http", "path": path, "headers": headers}
    return SITE.refusal(scope) is not None


@pytest.mark.parametrize("piece", [0, 1, 7])
def test_what_a_program_writes_is_read_whole(piece: int) -> None:
    request, *data, end = read(TARGET.allowed(), piece)
    assert isinstance(request, h11.Request)
    assert b"".join(each.data for each in data if isinstance(each, h11.Data)) == TARGET.body
    assert isinstance(end, h11.EndOfMessage)
    assert not refused(TARGET.allowed(), piece)


@pytest.mark.parametrize("piece", [0, 1, 7])
@pytest.mark.parametrize("name", SMUGGLED)
def test_what_can_be_read_in_two_ways_is_not_read(name: str, piece: int) -> None:
    assert refused(SMUGGLED[name], piece)


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_sends_reaches_no_handler(name: str) -> None:
    assert refused(PAGES[name])


def test_two_heads_after_each_other_are_both_read_strictly() -> None:
    connection = StrictConnection(1 << 16)
    connection.receive_data(TARGET.allowed(Connection="keep-alive") + SMUGGLED["bare LF"])
    while connection.next_event() is not h11.PAUSED:
        pass
    for event in (h11.Response(status_code=200, headers=[(b"content-length", b"0")]), h11.EndOfMessage()):
        connection.send(event)
    connection.start_next_cycle()
    with pytest.raises(h11.RemoteProtocolError, match="CR LF"):
        connection.next_event()


def test_a_head_that_never_ends_is_refused_as_soon_as_it_is_wrong_or_too_long() -> None:
    for data in (b"GET / HTTP/1.1\nHost", b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (1 << 17)):
        with pytest.raises(h11.RemoteProtocolError):
            read(data, 1 << 12)


@given(st.binary(min_size=1, max_size=200))
def test_of_any_bytes_at_most_whole_requests_come(data: bytes) -> None:
    try:
        found = read(data)
    except h11.RemoteProtocolError:
        return
    assert all(isinstance(event, h11.Request | h11.Data | h11.EndOfMessage | h11.ConnectionClosed) for event in found)


def test_a_proxy_is_asked_for_other_hosts() -> None:
    connection = StrictConnection(1 << 16, proxy=True)
    connection.receive_data(b"CONNECT pypi.org:443 HTTP/1.1\r\nHost: pypi.org:443\r\n\r\n")
    assert isinstance(connection.next_event(), h11.Request)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/x", {}, 0),
        ("GET", "/x", {"host": "localhost:1"}, 0),
        ("GET", "/x", {"host": "[0:0::1]:1"}, 0),
        ("GET", "/x", {"host": "elsewhere"}, 421),
        ("GET", "/x", {"host": "127.1"}, 421),
        ("GET", "/x", {"host": "localhost:99999999"}, 421),
        ("GET", "/x", {"sec-fetch-site": "none"}, 0),
        ("GET", "/x", {"sec-fetch-site": "same-site"}, 403),
        ("GET", "/x", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ("GET", "/authorize", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 0),
        ("GET", "/authorize", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("POST", "/authorize", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ("GET", "/x", {"origin": ""}, 403),
        ("GET", "/x", {"origin": "null"}, 403),
        ("GET", "/x", {"origin": "http://127.0.0.1:8080"}, 0),
        ("GET", "/x", {"origin": "HTTPS://APP.example", "sec-fetch-site": "cross-site"}, 0),
        ("GET", "/x", {"upgrade": "WebSocket"}, 400),
        ("GET", "/x", {"upgrade": "h2c"}, 0),
        ("POST", "/x", {}, 0),
        ("POST", "/x", {"content-length": "0"}, 0),
        ("POST", "/x", {"content-length": "2"}, 415),
        ("POST", "/x", {"transfer-encoding": "chunked"}, 415),
        ("POST", "/x", {"content-type": "text/plain"}, 415),
        ("POST", "/x", {"content-type": "Application/JSON; charset=utf-8", "content-length": "2"}, 0),
        ("POST", "/x", {"content-type": "application/a2a+json", "content-length": "2"}, 0),
        ("POST", "/x", {"content-type": "text/plain; a=application/json", "content-length": "2"}, 415),
        ("POST", "/x", {"content-type": "application/x-www-form-urlencoded"}, 415),
        ("POST", "/token", {"content-type": "application/x-www-form-urlencoded"}, 0),
        ("POST", "/token", {"content-type": "application/json", "content-length": "2"}, 415),
        ("DELETE", "/x", {"content-type": "text/plain"}, 0),
    ],
)
def test_who_may_ask(method: str, path: str, headers: dict[str, str], status: int) -> None:
    given = [(name.encode(), value.encode()) for name, value in ({"host": "127.0.0.1:8080"} | headers).items()]
    found = SITE.refusal({"method": method, "scheme": "http", "path": path, "headers": given})
    assert (found.status if found else 0) == status


def test_names_of_hosts_and_tokens_of_headers() -> None:
    for host, name in (
        ("A.example:1", "a.example"),
        ("[::1]:2", "::1"),
        ("[0:0::1]", "::1"),
        ("", ""),
        ("a@b", ""),
        ("[", ""),
        ("a/b", ""),
        ("[::g]", ""),
        ("a b", ""),
        (":80", ""),
        ("a:", ""),
        ("a:1:2", ""),
    ):
        assert host_of(host) == name, host
    assert tokens_in([(b"authorization", b"bEARER  t ")]) == ["t"]
    assert tokens_in([(b"authorization", b"Basic t"), (b"x-api-key", b"k")]) == ["k"]
    assert tokens_in([(b"authorization", b"Bearer")]) == []
    assert is_passed_on([(b"x-forwarded-for", b"192.0.2.1")])
    assert not is_passed_on([(b"host", b"via")])
