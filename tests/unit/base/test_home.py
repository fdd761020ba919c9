"""The home folder of the daemon: its owner, permissions and sockets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.daemon.__main__ import hold_home_lock


def test_a_home_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "ao")
    home.path.mkdir()
    home.path.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700"):
        home.create_folders()
    home.path.chmod(0o755)
    home.create_folders()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner")
def test_a_home_that_is_another_users_symlink_is_refused(tmp_path: Path) -> None:
    own_folder = tmp_path / "mine"
    own_folder.mkdir()
    home = Home(tmp_path / "ao")
    home.path.symlink_to(own_folder)
    os.chown(home.path, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match="another user"):
        home.create_folders()
    os.chown(home.path, os.getuid(), os.getgid(), follow_symlinks=False)
    home.create_folders()


def test_the_lock_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "ao")
    home.path.mkdir()
    home.path.chmod(0o755)
    home.lock.touch()
    home.lock.chmod(0o644)
    with hold_home_lock(home):
        assert home.lock.stat().st_mode & 0o777 == 0o600


def test_a_socket_folder_that_is_a_symlink_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_folder = tmp_path / "mine"
    own_folder.mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(prefix="ao-") as common:
        monkeypatch.setattr("tempfile.gettempdir", lambda: common)
        home = Home(tmp_path / ("x" * 80))
        home.socket("x").parent.symlink_to(own_folder)
        assert home.socket("x").is_relative_to(common)
        with pytest.raises(PermissionError, match="is a symlink"):
            home.create_folders()


def test_a_socket_path_is_short_enough_for_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("a-long-name-for-a-folder-" * 4)
    monkeypatch.setattr(tempfile, "tempdir", str(long / "tmp"))
    assert len(str(Home(long).socket("daemon.sock"))) < 104
