"""Requests that a web page can make a browser send to an address of this machine, and ambiguous requests.

The heads are Chromium 156's, with the headers that no page can set.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass

EVIL = "http://evil.example"
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"
SIMPLE = ("text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=----b", "")
"""The content types that a page may send without a preflight; a Blob may have none."""

HELLO = bytes.fromhex("16030100c1010000bd0303") + bytes(range(32)) + b"\n" * 8
STUN = struct.pack("!HHI12s", 3, 24, 0x2112A442, b"\n" * 12) + struct.pack("!HH", 6, 20)


@dataclass(frozen=True)
class Target:
    """An address that accepts JSON, at which ``body`` would have an effect."""

    port: int
    path: str
    body: bytes

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def head(self, method: str = "POST", **changes: str | None) -> bytes:
        """Return Chromium's head for ``fetch(address, {method, mode: "no-cors", body})``; None omits a header."""
        fields: dict[str, str | None] = {
            "Host": self.host,
            "Connection": "keep-alive",
            "Content-Length": str(len(self.body)),
            "sec-ch-ua-platform": '"Linux"',
            "User-Agent": AGENT,
            "Content-Type": "text/plain;charset=UTF-8",
            "Accept": "*/*",
            "Origin": EVIL,
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": "no-cors",
            "Sec-Fetch-Dest": "empty",
            "Referer": f"{EVIL}/",
            "Accept-Encoding": "gzip, deflate, br, zstd",
            "Accept-Language": "en-US,en;q=0.9",
            **{name.replace("_", "-"): value for name, value in changes.items()},
        }
        lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
        return f"{method} {self.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()

    def allowed(self, **changes: str | None) -> bytes:
        """Return the request of a program of this user that is not a browser."""
        bare = dict.fromkeys(("Origin", "Sec_Fetch_Site", "Sec_Fetch_Mode", "Sec_Fetch_Dest", "Referer"))
        given = {"Content_Type": "application/json", "Connection": "close", **bare, **changes}
        return self.head(**given) + self.body


def by_pages(target: Target) -> dict[str, bytes]:
    """Return requests that pages can send, and those that browsers allowed once or might allow."""
    body, own = target.body, f"http://{target.host}"
    chunked = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    form = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Upgrade_Insecure_Requests": "1"}
    key = base64.b64encode(bytes(16)).decode()
    socket = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13", "Sec_WebSocket_Key": key}
    json = {"Content_Type": "application/json"}
    found = {f"no-cors {kind.partition(';')[0] or 'blob'}": target.head(Content_Type=kind or None) for kind in SIMPLE}
    found |= {f"form {kind.partition(';')[0]}": target.head(Content_Type=kind, **form) for kind in SIMPLE[:3]}
    found |= {
        "a page that was rebound": target.head(
            Host=f"evil.example:{target.port}",
            Origin=f"http://evil.example:{target.port}",
            Sec_Fetch_Site="same-origin",
            **json,
        ),
        "a page of a sandbox": target.head(Origin="null", **json),
        "a page of another port": target.head(Origin="http://127.0.0.1:1", Sec_Fetch_Site="same-site", **json),
        "a page of the same name elsewhere": target.head(Origin=f"http://evil.example:{target.port}", **json),
        "a page of the other scheme": target.head(Origin=f"https://{target.host}", **json),
        "a page that was let by a preflight": target.head(**json),
        "a page whose browser says no origin": target.head(Origin=None, **json),
        "a page of two origins": target.head(**json).replace(b"\r\n\r\n", f"\r\nOrigin: {own}\r\n\r\n".encode()),
        "a preflight": target.head(
            "OPTIONS", Access_Control_Request_Method="POST", Access_Control_Request_Headers="content-type"
        ),
        "put": target.head("PUT", **json),
        "websocket": target.head("GET", **socket),
        "websocket of this machine": target.head("GET", Origin=own, Sec_Fetch_Site="same-origin", **socket),
        "chunked": target.head(Content_Length=None, Transfer_Encoding="chunked"),
    }
    bodies = {name: head + (chunked if name == "chunked" else body) for name, head in found.items()}
    ended = target.head().replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n")
    return bodies | {
        "pipelined after a page's": target.head() + body + target.allowed(),
        "pipelined after a bad head": b"POST " + target.path.encode() + b"\r\n" + body + b"\n" + ended + body,
        "body of lines": target.head(Content_Length=str(3 * len(body))) + (b"\n" + body + b"\n") * 3,
        "http/0.9": b"GET " + target.path.encode() + b"\r\n" + body + b"\n",
        "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) + body + b"\n",
        "tls": HELLO + body + b"\n",
        "turn over tcp": STUN + b"\n" + body + b"\n",
    }


