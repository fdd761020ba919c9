"""Nested repositories are packed unchanged, and symlinks created meanwhile are not followed."""

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


def pack_and_open(root: Path, name: str = "in/repo") -> tarfile.TarFile:
    pack(root, name, root.parent / "packed.tar")
    return tarfile.open(root.parent / "packed.tar")


def test_everything_is_packed_as_tar_would(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pack_and_open(root) as tar:
        packed_members = [
            (member.name, member.type, member.mode, member.size, member.mtime, member.linkname, member.uname)
            for member in tar
        ]
        extracted = root.parent / "there"
        tar.extractall(extracted, filter="fully_trusted")
    with tarfile.open(root.parent / "plain.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(repo, arcname=".")
    with tarfile.open(root.parent / "plain.tar") as tar:
        tar_members = [
            (member.name, member.type, member.mode, member.size, member.mtime, member.linkname, member.uname)
            for member in tar
        ]
    assert sorted(packed_members) == sorted(tar_members) and len(packed_members) == 13
    assert (extracted / "z").samefile(extracted / "zz") and (
        extracted / "d/file"
    ).read_text() == "mine: in/repo/d/file\n"


def call_before_first(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, swap: Callable[..., None]) -> None:
    """Patch a function so that `swap` runs right before its first call."""
    real, calls = getattr(module, name), itertools.count()

    def call_with_swap(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 0:
            swap(*args)
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, call_with_swap)


def replace_by_symlink(path: Path, target: Path) -> None:
    path.rename(path.with_name(f"{path.name} before"))
    path.symlink_to(target)


@pytest.mark.parametrize(("folder", "target"), [("in/repo/d", "secret"), ("in", "secret"), ("in/repo", "secret")])
def test_a_folder_that_becomes_a_symlink_is_not_entered(
    root: Path, monkeypatch: pytest.MonkeyPatch, folder: str, target: str
) -> None:
    (root.parent / "secret/repo").mkdir()
    (root.parent / "secret/repo/d").symlink_to("..")
    call_before_first(
        monkeypatch,
        nested_repositories,
        "open_in_folder",
        lambda *_: replace_by_symlink(root / folder, root.parent / target),
    )
    with pytest.raises(UnsafePath):
        pack_and_open(root)


def test_a_file_that_becomes_a_symlink_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call_before_first(
        monkeypatch,
        nested_repositories,
        "open_in_folder",
        lambda _folder, name: replace_by_symlink(root / "in/repo" / name, root.parent / "secret/z"),
    )
    with pytest.raises(UnsafePath):
        pack_and_open(root)


@pytest.mark.anyio
async def test_a_file_that_becomes_a_pipe_does_not_block(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(_folder: int, name: str) -> None:
        (root / "in/repo" / name).unlink()
        os.mkfifo(root / "in/repo" / name)

    call_before_first(monkeypatch, nested_repositories, "open_in_folder", pipe)
    async with asyncio.timeout(60):
        with pytest.raises(UnsafePath):
            await asyncio.to_thread(pack_and_open, root)


def test_a_symlink_cannot_be_packed(root: Path) -> None:
    (root / "away").symlink_to(root.parent / "secret")
    with pytest.raises(UnsafePath):
        pack_and_open(root, "away")
