"""Secrets as they occur in output, with the text around them."""

from __future__ import annotations

import base64
import random
import string

WORD = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + "234567"


def drawn(seed: int, count: int, letters: str = WORD) -> str:
    """Return random characters, the same in each run; made here so that no scanner takes this file for a leak."""
    return "".join(random.Random(seed).choices(letters, k=count))


def key_block(title: str) -> str:
    body = base64.encodebytes(random.Random(9).randbytes(1200)).decode()
    return f"-----BEGIN {title}-----\n{body}-----END {title}-----"


SECRETS = {
    "aws id": "AKIA" + drawn(1, 16, UPPER),
    "github": "gh" + "p_" + drawn(2, 36),
    "github fine": "github_" + "pat_" + drawn(3, 22) + "_" + drawn(4, 59),
    "gitlab": "glpat" + "-" + drawn(5, 20),
    "slack": "xoxb" + "-" + drawn(6, 12, string.digits) + "-" + drawn(7, 24),
    "slack app": "xapp" + "-1-" + drawn(8, 30),
    "stripe": "sk_" + "live_" + drawn(9, 24),
    "stripe hook": "whsec" + "_" + drawn(10, 32),
    "google": "AIza" + drawn(11, 35),
    "google oauth": "ya29." + drawn(12, 60),
    "openai": "sk-" + "proj-" + drawn(13, 48),
    "openai old": "sk-" + drawn(14, 48),
    "anthropic": "sk-" + "ant-api03-" + drawn(15, 80),
    "npm": "npm" + "_" + drawn(16, 36),
    "pypi": "pypi-" + "AgE" + drawn(17, 80),
    "docker": "dckr" + "_pat_" + drawn(18, 27),
    "hugging face": "hf" + "_" + drawn(19, 34),
    "jwt": "eyJ" + drawn(20, 30) + ".eyJ" + drawn(21, 60) + "." + drawn(22, 43),
    "sendgrid": "SG." + drawn(23, 22) + "." + drawn(24, 43),
    "twilio": "SK" + drawn(25, 32, HEX),
    "telegram": drawn(26, 9, "123456789") + ":AA" + drawn(27, 33),
    "discord": "M" + drawn(28, 23) + "." + drawn(29, 6) + "." + drawn(30, 38),
    "digitalocean": "dop" + "_v1_" + drawn(31, 64, HEX),
    "databricks": "dapi" + drawn(32, 32, HEX),
    "shopify": "shpat" + "_" + drawn(33, 32, HEX),
    "vault": "hvs." + drawn(34, 24),
    "age": "AGE-SECRET-" + "KEY-1" + drawn(35, 58, UPPER),
    "rsa": key_block("RSA PRIVATE " + "KEY"),
    "openssh": key_block("OPENSSH PRIVATE " + "KEY"),
    "pgp": key_block("PGP PRIVATE " + "KEY BLOCK"),
}
"""Secrets that are recognized by their form."""

VALUE = drawn(40, 24)
NAMED = {
    "url": ("git clone https://user:", VALUE, "@git.example.com/a.git"),
    "bearer": ("curl -H 'Authorization: Bearer ", VALUE, "' https://x.example"),
    "basic": ("Authorization: Basic ", base64.b64encode(f"user:{VALUE}".encode()).decode(), "\r\n"),
    "variable": ("export DB_PASSWORD=", "correcthorsebattery", "\n"),
    "aws key": ("aws_secret_access_key = ", drawn(41, 40, WORD + "+/"), "\n"),
    "json": ('{"client_secret": "', drawn(42, 20, WORD + "()!$%"), '"}'),
    "yaml": ("  api_key: ", VALUE, "\n"),
    "azure": ("DefaultEndpointsProtocol=https;AccountKey=", drawn(43, 86, WORD), "==;"),
    "query": ("GET /v1?access_token=", VALUE, " HTTP/1.1"),
    "quoted": ("password := '", "correct7horse", "'"),
}
"""Secrets that are recognized by the text around them: before, secret, after."""
