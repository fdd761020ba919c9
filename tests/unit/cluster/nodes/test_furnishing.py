"""What a workspace on a node is given of the main checkout: files of the checkout itself, of a bearable size, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.base.git.settings import clean_environment
from agent_orchestrator.cluster.nodes import site as sites
from agent_orchestrator.cluster.nodes.site import NodeWorkspace

pytestmark = pytest.mark.anyio


class There:
    """A node on which nothing is yet."""

    def __init__(self) -> None:
        self.written: dict[str, bytes] = {}
        self.remote = self

    async def present(self, _path: Path) -> bool:
        return False

    async def write(self, path: Path, data: bytes, *, mode: int) -> None:
        assert mode & 0o400
        self.written[path.name] = data

    def git(self, _path: Path) -> None:
        """Of no use here."""


async def test_what_is_copied_to_a_node_is_the_checkouts_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", str(repo)], check=True, env=clean_environment())
    (tmp_path / "id_rsa").write_text("PRIVATE KEY")
    (repo / "out").symlink_to(tmp_path / "id_rsa")
    (repo / "git").symlink_to(repo / ".git" / "config")
    (repo / ".env").write_text("A=1")
    (repo / "within").symlink_to(".env")
    (repo / "large").write_bytes(b"x" * 101)
    monkeypatch.setattr(sites, "LARGEST_COPY", 100)

    async def none(*_given: Any) -> list[str]:
        return []

    monkeypatch.setattr("agent_orchestrator.plugins.workspaces.contents.visible_patterns", none)
    there = There()
    spec = SimpleNamespace(repo=repo, path=Path("/n/w"), copy=("out", "git", ".env", "within", "large"), symlinks=())
    notes = await NodeWorkspace(cast(Any, there), cast(Any, None))._copied(cast(Any, spec))
    assert there.written == {".env": b"A=1", "within": b"A=1"}
    assert [note.split(" ")[0] for note in notes] == ["out", "git", "large"] and "too long" in notes[2]
