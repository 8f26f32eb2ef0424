"""What a repository is made of, and how sure it is what it is built with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ai_session.errors import DirectoryUnusable, InvalidArguments
from ai_session.tools.integration.frameworks import FRAMEWORKS, choose, detect, framework
from ai_session.tools.integration.project.profile import Profile, profile_tree, read_profile
from ai_session.tools.integration.project.tree import MAX_FILE_BYTES, Limits, Tree, checked_path
from tests.ai_session.support.integration_projects import APPS, EXPRESS_TS, FASTAPI_MODULE, Project, package

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[4]


def profile_of(root: Path, *globs: str, masked: Sequence[str] = ()) -> Profile:
    with Tree(str(root), masked) as tree:
        return profile_tree(tree, globs)


def write(root: Path, **files: str) -> Path:
    """Files by name; ``__`` is a slash, ``_D_`` a dot."""
    return Project("", {name.replace("__", "/").replace("_D_", "."): text for name, text in files.items()}).write(root)


def test_a_profile_says_what_is_there(home: Path) -> None:
    root = FASTAPI_MODULE.write(home / "shop")
    (root / "tools.sh").write_text("echo\necho no line break at the end")
    profile = profile_of(root).facts()
    evidence = profile.pop("evidence")
    assert profile == {
        "root": str(root),
        "languages": ["python", "shell"],
        "packageManagers": ["uv"],
        "entryPoints": ["app/main.py"],
        "frameworkCandidates": ["fastapi"],
        "riskFlags": [],
        "stats": {"files": 3, "loc": 23},
    }
    assert [(row["framework"], row["kind"], row["filepath"], row["pattern"]) for row in evidence] == [
        ("fastapi", "dependency", "pyproject.toml", "fastapi"),
        ("fastapi", "import", "app/main.py", ""),
        ("fastapi", "app", "app/main.py", "app = FastAPI("),
    ]


@pytest.mark.parametrize("name", APPS)
def test_every_project_is_recognized_and_its_manager_known(home: Path, name: str) -> None:
    project = APPS[name]
    profile = profile_of(project.write(home / "p"))
    assert profile.package_managers == (project.manager,)
    assert len(profile.entry_points) == 1
    assert set(profile.risks) == set()
    found = detect(profile)
    assert found["frameworks"][0]["name"] == project.framework
    assert 0.7 <= found["frameworks"][0]["confidence"] <= 0.99
    for row in found["frameworks"][0]["insertAnchors"]:
        assert (home / "p" / row["filepath"]).read_text().count(row["pattern"]) >= 1
    assert detect(read_profile(json.loads(json.dumps(profile.facts())))) == found


def test_nothing_is_known_of_nothing(home: Path) -> None:
    (home / "empty").mkdir()
    profile = profile_of(home / "empty").facts()
    assert profile["riskFlags"] == ["missing_entrypoint", "missing_manifest"]
    assert (profile["languages"], profile["stats"]) == ([], {"files": 0, "loc": 0})
    assert detect(Profile()) == {"frameworks": [], "recommended_patterns": []}
    assert detect(read_profile({})) == {"frameworks": [], "recommended_patterns": []}


def test_what_is_made_or_installed_does_not_count(home: Path) -> None:
    write(home / "p", main_D_py="x = 1\n", node_modules__a_D_js="1\n", dist__b_D_js="1\n", _D_git__c_D_py="1\n")
    write(home / "p", _D_venv__lib__d_D_py="1\n", vendor__e_D_go="1\n", sample_D_egg_info__f_D_py="1\n")
    (home / "p" / "data.py").write_bytes(b"\0\1")
    (home / "p" / "sample.egg-info").mkdir()
    (home / "p" / "sample.egg-info" / "g.py").write_text("1\n")
    profile = profile_of(home / "p")
    assert set(profile.languages) == {"python"}
    assert (profile.files, profile.lines) == (3, 2)


def test_comments_and_tests_are_no_evidence(home: Path) -> None:
    write(home / "p", a_D_js="// const app = express()\n/* require('express') */\n", tests__b_D_py="app = FastAPI()\n")
    assert profile_of(home / "p").candidates == ()


def test_risks_are_named(home: Path) -> None:
    write(home / "p", a_D_py="a = FastAPI()\n", b_D_py="b = FastAPI()\n", package_D_json="[1", yarn_D_lock="")
    write(home / "p", pnpm_lock_D_yaml="")
    (home / "p" / "pnpm-lock.yaml").write_text("")
    assert set(profile_of(home / "p").risks) == {
        "multiple_entrypoints",
        "multiple_package_managers_node",
        "unreadable_manifest",
    }


def test_globs_choose_what_counts(home: Path) -> None:
    root = EXPRESS_TS.write(home / "p")
    assert profile_of(root, "src/*.ts").files == 2
    assert profile_of(root, "**/greeting.ts").files == 1
    assert profile_of(root, "*.py").files == 0


def test_no_link_is_followed_and_no_secret_is_read(home: Path) -> None:
    write(home / "outside", secret_D_py="app = FastAPI()\n")
    root = write(home / "p", a_D_py="x = 1\n", _D_env="app = FastAPI()\n", own_D_py="app = FastAPI()\n")
    (root / "link.py").symlink_to(home / "outside/secret.py")
    (root / "folder").symlink_to(home / "outside")
    os.mkfifo(root / "pipe.py")
    profile = profile_of(root, masked=("own.*",))
    assert (profile.files, profile.lines, profile.candidates) == (2, 1, ())
    with Tree(str(root), ("own.*",)) as tree:
        assert [tree.read(path) for path in ("link.py", "folder/secret.py", "pipe.py", ".env", "own.py")] == [None] * 5
        assert tree.read("a.py") == "x = 1\n"
        assert [tree.kind(path) for path in ("link.py", "folder/secret.py", "pipe.py", "a.py", "folder")] == [
            "link",
            "link",
            "other",
            "file",
            "link",
        ]
        (root / "a.py").unlink()
        (root / "a.py").symlink_to(home / "outside/secret.py")
        assert tree.read("a.py") is None


def test_the_root_itself_is_no_link_by_the_time_it_is_opened(home: Path) -> None:
    (home / "real").mkdir()
    (home / "link").symlink_to(home / "real")
    with pytest.raises(DirectoryUnusable), Tree(str(home / "link")):
        raise AssertionError("opened")
    with pytest.raises(DirectoryUnusable, match="No such file"), Tree(str(home / "nowhere")):
        raise AssertionError("opened")


def test_bounds_are_met_and_said(home: Path) -> None:
    for number in range(9):
        write(home / "p", **{f"f{number}_D_py": "x = 1\n"})
    with Tree(str(home / "p"), limits=Limits(entries=5, read_bytes=4)) as tree:
        profile = profile_tree(tree)
    assert (profile.files, profile.lines) == (5, 1)
    assert "scan_bounded" in profile.risks
    assert profile.facts()["warnings"] == [
        "not everything was read: read 6 bytes",
        "not everything was read: looked at 5 files and directories",
    ]
    deep = home / "deep" / "/".join("d" * 40)
    deep.mkdir(parents=True)
    assert profile_of(home / "deep").warnings == ("not everything was read: looked 24 directories deep",)


def test_a_large_file_counts_but_is_not_read(home: Path) -> None:
    write(home / "p", a_D_py="x\n" * (MAX_FILE_BYTES // 2 + 1))
    profile = profile_of(home / "p")
    assert (profile.files, profile.lines) == (1, 0)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../a",
        "a/../../b",
        "a//b",
        "./a",
        "~/a",
        "a\0",
        "a\nb",
        "C:/a",
        "a\\b",
        ".git/hooks/x",
        "x" * 2000,
        "a/.GIT/config",
        5,
        None,
        ["a"],
    ],
)
def test_paths_that_lead_out_are_refused(path: object) -> None:
    with pytest.raises(InvalidArguments) as refused:
        checked_path(path)
    assert refused.value.suggestion


def test_a_foreign_profile_is_read_as_far_as_it_fits() -> None:
    given: dict[str, Any] = {
        "root": 7,
        "languages": ["Python", 5, "x" * 100, None],
        "packageManagers": "npm",
        "entryPoints": ["app/main.py", "../../etc/passwd", {"a": 1}],
        "frameworkCandidates": ["FastAPI", ["x"]],
        "evidence": [{"framework": "fastapi"}, 5, {"framework": "x", "kind": "app", "filepath": "/a", "pattern": 1}],
    }
    profile = read_profile(given)
    assert profile == Profile(languages=("python",), entry_points=("app/main.py",), candidates=("fastapi",))
    (row,) = detect(profile)["frameworks"]
    assert (row["name"], row["confidence"], row["insertAnchors"]) == ("fastapi", 0.72, [])
    assert row["reasons"] == [
        "the profile names it among its frameworkCandidates",
        "app/main.py is named as its apps often are",
    ]


def test_clients_are_recognized_by_their_files(home: Path) -> None:
    write(home / "p", _D_mcp_D_json="{}", ccswarm_D_toml="", _D_gemini__settings_D_json="{}", CLAUDE_D_md="")
    found = {row["name"]: row["confidence"] for row in detect(profile_of(home / "p"))["frameworks"]}
    assert found == {"claude-code": 0.7, "gemini": 0.7, "ccswarm": 0.7}


def test_the_surest_app_is_chosen_or_what_a_person_names(home: Path) -> None:
    root = EXPRESS_TS.write(home / "p")
    write(root, _D_mcp_D_json="{}")
    profile = profile_of(root)
    assert choose(profile)[0].name == "express"
    assert choose(profile, "How do I integrate Next.js?")[0].name == "nextjs"
    assert choose(profile, "What comes next?")[0].name == "express"
    assert choose(profile, "Set up cursor, please.")[0].name == "cursor"
    assert choose(Profile())[0].name == "claude-code"
    assert "no framework" in choose(Profile())[1]


SPELLED = {
    "FastAPI": "fastapi",
    "next.js": "nextjs",
    "Nest": "nestjs",
    "@nestjs/core": "nestjs",
    ".mcp.json": "claude-code",
    "VS Code": "vscode",
    "ccswarm.toml": "ccswarm",
    ".codex/config.toml": "codex",
    "Claude Code": "claude-code",
}


@pytest.mark.parametrize(("spelled", "name"), SPELLED.items())
def test_frameworks_go_by_several_names(spelled: str, name: str) -> None:
    assert framework(spelled).name == name


def test_an_unknown_framework_names_those_there_are() -> None:
    with pytest.raises(InvalidArguments) as refused:
        framework("fastapy")
    assert "did you mean fastapi?" in refused.value.suggestion
    assert all(name in refused.value.suggestion for name in FRAMEWORKS)


def test_pages_that_are_named_exist() -> None:
    for one in FRAMEWORKS.values():
        page, _, section = one.doc.partition("#")
        headings = [
            line.lstrip("# ").lower() for line in (ROOT / page).read_text().splitlines() if line.startswith("##")
        ]
        assert section in [heading.replace(" ", "-").replace(".", "") for heading in headings]


def test_manifests_say_who_manages_packages(home: Path) -> None:
    cases = {
        "npm": {"package.json": package("left-pad")},
        "pnpm": {"package.json": package(packageManager="pnpm@9"), "package-lock.json": "{}"},
        "bun": {"package.json": package(), "bun.lockb": ""},
        "poetry": {"pyproject.toml": "[tool.poetry]\nname = 'a'\n[tool.poetry.dependencies]\nfastapi = '*'\n"},
        "uv": {"pyproject.toml": "[tool.uv]\n"},
        "pip": {"requirements-dev.txt": "flask\n"},
    }
    for name, files in cases.items():
        profile = profile_of(Project("", files).write(home / name))
        assert profile.package_managers[0] == name
        assert ("fastapi" in profile.candidates) == (name == "poetry")
