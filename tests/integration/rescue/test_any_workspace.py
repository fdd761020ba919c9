"""Random workspaces: everything an agent leaves is saved and restored byte for byte after the workspace's removal.

`make test-rescue` runs a thousand. In half of them the process is killed during saving, removing or restoring.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import CloneWorkspace
from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import ProgramResult
from agent_orchestrator.sessions.rescue import removal_obstacles, rescue, restore_work
from tests.examples import example_count
from tests.integration.rescue.random_steps import STEPS, Step, run_step
from tests.integration.rescue.world import (
    FileState,
    RescueWorld,
    git,
    ignored_paths,
    make_repository,
    read_files,
    read_git_state,
    without_ignored_folders,
)

EXAMPLES = int(os.environ.get("AO_RESCUE_EXAMPLES", "0"))
DEATHS = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(["rescue", "remove", "create", "bring back"]), st.integers(0, 30), st.booleans()),
)
Death = tuple[str, int, bool] | None
T = TypeVar("T")


class DyingHost(LocalHost):
    """A host that kills its process at a chosen command, before or after it has run."""

    def __init__(self, at: int, after: bool) -> None:
        super().__init__()
        self.remaining_calls, self.after = at, after

    async def run(self, *args: Any, **options: Any) -> ProgramResult:
        self.remaining_calls -= 1
        if self.remaining_calls < 0 and not self.after:
            os._exit(9)
        done = await super().run(*args, **options)
        if self.remaining_calls < 0:
            os._exit(9)
        return done


def run_and_kill(work: Callable[[LocalHost], Coroutine[Any, Any, object]], at: int, after: bool) -> None:
    """Run something in a new process that is killed at a chosen command, if it gets there."""
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(work(DyingHost(at, after)))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


COMMAND_FILES = {"file ORIG_HEAD", "file COMMIT_EDITMSG"}
"""Files left behind by finished commands: if nothing is to be saved, they are removed with the workspace."""
MERGE_FILES = {"file AUTO_MERGE", "file MERGE_MSG", "file MERGE_RR"}
"""The same for finished merges, rebases and reverts; while one is unfinished, they belong to its state."""


def save_and_restore(
    folder: Path, plugin: type[WorktreeWorkspace] | type[CloneWorkspace], steps: list[Step], death: Death
) -> None:
    host = LocalHost()
    make_repository(folder / "library", {"lib.txt": "lib\n"})
    repo = make_repository(folder / "repo")
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "a.txt").write_text("other\n")
    git(repo, "commit", "-qam", "other")
    git(repo, "checkout", "-q", "main")
    (repo / "b.txt").write_text("second\n")
    git(repo, "commit", "-qam", "second")
    spec = WorkspaceSpec("s", repo, folder / "w" / "s", None, folder / "p", "feature/task", "main")
    again = replace(spec, existing=True)
    asyncio.run(RescueWorld(host, plugin({}, host), spec).make())
    if plugin is CloneWorkspace:
        git(spec.path, "branch", "other", "origin/other")
    for step in steps:
        run_step(spec.path, step)
    files, state = read_files(spec.path), read_git_state(spec.path)
    ignored = ignored_paths(spec.path)
    expected_files = without_ignored_folders(spec.path, files)

    def run_maybe_killed(name: str, work: Callable[[LocalHost], Coroutine[Any, Any, T]]) -> T:
        if death and death[0] == name:
            run_and_kill(work, death[1], death[2])
        return asyncio.run(work(host))

    saved = run_maybe_killed("rescue", lambda host: rescue(host, repo, spec.path, "s", ignored))
    assert read_files(spec.path) == files and read_git_state(spec.path) == state, "saving changes nothing"
    reasons = asyncio.run(removal_obstacles(host, repo, spec.path, "s", ignored))
    if saved.unsafe:
        assert reasons, "a workspace with unsaved content is kept"
        return
    assert reasons == ()
    run_maybe_killed("remove", lambda host: plugin({}, host).remove(spec))
    assert not spec.path.exists()
    if "(no branch)" not in git(
        repo, "stash", "list"
    ):  # such a stash belongs to no branch and stays in the repository's list
        git(repo, "stash", "clear")
    git(repo, "gc", "-q", "--prune=now")
    run_maybe_killed("create", lambda host: plugin({}, host).create(again, lambda _: None))
    restored = run_maybe_killed("bring back", lambda host: restore_work(host, repo, spec.path, "s"))
    assert not restored.waiting, restored
    _assert_restored(spec.path, expected_files, clean=saved.clean)
    now = read_git_state(spec.path)
    for name in state.keys() - COMMAND_FILES - (MERGE_FILES if saved.clean else set()):
        assert now.get(name) == state[name], name


def _assert_restored(root: Path, before: dict[bytes, FileState], *, clean: bool) -> None:
    """Check that the files are restored byte for byte.

    Unchanged tracked files are as Git checks them out: with the line endings of their attributes, no mode but `executable`, and without
    empty folders.
    """
    now = without_ignored_folders(root, read_files(root))
    if clean:
        before = {name: state for name, state in before.items() if state[0] != "folder"}
        now = {name: state for name, state in now.items() if state[0] != "folder"}
    assert now.keys() == before.keys()
    for name, (kind, mode, content) in before.items():
        is_equal = (now[name][0], now[name][2]) == (kind, content)
        assert is_equal or (kind == "file" and _is_converted(root, os.fsdecode(name))), name
        assert now[name][1] & 0o100 == mode & 0o100, name


def _is_converted(root: Path, name: str) -> bool:
    """Return whether a file is unchanged for Git and has attributes that convert its content at checkout."""
    tracked = git(root, "--literal-pathspecs", "ls-files", "--", name)
    changed = git(root, "--literal-pathspecs", "diff", "--name-only", "--", name)
    attributes = git(root, "check-attr", "-z", "text", "eol", "filter", "ident", "working-tree-encoding", "--", name)
    return (
        bool(tracked)
        and not changed
        and any(value not in ("unspecified", "unset") for value in attributes.split("\0")[2::3])
    )


@pytest.mark.parametrize("plugin", [WorktreeWorkspace, CloneWorkspace], ids=["worktree", "clone"])
@settings(
    max_examples=EXAMPLES or example_count(0.25),
    phases=[Phase.generate],  # a case takes half a second: failures are reduced by hand
    suppress_health_check=list(HealthCheck),
)
@given(steps=st.lists(STEPS, min_size=1, max_size=12), death=DEATHS)
def test_any_workspace_is_restored(
    plugin: type[WorktreeWorkspace] | type[CloneWorkspace], steps: list[Step], death: Death
) -> None:
    with tempfile.TemporaryDirectory(prefix="ao-any-") as folder, pytest.MonkeyPatch.context() as patched:
        own = Path(folder) / "gitconfig"
        own.write_text('[include]\npath = ~/.gitconfig\n[protocol "file"]\nallow = always\n')
        patched.setenv("GIT_CONFIG_GLOBAL", str(own))
        save_and_restore(Path(folder), plugin, steps, death)
