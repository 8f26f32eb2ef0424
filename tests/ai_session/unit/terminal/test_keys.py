import pytest

from ai_session.errors import InvalidArguments
from ai_session.terminal import keys


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("Enter", b"\r"),
        ("C-c", b"\x03"),
        ("ctrl+D", b"\x04"),
        ("^\\", b"\x1c"),
        ("C-?", b"\x7f"),
        ("M-b", b"\x1bb"),
        ("Up", b"\x1b[A"),
        ("F1", b"\x1bOP"),
        ("F4", b"\x1bOS"),
        ("F5", b"\x1b[15~"),
        ("F12", b"\x1b[24~"),
        ("q", b"q"),
        ("é", "é".encode()),
        ("Escape", b"\x1b"),
        ("C-@", b"\x00"),
        ("C-Space", b"\x00"),
        ("PageDown", b"\x1b[6~"),
        ("C-Up", b"\x1b[1;5A"),
        ("S-Tab", b"\x1b[Z"),
        ("BTab", b"\x1b[Z"),
        ("C-Left", b"\x1b[1;5D"),
        ("S-Right", b"\x1b[1;2C"),
        ("M-Left", b"\x1b[1;3D"),
        ("Ctrl+Shift+Left", b"\x1b[1;6D"),
        ("C-M-a", b"\x1b\x01"),
        ("M-C-a", b"\x1b\x01"),
        ("M-X", b"\x1bX"),
        ("M-S-x", b"\x1bX"),
        ("S-F5", b"\x1b[15;2~"),
        ("C-F1", b"\x1b[1;5P"),
        ("C-Home", b"\x1b[1;5H"),
        ("M-Enter", b"\x1b\r"),
        ("C-Enter", b"\n"),
        ("M-BSpace", b"\x1b\x7f"),
        ("C-Backspace", b"\b"),
        ("PgUp", b"\x1b[5~"),
        ("PPage", b"\x1b[5~"),
        ("Page_Down", b"\x1b[6~"),
        ("ArrowUp", b"\x1b[A"),
        ("DC", b"\x1b[3~"),
        ("S-Delete", b"\x1b[3;2~"),
        ("BSpace", b"\x7f"),
        ("C-/", b"\x1f"),
        ("C-_", b"\x1f"),
        ("C-]", b"\x1d"),
        ("C-2", b"\x00"),
        ("control-c", b"\x03"),
        ("<C-w>", b"\x17"),
        ("<CR>", b"\r"),
        ("M--", b"\x1b-"),
        ("C--", None),
        ("-", b"-"),
        ("^", b"^"),
        ("^C", b"\x03"),
        ("<", b"<"),
        ("+", b"+"),
        ("a", b"a"),
        ("c", b"c"),
        (" ", b" "),
        ("M- ", None),
    ],
)
def test_named_keys_are_the_bytes_a_terminal_sends(name: str, data: bytes | None) -> None:
    if data is None:
        with pytest.raises(InvalidArguments):
            keys.encode(name)
    else:
        assert keys.encode(name) == data


def test_arrows_follow_the_terminals_cursor_mode() -> None:
    assert keys.encode("Up", application_cursor=True) == b"\x1bOA"
    assert keys.application_cursor(b"x\x1b[?1h\x1b=vim")
    assert not keys.application_cursor(b"x\x1b[?1hvim\x1b[?1l")
    assert not keys.application_cursor(b"")


@pytest.mark.parametrize("name", ["Entr", "", "C-", "F13", "C-é", "C-Shift", "Hello", "x" * 5000])
def test_unknown_keys_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        keys.encode(name)
    assert "enter" in caught.value.suggestion


@pytest.mark.parametrize(
    ("name", "meant"),
    [("Entr", "Enter"), ("C-Lft", "C-Left"), ("S-Hom", "S-Home"), ("PgeUp", "Pageup"), ("Bckspace", "Backspace")],
)
def test_a_name_that_is_nearly_right_is_suggested_and_works(name: str, meant: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        keys.encode(name)
    assert caught.value.suggestion.startswith(f"did you mean {meant!r}?")
    assert keys.encode(meant)


def test_what_tmux_calls_keys_is_what_it_sends() -> None:
    """tmux in the terminal's own mode is the reference for names that it knows, too."""
    modified = {"C": 5, "M": 3, "S": 2}
    for letter, number in modified.items():
        for key, last in (("Up", "A"), ("Down", "B"), ("Right", "C"), ("Left", "D"), ("Home", "H"), ("End", "F")):
            assert keys.encode(f"{letter}-{key}") == f"\x1b[1;{number}{last}".encode()
        for key, code in (("DC", 3), ("IC", 2), ("PPage", 5), ("NPage", 6), ("F5", 15), ("F12", 24)):
            assert keys.encode(f"{letter}-{key}") == f"\x1b[{code};{number}~".encode()
