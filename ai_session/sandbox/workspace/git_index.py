"""Finds the entries in git's index that stand for other repositories."""

from __future__ import annotations

import struct
from collections.abc import Iterator

GITLINK = 0o160000
_MARK = struct.pack(">I", GITLINK)
_HEAD = struct.Struct(">4sII")
_FIXED = 40
"""The bytes of an entry before the object's name: times, numbers, mode, owner, size."""
DIGESTS = (20, 32)
"""The bytes of an object's name in SHA-1 and SHA-256. The index does not say which it uses."""
PATH_BYTES = 4096
"""No file system accepts longer paths, but git reads on after one. Version 4 stores a path as its difference from the
previous one."""
MOST_GITLINKS = 10_000
EXTENDED, KNOWN_FLAGS, LENGTH = 0x4000, 0x6000, 0xFFF
"""An entry's flags: the bit that more follow, those of them that git accepts, and the path's length if it is less."""
MODES = frozenset((0o100644, 0o100755, 0o120000, 0o040000, GITLINK))


class _TooLarge(ValueError):
    pass


def gitlinks(data: bytes) -> tuple[str, ...] | None:
    """Return the paths of the entries with mode 160000 in an index of version 2, 3 or 4; empty if it is not an index.
    None means that git may find some, but there are more, or longer paths, than are searched."""
    if _MARK not in data:
        return ()
    found: dict[str, None] = {}
    for digest_bytes in DIGESTS:  # an index may be made so that it is valid with either
        try:
            found |= dict.fromkeys(_gitlinks(data, digest_bytes))
        except _TooLarge:
            return None
        except (struct.error, IndexError, ValueError):
            pass
    return tuple(found)


def _gitlinks(data: bytes, digest_bytes: int) -> tuple[str, ...]:
    found: list[str] = []
    for mode, path in _entries(data, digest_bytes):
        if mode == GITLINK:
            if len(found) == MOST_GITLINKS:
                raise _TooLarge("too many")
            found.append(path.decode(errors="surrogateescape"))
    return tuple(found)


def _entries(data: bytes, digest_bytes: int) -> Iterator[tuple[int, bytearray]]:
    """Yield mode and path of each entry. The path is one object, which the next step changes."""
    signature, version, count = _HEAD.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    at, path = _HEAD.size, bytearray()
    for _ in range(count):
        begin = at
        (mode,) = struct.unpack_from(">I", data, at + 24)
        if mode not in MODES:
            raise ValueError(f"an index entry cannot have mode {mode:o}")
        (flags,) = struct.unpack_from(">H", data, at + _FIXED + digest_bytes)
        at += _FIXED + digest_bytes + 2
        if flags & EXTENDED:
            (more,) = struct.unpack_from(">H", data, at)
            if more & ~KNOWN_FLAGS:
                raise ValueError("git does not accept an entry with these flags")
            at += 2
        if version == 4:
            dropped, at = _number(data, at)
            if dropped > len(path):
                raise ValueError("a path drops more characters than there are")
            del path[len(path) - dropped :]
        else:
            path.clear()
        length = flags & LENGTH
        end = at + length - len(path) if length < LENGTH else data.index(0, at)
        if not at <= end < len(data):
            raise ValueError("the index ends within a path")
        path += data[at:end]
        at = end + 1 if version == 4 else begin + (end - begin + 8) // 8 * 8
        if len(path) > PATH_BYTES:
            raise _TooLarge("a path is too long")
        yield mode, path


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return git's variable-length number at ``at``, and where it ends."""
    byte = data[at]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        byte = data[at]
        at += 1
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at
