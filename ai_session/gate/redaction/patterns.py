"""What secrets look like, by kind, as RE2 expressions over bytes. No I/O.

An expression with groups masks the group that matched, one without masks the whole match. None needs more than
OVERLAP_BYTES to find where a secret begins, and none matches a mask.
"""

from __future__ import annotations

import re

OVERLAP_BYTES = 16384
"""How much must be known after a position before it is judged: a private key of 8192 bits has 6.5 kB."""

_BEGIN = r"(?:\b|\\[nrt]|[0-9;\[]m)"
"""Where a word begins, also directly after an escape of JSON or a colour."""

_KEY_TEXT = r"(?:[A-Za-z0-9+/=\s:|>#*,.()\"'-]|\\[nrt])"
_KEY_SPACE = r"(?:\s|\\[nrt])*"
_KEY_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
KEY_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_NAMES = (
    "pass(?:word|wd|phrase)|secret|token|credential|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key"
    "|signing[_-]?key|encryption[_-]?key|auth[_-]?key|client[_-]?key|master[_-]?key"
)

KINDS: dict[str, str] = {
    "private-key": rf"{_KEY_BEGIN}{_KEY_TEXT}{{20,}}?{KEY_END}"
    rf"|{_KEY_BEGIN}(?:{_KEY_SPACE}[A-Za-z-]+: [^\n\\]*)*(?:{_KEY_SPACE}[A-Za-z0-9+/=]{{30,}})+",
    "jwt": r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    "github": r"gh[opusr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}",
    "gitlab": r"gl(?:pat|ptt|dt|rt|cbt|ft|soat|imt|agent|oas)-[A-Za-z0-9_.-]{20,}",
    "aws": rf"{_BEGIN}((?:AKIA|ASIA)[A-Z2-7]{{16}})\b",
    "google": r"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}",
    "slack": r"xox[abceoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}"
    r"|hooks\.slack\.com/services/([A-Za-z0-9/_-]{20,})",
    "stripe": r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{16,}",
    "model-api": rf"{_BEGIN}(sk-(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{{16,}}|sk-[A-Za-z0-9]{{20,}}"
    rf"|gsk_[A-Za-z0-9]{{40,}}|xai-[A-Za-z0-9]{{40,}}|pplx-[A-Za-z0-9]{{40,}})",
    "packages": r"npm_[A-Za-z0-9]{36,}|pypi-AgE[A-Za-z0-9_-]{50,}|rubygems_[a-f0-9]{48}|dckr_pat_[A-Za-z0-9_-]{20,}"
    r"|crates_[A-Za-z0-9]{32,}",
    "huggingface": rf"{_BEGIN}(hf_[A-Za-z0-9]{{30,}})",
    "sendgrid": r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "twilio": rf"{_BEGIN}(SK[a-f0-9]{{32}})",
    "telegram": rf"{_BEGIN}([0-9]{{8,10}}:AA[A-Za-z0-9_-]{{33}})",
    "discord": rf"{_BEGIN}([MNO][A-Za-z0-9_-]{{23,25}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}})",
    "cloud": r"do[oprt]_v1_[a-f0-9]{64}|dapi[a-f0-9]{32}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|hv[bsr]\.[A-Za-z0-9_-]{24,}"
    r"|glsa_[A-Za-z0-9_]{32,}|lin_api_[A-Za-z0-9]{32,}|AGE-SECRET-KEY-1[A-Z0-9]{58}|sntrys_[A-Za-z0-9+/=_-]{32,}"
    r"|\.atlasv1\.[A-Za-z0-9_=-]{60,}",
    "url": r"://[^\s/@:\"'\\<>\[\]{}\x1b]{0,100}:([^\s/@\"'\\<>\[\]{}\x1b]{3,})@",
    "authorization": rf"(?i:{_BEGIN}(?:bearer\s|basic\s|authorization[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?(?:[a-z]+\s)?))"
    r"\s{0,3}([A-Za-z0-9+/=_.~-]{16,})",
    "netrc": r"\blogin\s{1,20}[^\s\x00-\x1f]{1,100}\s{1,20}password\s{1,20}([^\s\"'\\\x00-\x1f]{8,})",
    "variable": rf"(?:{_NAMES.upper().replace('[_-]?', '_?')})[A-Z0-9_]{{0,20}}=[\"'\\]{{0,6}}"
    r"([^\s\"'\\$(<{%\[*\x00-\x1f-][^\s\"'\\\x00-\x1f]{7,})",
    "quoted": rf"(?i:{_NAMES})[A-Za-z0-9_-]{{0,20}}[\"']?\s{{0,3}}(?::=|=>|=|:)\s{{0,3}}"
    r"(?:\"([^\s\"\\\x00-\x1f]{8,})\"|'([^\s'\\\x00-\x1f]{8,})')",
    "named": rf"(?i:{_NAMES})[A-Za-z0-9_-]{{0,20}}\s{{0,3}}(?::=|=>|=|:\s)\s{{0,3}}"
    r"([^\s\"'\\,;<>()\[\]{}$\x00-\x1f-][^\s\"'\\,;<>()\[\]{}$\x00-\x1f]{7,})(?:[\s\"'\\,;\x1b]|$)",
}
"""If two kinds match at one position, the first one counts. A value recognized by its context does not begin with
``-``, because it would hide the key block that begins there."""

