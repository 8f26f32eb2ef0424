"""The view in a chat as one file that loads nothing, made of the console's modules and styles."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from ai_session import __version__

WEB = Path(__file__).parents[2] / "http/console/web"
MODULES = {
    "preact": "vendor/preact.mjs",
    "htm": "vendor/htm.mjs",
    "./parts.js": "parts.js",
    "./visible.js": "visible.js",
    "": "chat.js",
}
"""Files by the names under which others import them, in the order of their dependencies."""

STYLES = ("look.css", "chat.css")
LICENSES = "preact (MIT), htm (Apache-2.0); their texts: ai_session/http/console/web/vendor/LICENSES"
IMPORT = re.compile(r"""^import\s*(?:(\w+)|\{([^}]*)\})\s*from\s*['"]([^'"]+)['"];?""", re.MULTILINE)
EXPORTED = re.compile(r"^export (?:const|function|class) (\w+)", re.MULTILINE)
LISTED = re.compile(r"export\s*\{([^}]*)\};?\s*$")
DEFAULT = re.compile(r"\bexport default ")


@cache
def view() -> str:
    """Return the file. Its own policy runs only the scripts in the page, however permissive a client's policy is."""
    script, style = "\n" + _joined_modules(), "\n" + "".join((WEB / name).read_text() for name in STYLES)
    assert "</" not in style
    assert "</script" not in script.lower()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return (
        f'<!doctype html>\n<html lang="en" data-version="{__version__}">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>ai-session</title>\n<!-- {LICENSES} -->\n'
        f'<style>{style}</style>\n<body></body>\n<script type="module">{script}</script>\n</html>\n'
    )


def _joined_modules() -> str:
    """Return all modules as one script, each in a function of its own that returns its exports."""
    module_names = {name: f"$m[{number}]" for number, name in enumerate(MODULES)}
    parts = ["const $m = [];"]
    for name, file in MODULES.items():
        text = IMPORT.sub(lambda found: _as_constants(found, module_names), (WEB / file).read_text())
        exports = {one: one for one in EXPORTED.findall(text)}
        text = EXPORTED.sub(lambda found: found[0].removeprefix("export "), text)
        if listed := LISTED.search(text):
            exports |= {outer: inner for inner, outer in map(_name_and_alias, listed[1].split(","))}
            text = text[: listed.start()]
        if DEFAULT.search(text):
            text, exports["default"] = DEFAULT.sub("const $default = ", text), "$default"
        names = ", ".join(f"{outer}: {inner}" for outer, inner in exports.items())
        parts.append(f"{module_names[name]} = (() => {{\n{text.strip()}\nreturn {{ {names} }};\n}})();")
    return "\n".join(parts) + "\n"


def _as_constants(found: re.Match[str], module_names: dict[str, str]) -> str:
    whole, names_text, module = found.groups()
    if whole:
        return f"const {whole} = {module_names[module]}.default;"
    names = (f"{inner}: {outer}" for inner, outer in map(_name_and_alias, names_text.split(",")))
    return f"const {{ {', '.join(names)} }} = {module_names[module]};"


def _name_and_alias(text: str) -> tuple[str, str]:
    first, _, second = text.strip().partition(" as ")
    return first, second or first


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
