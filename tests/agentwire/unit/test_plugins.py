"""A file that is no plug-in says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentwire import plugins
from agentwire.errors import ConfigInvalid


@pytest.mark.parametrize("file", ["new.py", "new/plugin.py"])
def test_a_file_without_a_plugin_is_named(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = f"outside_{file.count('/')}"
    path = tmp_path / package / "shapes" / file
    path.parent.mkdir(parents=True)
    path.write_text("plugin = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigInvalid) as refused:
        plugins.load(f"{package}.shapes", "new")
    assert str(path) in refused.value.message
    assert f"PLUGIN = …, an object as {package}.shapes.base describes it" in refused.value.suggestion
