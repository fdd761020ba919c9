"""A forged rescue, for example by an agent on another machine, cannot write outside the workspace."""

from __future__ import annotations

import copy
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.rescue import rescue
from tests.integration.rescue.world import RescueWorld, git

pytestmark = pytest.mark.anyio
REF = "refs/ao/rescue/app-task"
Change = Callable[[dict[str, Any], str], None]


def _of_git(name: str) -> Change:
    return lambda manifest, blob: manifest["git_files"].update({name: blob})


def _entry(path: str, blob: str = "") -> Change:
    return lambda manifest, own: manifest["entries"].append(
        {"path": path, "kind": "file", "mode": 420, "blob": blob or own}
    )


def _set(key: str, value: Any) -> Change:
    return lambda manifest, _: manifest.update({key: value})


CHANGES: dict[str, Change] = {
    "a file of Git's by its whole name": _of_git("MINE"),
    "a file of Git's beside": _of_git("../../../../mine"),
    "where Git's folder is": _of_git("commondir"),
    "a file by its whole name": _entry("MINE"),
    "a file beside": _entry("../../mine"),
    "where the repository is": _entry(".git"),
    "a file for a blob": _entry("new", "MINE"),
    "a blob beside": _entry("new", "../../../mine"),
    "something to remove": _set("absent", ["../../mine"]),
    "a folder to make": _set("empty", ["../../made"]),
    "a submodule beside": _set("filled", ["../../made"]),
    "an order for a ref": _set("refs", {"refs/x 1\ndelete refs/heads/main": "1" * 40}),
    "an option for a commit": _set("head", "--prefix=x/"),
    "an option for a branch": _set("head_ref", "--delete"),
    "another kind": lambda manifest, blob: manifest["entries"].append(
        {"path": "x", "kind": "?", "mode": 1, "blob": blob}
    ),
    "another key": _set("other", 1),
    "no lists": _set("entries", 1),
}


async def forge(world: RescueWorld, change: Change, mode: str = "100644", content: bytes = b"forged\n") -> None:
    """Save a workspace, then replace the rescue by a forged one."""
    await world.make()
    (world.path / "new.txt").write_text("new\n")
    await rescue(world.host, world.spec.repo, world.path, "app-task")
    repo, state = world.spec.repo, git(world.spec.repo, "rev-parse", f"{REF}^2")
    contents = json.loads(git(repo, "cat-file", "blob", f"{state}:blobs/manifest.json"))
    blob = git(repo, "hash-object", "-w", "--stdin", stdin=content)
    change(contents, blob)
    text = json.dumps(contents).replace("MINE", str(world.path.parent.parent / "mine"))
    manifest_blob = git(repo, "hash-object", "-w", "--stdin", stdin=text.encode())
    blob_lines = [line for line in git(repo, "ls-tree", f"{state}:blobs").splitlines() if "manifest.json" not in line]
    lines = [*blob_lines, f"{mode} blob {blob}\t{blob}", f"100644 blob {manifest_blob}\tmanifest.json", ""]
    blobs = git(repo, "mktree", stdin="\n".join(lines).encode())
    tree = git(repo, "mktree", stdin=f"040000 tree {blobs}\tblobs\n".encode())
    state_commit = git(repo, "commit-tree", tree, "-m", "state")
    rescue_commit = git(
        repo, "commit-tree", f"{REF}^{{tree}}", "-p", f"{REF}^1", "-p", state_commit, "-m", "Rescue: 1 untracked file"
    )
    git(repo, "update-ref", REF, rescue_commit)
    (world.path / "new.txt").unlink()


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    """Create a file of the user outside the session's folders."""
    (tmp_path / "mine").write_text("what I wrote\n")
    return tmp_path / "mine"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_names_in_a_forged_rescue_cannot_leave_the_workspace(
    world: RescueWorld, users_file: Path, change: Change
) -> None:
    await forge(world, change)
    with pytest.raises(AoError, match="no rescue that was made here"):
        await world.recreate()
    assert users_file.read_text() == "what I wrote\n" and not (users_file.parent / "made").exists()
    assert git(world.spec.repo, "rev-parse", "main") == git(world.path, "rev-parse", "HEAD")


async def test_a_symlink_in_place_of_a_blob_is_not_followed(world: RescueWorld, users_file: Path) -> None:
    await forge(world, _entry("copied"), "120000", str(users_file).encode())
    await world.recreate()
    assert (world.path / "copied").read_text() == str(users_file)


async def test_shared_branches_are_not_moved_by_a_rescue(world: RescueWorld) -> None:
    await forge(world, lambda manifest, _: manifest["refs"].update({"refs/heads/main": manifest["head"]}))
    git(world.spec.repo, "commit", "-q", "--allow-empty", "-m", "more")
    before = git(world.spec.repo, "rev-parse", "main")
    await world.recreate()
    assert git(world.spec.repo, "rev-parse", "main") == before


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = 7 if kind == tarfile.REGTYPE else 0
    return info


ARCHIVES = {
    "a whole name": [_member("MINE")],
    "a name beside": [_member("../../../mine")],
    "behind a link": [_member("./a", tarfile.SYMTYPE, "../../.."), _member("./a/mine")],
    "a link instead of a folder": [
        _member("./a", tarfile.SYMTYPE, "../../.."),
        _member("./a", tarfile.DIRTYPE),
        _member("./a/mine"),
    ],
    "another name of a file": [_member("./a", tarfile.LNKTYPE, "MINE"), _member("./a")],
    "another name of a file beside": [_member("./a", tarfile.LNKTYPE, "../../../mine"), _member("./a")],
    "another name of one behind a link": [
        _member("./a", tarfile.SYMTYPE, "../../.."),
        _member("./b", tarfile.LNKTYPE, "./a/mine"),
    ],
    "a device": [_member("./a", tarfile.CHRTYPE)],
}


@pytest.mark.parametrize("members", ARCHIVES.values(), ids=ARCHIVES)
async def test_archives_in_a_forged_rescue_cannot_leave_the_workspace(
    world: RescueWorld, users_file: Path, members: list[tarfile.TarInfo]
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for member in map(copy.copy, members):
            member.name, member.linkname = (
                text.replace("MINE", str(users_file)) for text in (member.name, member.linkname)
            )
            tar.addfile(member, io.BytesIO(b"forged\n"))
    nested = {"path": "inner", "kind": "nested", "mode": 493}
    await forge(
        world, lambda manifest, blob: manifest["entries"].append({**nested, "blob": blob}), content=packed.getvalue()
    )
    with pytest.raises(AoError, match="no rescue that was made here"):
        await world.recreate()
    assert users_file.read_text() == "what I wrote\n" and users_file.stat().st_nlink == 1
