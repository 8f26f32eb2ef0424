"""The meaning of file names: languages and tests; and the counting of tests in files."""

from __future__ import annotations

import re

LANGUAGES = {
    "Python": ".py .pyi",
    "JavaScript": ".js .jsx .mjs .cjs",
    "TypeScript": ".ts .tsx .mts .cts",
    "Rust": ".rs",
    "Go": ".go",
    "Java": ".java",
    "Kotlin": ".kt .kts",
    "Swift": ".swift",
    "C": ".c .h",
    "C++": ".cc .cpp .cxx .hpp",
    "C#": ".cs",
    "Ruby": ".rb",
    "PHP": ".php",
    "Scala": ".scala",
    "Elixir": ".ex .exs",
    "Erlang": ".erl",
    "Haskell": ".hs",
    "Dart": ".dart",
    "Lua": ".lua",
    "R": ".r .R",
    "Perl": ".pl .pm",
    "Clojure": ".clj .cljs",
    "Objective-C": ".m .mm",
    "Zig": ".zig",
    "Shell": ".sh .bash .zsh .fish",
    "PowerShell": ".ps1",
    "SQL": ".sql",
    "HTML": ".html .htm",
    "CSS": ".css .scss .sass .less",
    "Vue": ".vue",
    "Svelte": ".svelte",
    "Terraform": ".tf",
    "Protocol Buffers": ".proto",
    "GraphQL": ".graphql .gql",
    "Markdown": ".md .mdx",
    "reStructuredText": ".rst",
    "YAML": ".yml .yaml",
    "TOML": ".toml",
    "JSON": ".json",
    "XML": ".xml",
}
BY_SUFFIX = {suffix: language for language, suffixes in LANGUAGES.items() for suffix in suffixes.split()}
BY_NAME = {"Dockerfile": "Dockerfile", "Makefile": "Makefile", "CMakeLists.txt": "CMake", "Rakefile": "Ruby"}
NO_CODE = {"Markdown", "reStructuredText", "YAML", "TOML", "JSON", "XML"}
"""Languages that are counted, but in which no project is written."""

LOCKS = {
    "package-lock.json": "npm",
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "uv.lock": "uv",
    "poetry.lock": "poetry",
    "pdm.lock": "pdm",
    "Pipfile.lock": "pipenv",
    "Cargo.lock": "cargo",
    "go.sum": "go",
    "Gemfile.lock": "bundler",
    "composer.lock": "composer",
    "mix.lock": "mix",
    "pubspec.lock": "pub",
    "Package.resolved": "swiftpm",
    "gradle.lockfile": "gradle",
    "flake.lock": "nix",
}
"""Files in which package managers store exact versions; their lines are not counted."""

TESTS = re.compile(
    r"(?:^|/)(?:tests?|spec|specs|__tests__)/|(?:^|/)test_[^/]*\.py$|_test\.(?:py|go|rb|exs|dart|cc|cpp)$"
    r"|\.(?:test|spec)\.[cm]?[jt]sx?$|Tests?\.(?:java|kt|cs|swift|php|scala)$|_spec\.rb$"
)
"""Paths of files that contain tests."""

CASES = {
    "Python": r"^[ \t]*(?:async[ \t]+)?def[ \t]+test\w*",
    "JavaScript": r"^[ \t]*(?:it|test)(?:\.\w+)*[ \t]*\(",
    "TypeScript": r"^[ \t]*(?:it|test)(?:\.\w+)*[ \t]*\(",
    "Rust": r"^[ \t]*#\[(?:\w+::)*test\b[^\]\n]*\]",
    "Go": r"^func[ \t]+(?:Test|Fuzz)\w*\(",
    "Java": r"^[ \t]*@(?:\w+Test|Test)\b",
    "Kotlin": r"^[ \t]*@Test\b",
    "C#": r"^[ \t]*\[(?:Fact|Theory|Test|TestMethod)\b",
    "Ruby": r"^[ \t]*(?:it[ \t(]+['\"]|test[ \t(]+['\"]|def[ \t]+test_)",
    "PHP": r"function[ \t]+test\w*[ \t]*\(",
    "Swift": r"^[ \t]*func[ \t]+test\w*\(",
    "Elixir": r"^[ \t]*test[ \t]+\"",
    "Dart": r"^[ \t]*test(?:Widgets)?\(",
}
CASE = {language: re.compile(pattern.encode(), re.MULTILINE) for language, pattern in CASES.items()}
"""The beginning of a test, by language. A line that only looks like one counts too."""


def language_of(name: str) -> str:
    """Return the language of a file, ``""`` if its name does not show one."""
    if found := BY_NAME.get(name):
        return found
    dot = name.rfind(".")
    return BY_SUFFIX.get(name[dot:], BY_SUFFIX.get(name[dot:].lower(), "")) if dot > 0 else ""


def cases_in(language: str, path: str, data: bytes) -> int:
    """Return how many tests a file seems to contain. Rust's are in the same files as the code they test."""
    pattern = CASE.get(language)
    if pattern is None or not (language == "Rust" or TESTS.search(path)):
        return 0
    return len(pattern.findall(data))