BEGINNING = (
    rf"{_KEY_BEGIN}(?:{_KEY_SPACE}[A-Za-z-]+: [^\n\\]*)*(?:{_KEY_SPACE}[A-Za-z0-9+/=]+)*{_KEY_SPACE}\z"
    rf"|{_BEGIN}(?:gh[opusr]_|github_pat_|gl[a-z]{{2,5}}-|A[KS]IA|AIza|ya29\.|GOCSPX-|xox[abceoprs]-|xapp-|[rs]k_(?:live|test)_"
    r"|whsec_|sk-|gsk_|xai-|pplx-|npm_|pypi-A|rubygems_|dckr_pat_|crates_|hf_|SG\.|eyJ|[0-9]{8,10}:AA|do[oprt]_v1_|dapi"
    r"|shp[a-z]{2}_|hv[bsr]\.|glsa_|lin_api_|AGE-SECRET-KEY-|sntrys_|SK[a-f0-9]{6}|hooks\.slack\.com/services/)"
    r"[A-Za-z0-9/+=._:-]{4,}\z"
    rf"|{_BEGIN}[MNO][A-Za-z0-9_-]{{23,25}}\.[A-Za-z0-9_.-]*\z"
    r"|://[^\s/@:\"'\\<>\[\]{}\x1b]{0,100}:[^\s/@\"'\\<>\[\]{}\x1b]*[^\s/@0-9:][^\s/@]*\z"
    rf"|(?i:{_BEGIN}(?:bearer|basic|authorization[\"']?\s?[:=])\s{{1,3}}[A-Za-z0-9+/=_.~-]{{8,}}\z)"
    rf"|(?i:{_NAMES})[A-Za-z0-9_-]{{0,20}}[\"']?\s{{0,3}}(?::=|=>|=|:)\s{{0,3}}[\"']?[^\s\"']{{4,}}\z"
)
"""What may still become a secret, at the end of output that continues."""

UNSURE = frozenset(("authorization", "variable", "quoted", "named", "netrc"))
"""Kinds that know where a secret would be, not what it is: ``plausible`` decides."""

BY_CONTEXT = UNSURE | {"url"}
"""Kinds of which nothing is found where the value stands alone."""

_ORDINARY = re.compile(rb"[^A-Za-z0-9]*(?>[A-Za-z]+[0-9]{0,2}(?:[^A-Za-z0-9]+|\Z))*+|[0-9T:.,/+Z-]+")
"""Words, names of code and paths, such as ``settings.SECRET_KEY`` or ``your-token-here``; numbers and dates."""

_PLACEHOLDERS = b"$<{%[(*"
_PATHS = b"/~."
_LEAST_DISTINCT = 6


def plausible(kind: str, value: bytes) -> bool:
    """Report whether a value in the position of a secret is one, and not a word, number, name or placeholder."""
    if value[0] in _PLACEHOLDERS or len(set(value[:64])) < _LEAST_DISTINCT:
        return False
    if kind == "variable" and value[0] not in _PATHS:
        return True
    return _ORDINARY.fullmatch(value[:256]) is None
