"""The folder of everything: whose it must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.home import Home


def test_a_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "ao")
    home.path.mkdir()
    home.path.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700"):
        home.make()
    home.path.chmod(0o755)
    home.make()


def test_sockets_are_in_no_folder_that_a_symlink_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common, mine = tmp_path / "t", tmp_path / "mine"
    common.mkdir()
    mine.mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(common))
    home = Home(tmp_path / ("x" * 80))
    home.socket("x").parent.symlink_to(mine)
    with pytest.raises(PermissionError, match="is a symlink"):
        home.make()
