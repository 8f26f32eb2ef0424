"""Writes ai_session/servers/mcp/view.html: the view in a chat as one file, from the console's modules and styles.

Run it after a change to one of ``MODULES`` or ``STYLES``; with --check it only says whether the file is up to date.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "ai_session/console/web"
VIEW = ROOT / "ai_session/servers/mcp/view.html"
MODULES = {
    "preact": "vendor/preact.mjs",
    "htm": "vendor/htm.mjs",
    "./parts.js": "parts.js",
    "./visible.js": "visible.js",
    "": "chat.js",
}
"""By the names under which the others import them, those first that import nothing."""

STYLES = ("look.css", "chat.css")
LICENSES = "preact (MIT), htm (Apache-2.0); their texts: ai_session/console/web/vendor/LICENSES"
IMPORT = re.compile(r"""^import\s*(?:(\w+)|\{([^}]*)\})\s*from\s*['"]([^'"]+)['"];?""", re.MULTILINE)
EXPORTED = re.compile(r"^export (?:const|function|class) (\w+)", re.MULTILINE)
LISTED = re.compile(r"export\s*\{([^}]*)\};?\s*$")
DEFAULT = re.compile(r"\bexport default ")


def joined() -> str:
    """All modules as one, each in a function of its own that returns what it exports."""
    module_names = {name: f"$m[{number}]" for number, name in enumerate(MODULES)}
    parts = ["const $m = [];"]
    for name, file in MODULES.items():
        text = IMPORT.sub(lambda found: _imported(found, module_names), (WEB / file).read_text())
        given = {one: one for one in EXPORTED.findall(text)}
        text = EXPORTED.sub(lambda found: found[0].removeprefix("export "), text)
        if listed := LISTED.search(text):
            given |= {outer: inner for inner, outer in map(_pair, listed[1].split(","))}
            text = text[: listed.start()]
        if DEFAULT.search(text):
            text, given["default"] = DEFAULT.sub("const $default = ", text), "$default"
        names = ", ".join(f"{outer}: {inner}" for outer, inner in given.items())
        parts.append(f"{module_names[name]} = (() => {{\n{text.strip()}\nreturn {{ {names} }};\n}})();")
    return "\n".join(parts) + "\n"


def _imported(found: re.Match[str], module_names: dict[str, str]) -> str:
    whole, some, module = found.groups()
    if whole:
        return f"const {whole} = {module_names[module]}.default;"
    names = (f"{inner}: {outer}" for inner, outer in map(_pair, some.split(",")))
    return f"const {{ {', '.join(names)} }} = {module_names[module]};"


def _pair(text: str) -> tuple[str, str]:
    first, _, second = text.strip().partition(" as ")
    return first, second or first


def page() -> str:
    """The file. Its own policy lets nothing run but what stands in it, whatever a client's lets."""
    script, style = "\n" + joined(), "\n" + "".join((WEB / name).read_text() for name in STYLES)
    assert "</" not in style
    assert "</script" not in script.lower()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return (
        f'<!doctype html>\n<html lang="en" data-version="@VERSION@">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>ai-session</title>\n<!-- {LICENSES} -->\n'
        f'<style>{style}</style>\n<body></body>\n<script type="module">{script}</script>\n</html>\n'
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def main() -> None:
    if "--check" not in sys.argv:
        VIEW.write_text(page())
    elif not VIEW.exists() or VIEW.read_text() != page():
        sys.exit(f"{VIEW} is out of date: run {sys.argv[0]}")


if __name__ == "__main__":
    main()
