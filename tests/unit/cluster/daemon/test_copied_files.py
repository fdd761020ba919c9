"""Files copied from the main checkout to a workspace on a node: only its own regular files of limited size."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.base.git.settings import clean_environment
from agent_orchestrator.cluster.daemon import site as sites
from agent_orchestrator.cluster.daemon.site import NodeWorkspace

pytestmark = pytest.mark.anyio


class EmptyNode:
    """An empty node."""

    def __init__(self) -> None:
        self.written: dict[str, bytes] = {}
        self.remote = self

    async def folder_exists(self, _path: Path) -> bool:
        return False

    async def write(self, path: Path, data: bytes, *, mode: int) -> None:
        assert mode & 0o400
        self.written[path.name] = data

    def git(self, _path: Path) -> None:
        """Not used in this test."""


async def test_only_the_checkouts_own_files_are_copied_to_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", str(repo)], check=True, env=clean_environment())
    (tmp_path / "id_rsa").write_text("PRIVATE KEY")
    (repo / "out").symlink_to(tmp_path / "id_rsa")
    (repo / "git").symlink_to(repo / ".git" / "config")
    (repo / ".env").write_text("A=1")
    (repo / "within").symlink_to(".env")
    (repo / "large").write_bytes(b"x" * 101)
    monkeypatch.setattr(sites, "MAX_COPIED_FILE_BYTES", 100)

    async def no_patterns(*_args: Any) -> list[str]:
        return []

    monkeypatch.setattr("agent_orchestrator.plugins.workspaces.git_exclude.visible_patterns", no_patterns)
    node = EmptyNode()
    spec = SimpleNamespace(repo=repo, path=Path("/n/w"), copy=("out", "git", ".env", "within", "large"), symlinks=())
    notes = await NodeWorkspace(cast(Any, node), cast(Any, None))._copy_files(cast(Any, spec))
    assert node.written == {".env": b"A=1", "within": b"A=1"}
    assert [note.split(" ")[0] for note in notes] == ["out", "git", "large"] and "too long" in notes[2]
