"""Random workspaces: whatever mixture of edits, staging and commits an agent leaves, it comes back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_orchestrator.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import Clone
from agent_orchestrator.plugins.workspaces.worktree import Worktree
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.services.rescue import is_safe, rescue
from tests.integration.rescue.world import World, files_of, git, make_repository, state_of

NAMES = st.sampled_from(
    ["a.txt", "b.txt", "d/c.txt", "d", "e", "e/f", "e/f/g", "x y", "out/o", "n\nl", "ü", "-d", "h.log"]
)
CONTENT = st.binary(max_size=40)
STEPS = st.one_of(
    st.tuples(st.just("write"), NAMES, CONTENT),
    st.tuples(st.just("executable"), NAMES, st.just(b"")),
    st.tuples(st.just("link"), NAMES, st.sampled_from([b"a.txt", b"../up", b"d", b"/dev/null"])),
    st.tuples(st.just("remove"), NAMES, st.just(b"")),
    st.tuples(st.just("stage"), NAMES, st.just(b"")),
    st.tuples(st.just("unstage"), NAMES, st.just(b"")),
    st.tuples(st.sampled_from(["commit", "stash", "detach", "amend", "undo", "merge"]), st.just(""), st.just(b"")),
)
COMMANDS = {
    "commit": [["commit", "-qm", "step"]],
    "stash": [["stash", "-q"]],
    "detach": [["checkout", "-q", "--detach"]],
    "amend": [["commit", "-q", "--amend", "-m", "amended"]],
    "undo": [["reset", "-q", "--soft", "HEAD~1"]],
    "merge": [["merge", "-q", "--no-commit", "--no-ff", "other"]],
}


def carry_out(root: Path, step: tuple[str, str, bytes]) -> None:
    """Do one thing as far as it can be done."""
    what, name, content = step
    path = root / name
    for command in COMMANDS.get(what, []):
        git(root, *command, check=False)
    if what in ("stage", "unstage"):
        git(root, *(["add", "-f", "--"] if what == "stage" else ["reset", "-q", "--"]), name, check=False)
    with contextlib.suppress(OSError):
        if what in ("write", "link"):
            path.parent.mkdir(parents=True, exist_ok=True)
        if what == "write" and not path.is_symlink():
            path.write_bytes(content)
        elif what == "executable" and not path.is_symlink():  # it may lead out, to what is not ours
            path.chmod(0o755)
        elif what == "link":
            path.symlink_to(os.fsdecode(content))
        elif what == "remove":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


async def there_and_back(
    folder: Path, plugin: type[Worktree] | type[Clone], steps: list[tuple[str, str, bytes]]
) -> None:
    host = LocalHost()
    repo = make_repository(folder / "repo")
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "a.txt").write_text("other\n")
    git(repo, "commit", "-qam", "other")
    git(repo, "checkout", "-q", "main")
    spec = WorkspaceSpec("s", repo, folder / "w" / "s", None, folder / "p", "feature/s", "main")
    world = World(host, plugin({}, host), spec)
    await world.make()
    if plugin is Clone:
        git(world.path, "branch", "other", "origin/other")
    for step in steps:
        carry_out(world.path, step)
    files, state = files_of(world.path), state_of(world.path)
    ignored = [name for name in ("out", "h.log") if os.path.lexists(world.path / name)]
    saved = await rescue(host, repo, world.path, "s", ignored)
    assert files_of(world.path) == files and state_of(world.path) == state
    assert not saved.unsafe and await is_safe(host, repo, world.path, "s", ignored) == ()
    await world.make_again()
    if saved.clean:
        files = {name: what for name, what in files.items() if what[0] != "folder"}
        assert {name: what for name, what in files_of(world.path).items() if what[0] != "folder"} == files
    else:
        assert files_of(world.path) == files
    now = state_of(world.path)
    for name in ("HEAD", "branch", "index", "status", "stash"):
        assert now[name] == state[name], name


@pytest.mark.parametrize("plugin", [Worktree, Clone], ids=["worktree", "clone"])
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, min_size=1, max_size=12))
def test_any_workspace_comes_back(plugin: type[Worktree] | type[Clone], steps: list[tuple[str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory(prefix="ao-any-") as folder:
        asyncio.run(there_and_back(Path(folder), plugin, steps))