def by_smugglers(target: Target) -> dict[str, bytes]:
    """Return requests that a proxy and the server behind it may interpret differently."""
    host, path, body = target.host.encode(), target.path.encode(), target.body
    begin = b"POST " + path + b" HTTP/1.1\r\nContent-Type: application/json\r\n"
    length = b"Content-Length: %d\r\n" % len(body)
    chunk = b"%x\r\n" % len(body) + body + b"\r\n"
    chunked = chunk + b"0\r\n\r\n"
    named = begin + b"Host: " + host + b"\r\n"
    return {
        "both lengths": named + length + b"Transfer-Encoding: chunked\r\n\r\n" + chunked,
        "both lengths, hidden": named
        + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + target.allowed(),
        "two lengths": named + length + b"Content-Length: 0\r\n\r\n" + body,
        "the same length twice": named + length + length + b"\r\n" + body,
        "a list of lengths": named + length[:-2] + b", %d\r\n\r\n" % len(body) + body,
        "a signed length": named + b"Content-Length: +%d\r\n\r\n" % len(body) + body,
        "a space before the colon": named + length + b"Transfer-Encoding : chunked\r\n\r\n" + chunked,
        "chunked in 1.0": named.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + chunked,
        "chunked twice": named + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked,
        "another coding": named + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked,
        "bare LF": (named + length + b"\r\n").replace(b"\r\n", b"\n") + body,
        "one bare LF": named.replace(b"\r\nHost", b"\nHost") + length + b"\r\n" + body,
        "bare LF at the end": named + length + b"\n" + body,
        "bare CR": named.replace(b"\r\nHost", b"\rHost") + length + b"Host: " + host + b"\r\n\r\n" + body,
        "bare LF in a trailer": named + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\nX: y\n\r\n",
        "bare LF after the last chunk": named + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\n",
        "a folded header": named + length + b"X: a\r\n b\r\n\r\n" + body,
        "a folded host": begin + b"Host: evil.example\r\n " + host + b"\r\n" + length + b"\r\n" + body,
        "two hosts": named + b"Host: evil.example\r\n" + length + b"\r\n" + body,
        "the same host twice": named + b"Host: " + host + b"\r\n" + length + b"\r\n" + body,
        "no host": begin + length + b"\r\n" + body,
        "no host in 1.0": begin.replace(b"1.1", b"1.0") + length + b"\r\n" + body,
        "an empty host": begin + b"Host: \r\n" + length + b"\r\n" + body,
        "only a port": begin + b"Host: :%d\r\n" % target.port + length + b"\r\n" + body,
        "a user's name": begin + b"Host: evil@" + host + b"\r\n" + length + b"\r\n" + body,
        "another host in the target": named.replace(path, b"http://evil.example" + path, 1) + length + b"\r\n" + body,
        "its own host in the target": named.replace(path, b"http://" + host + path, 1) + length + b"\r\n" + body,
        "another version": named.replace(b"1.1", b"2.0") + length + b"\r\n" + body,
        "a later version": named.replace(b"1.1", b"1.2") + length + b"\r\n" + body,
        "a type given twice": named + b"Content-Type: text/plain\r\n" + length + b"\r\n" + body,
    }
