"""A repository within a workspace is packed as it is, and whoever works in it meanwhile leads nobody out of it."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.files.safe import UnsafePath
from agent_orchestrator.sessions.rescue import nested_repositories
from agent_orchestrator.sessions.rescue.nested_repositories import pack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    for name in ("in/repo/.git/HEAD", "in/repo/d/file", "in/repo/d/e/deep", "in/repo/z"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"mine: {name}\n")
    secret = tmp_path / "secret"
    (secret / "e").mkdir(parents=True)
    for name in ("file", "e/deep", "z"):
        (secret / name).write_text("secret\n")
    return root


def packed(root: Path, name: str = "in/repo") -> tarfile.TarFile:
    pack(root, name, root.parent / "packed.tar")
    return tarfile.open(root.parent / "packed.tar")


def test_everything_is_there_as_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = root / "in/repo"
    (repo / "d/link").symlink_to("../../../secret")
    os.link(repo / "z", repo / "zz")
    os.mkfifo(repo / "pipe", 0o640)
    (repo / "d/file").chmod(0o751)
    (repo / os.fsdecode(b"odd \xff\n name")).write_bytes(b"\0")
    (repo / "empty").mkdir(mode=0o711)
    monkeypatch.chdir(repo)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    with packed(root) as tar:
        ours = [(one.name, one.type, one.mode, one.size, one.mtime, one.linkname, one.uname) for one in tar]
        there = root.parent / "there"
        tar.extractall(there, filter="fully_trusted")
    with tarfile.open(root.parent / "plain.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(repo, arcname=".")
    with tarfile.open(root.parent / "plain.tar") as tar:
        theirs = [(one.name, one.type, one.mode, one.size, one.mtime, one.linkname, one.uname) for one in tar]
    assert sorted(ours) == sorted(theirs) and len(ours) == 13
    assert (there / "z").samefile(there / "zz") and (there / "d/file").read_text() == "mine: in/repo/d/file\n"


def swapped(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, swap: Callable[..., None]) -> None:
    """Something happens right before the first call."""
    real, calls = getattr(module, name), itertools.count()

    def first(*given: Any, **more: Any) -> Any:
        if next(calls) == 0:
            swap(*given)
        return real(*given, **more)

    monkeypatch.setattr(module, name, first)


def exchange(path: Path, target: Path) -> None:
    path.rename(path.with_name(f"{path.name} before"))
    path.symlink_to(target)


@pytest.mark.parametrize(("what", "target"), [("in/repo/d", "secret"), ("in", "secret"), ("in/repo", "secret")])
def test_a_folder_that_becomes_a_symlink_is_not_entered(
    root: Path, monkeypatch: pytest.MonkeyPatch, what: str, target: str
) -> None:
    (root.parent / "secret/repo").mkdir()
    (root.parent / "secret/repo/d").symlink_to("..")
    swapped(monkeypatch, nested_repositories, "open_in_folder", lambda *_: exchange(root / what, root.parent / target))
    with pytest.raises(UnsafePath):
        packed(root)


def test_a_file_that_becomes_a_symlink_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped(
        monkeypatch,
        nested_repositories,
        "open_in_folder",
        lambda _folder, name: exchange(root / "in/repo" / name, root.parent / "secret/z"),
    )
    with pytest.raises(UnsafePath):
        packed(root)


@pytest.mark.anyio
async def test_a_file_that_becomes_a_pipe_keeps_nobody_waiting(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(_folder: int, name: str) -> None:
        (root / "in/repo" / name).unlink()
        os.mkfifo(root / "in/repo" / name)

    swapped(monkeypatch, nested_repositories, "open_in_folder", pipe)
    async with asyncio.timeout(60):
        with pytest.raises(UnsafePath):
            await asyncio.to_thread(packed, root)


def test_a_link_is_never_the_top(root: Path) -> None:
    (root / "away").symlink_to(root.parent / "secret")
    with pytest.raises(UnsafePath):
        packed(root, "away")
