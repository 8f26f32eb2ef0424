import pytest

from ai_session import keys
from ai_session.errors import InvalidArguments


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
    ],
)
def test_named_keys_are_the_bytes_a_terminal_sends(name: str, data: bytes) -> None:
    assert keys.encode(name) == data


def test_arrows_follow_the_terminals_cursor_mode() -> None:
    assert keys.encode("Up", application_cursor=True) == b"\x1bOA"
    assert keys.application_cursor(b"x\x1b[?1h\x1b=vim")
    assert not keys.application_cursor(b"x\x1b[?1hvim\x1b[?1l")
    assert not keys.application_cursor(b"")


@pytest.mark.parametrize("name", ["Entr", "", "C-", "F13", "C-é"])
def test_unknown_keys_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        keys.encode(name)
    assert "enter" in caught.value.suggestion
