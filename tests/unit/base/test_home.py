"""The folder of everything: whose it must be."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.daemon.__main__ import locked


def test_a_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "ao")
    home.path.mkdir()
    home.path.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700"):
        home.make()
    home.path.chmod(0o755)
    home.make()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_symlink_of_another_users_leads_it_nowhere(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    home = Home(tmp_path / "ao")
    home.path.symlink_to(mine)
    os.chown(home.path, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match="another user"):
        home.make()
    os.chown(home.path, os.getuid(), os.getgid(), follow_symlinks=False)
    home.make()


def test_nobody_else_can_hold_the_lock_of_a_folder_that_others_may_enter(tmp_path: Path) -> None:
    home = Home(tmp_path / "ao")
    home.path.mkdir()
    home.path.chmod(0o755)
    home.lock.touch()
    home.lock.chmod(0o644)
    with locked(home):
        assert home.lock.stat().st_mode & 0o777 == 0o600


def test_sockets_are_in_no_folder_that_a_symlink_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(prefix="ao-") as common:
        monkeypatch.setattr("tempfile.gettempdir", lambda: common)
        home = Home(tmp_path / ("x" * 80))
        home.socket("x").parent.symlink_to(mine)
        assert home.socket("x").is_relative_to(common)
        with pytest.raises(PermissionError, match="is a symlink"):
            home.make()


def test_a_socket_has_a_path_that_the_kernel_takes_wherever_temporary_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("a-long-name-for-a-folder-" * 4)
    monkeypatch.setattr(tempfile, "tempdir", str(long / "tmp"))
    assert len(str(Home(long).socket("daemon.sock"))) < 104
