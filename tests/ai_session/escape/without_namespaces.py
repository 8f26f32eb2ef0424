"""Runs a program under a filter as in containers: no namespaces, no mounts; ``no-landlock``: no Landlock either."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

NAMESPACES = 0x7E020000
CALLS = {
    "x86_64": {"clone": 56, "mount": 165, "unshare": 272, "setns": 308, "clone3": 435, "landlock": 444},
    "aarch64": {"clone": 220, "mount": 40, "unshare": 97, "setns": 268, "clone3": 435, "landlock": 444},
}[os.uname().machine]
LOAD, EQUAL, ANY_BIT, RETURN, ALLOW, NOT_PERMITTED, ABSENT = 0x20, 0x15, 0x45, 0x06, 0x7FFF0000, 0x50001, 0x50026


def program(without_landlock: bool) -> bytes:
    code = [(LOAD, 0, 0, 0)]
    for name in ("mount", "setns", "unshare"):
        code += [(EQUAL, 0, 1, CALLS[name]), (RETURN, 0, 0, NOT_PERMITTED)]
    for name in ("clone3", *(["landlock"] if without_landlock else [])):
        code += [(EQUAL, 0, 1, CALLS[name]), (RETURN, 0, 0, ABSENT)]
    code += [
        (EQUAL, 0, 3, CALLS["clone"]),
        (LOAD, 0, 0, 16),
        (ANY_BIT, 0, 1, NAMESPACES),
        (RETURN, 0, 0, NOT_PERMITTED),
    ]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def install(*, without_landlock: bool) -> None:
    """From now on this process, and all that it starts, is under the filter."""
    code = program(without_landlock)
    held = ctypes.create_string_buffer(code, len(code))
    filters = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, filters, 0, 0):
        sys.exit("no filter can be installed here")


def main() -> None:
    kind, separator, *argv = sys.argv[1:]
    assert separator == "--"
    install(without_landlock=kind == "no-landlock")
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
