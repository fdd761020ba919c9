"""Random workspaces: whatever an agent leaves is saved, survives the workspace's removal, and comes back byte for byte.

`make test-rescue` tries a thousand. In half of them somebody is killed in the midst of saving, removing or bringing back.
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
from agent_orchestrator.plugins.workspaces.clone import Clone
from agent_orchestrator.plugins.workspaces.worktree import Worktree
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import Completed
from agent_orchestrator.sessions.rescue import is_safe, rescue, restore_work
from tests.examples import examples
from tests.integration.rescue.drawing import STEPS, Step, carry_out
from tests.integration.rescue.world import Seen, World, files_of, git, make_repository, state_of

EXAMPLES = int(os.environ.get("AO_RESCUE_EXAMPLES", "0"))
DEATHS = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(["rescue", "remove", "create", "bring back"]), st.integers(0, 30), st.booleans()),
)
Death = tuple[str, int, bool] | None
T = TypeVar("T")


class Mortal(LocalHost):
    """Dies with its process at a chosen command: before it, or after it was done and nobody knows."""

    def __init__(self, at: int, after: bool) -> None:
        super().__init__()
        self.left, self.after = at, after

    async def run(self, *given: Any, **named: Any) -> Completed:
        self.left -= 1
        if self.left < 0 and not self.after:
            os._exit(9)
        done = await super().run(*given, **named)
        if self.left < 0:
            os._exit(9)
        return done


def killed_in(work: Callable[[LocalHost], Coroutine[Any, Any, object]], at: int, after: bool) -> None:
    """Begin something in a process of its own that dies in the midst of it, or not at all if it ends before."""
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(work(Mortal(at, after)))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


TRACES = {"file ORIG_HEAD", "file COMMIT_EDITMSG"}
"""What finished commands leave behind: where nothing is to be saved, it goes with the workspace."""
OF_MERGES = {"file AUTO_MERGE", "file MERGE_MSG", "file MERGE_RR"}
"""The same of a merge, a rebase or a revert that came to its end; while one is unfinished, it is part of that."""


def there_and_back(folder: Path, plugin: type[Worktree] | type[Clone], steps: list[Step], death: Death) -> None:
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
    asyncio.run(World(host, plugin({}, host), spec).make())
    if plugin is Clone:
        git(spec.path, "branch", "other", "origin/other")
    for step in steps:
        carry_out(spec.path, step)
    files, state = files_of(spec.path), state_of(spec.path)
    ignored = _ignored(spec.path)
    kept = _but_ignored_folders(spec.path, files)

    def do(name: str, work: Callable[[LocalHost], Coroutine[Any, Any, T]]) -> T:
        if death and death[0] == name:
            killed_in(work, death[1], death[2])
        return asyncio.run(work(host))

    saved = do("rescue", lambda host: rescue(host, repo, spec.path, "s", ignored))
    assert files_of(spec.path) == files and state_of(spec.path) == state, "saving changes nothing"
    why = asyncio.run(is_safe(host, repo, spec.path, "s", ignored))
    if saved.unsafe:
        assert why, "what cannot be saved keeps its workspace"
        return
    assert why == ()
    do("remove", lambda host: plugin({}, host).remove(spec))
    assert not spec.path.exists()
    if "(no branch)" not in git(
        repo, "stash", "list"
    ):  # such a one is nobody's, and stays in the repository's own list
        git(repo, "stash", "clear")
    git(repo, "gc", "-q", "--prune=now")
    do("create", lambda host: plugin({}, host).create(again, lambda _: None))
    back = do("bring back", lambda host: restore_work(host, repo, spec.path, "s"))
    assert not back.waiting, back
    _same(spec.path, kept, clean=saved.clean)
    now = state_of(spec.path)
    for name in state.keys() - TRACES - (OF_MERGES if saved.clean else set()):
        assert now.get(name) == state[name], name


def _ignored(root: Path) -> list[str]:
    listing = git(root, "status", "--porcelain", "-z", "--ignored", env={"GIT_OPTIONAL_LOCKS": "0"})
    return [entry[3:].rstrip("/") for entry in listing.split("\0") if entry.startswith("!! ")]


def _but_ignored_folders(root: Path, files: dict[bytes, Seen]) -> dict[bytes, Seen]:
    """Of what Git ignores, files are kept where they are named; folders with nothing in them are not."""
    folders = [name for name, what in files.items() if what[0] == "folder"]
    listing = git(
        root, "check-ignore", "--stdin", "-z", stdin=b"".join(b"%s/\0" % name for name in folders), check=False
    )
    ignored = {os.fsencode(name.rstrip("/")) for name in listing.split("\0")}
    return {name: what for name, what in files.items() if name not in ignored}


def _same(root: Path, before: dict[bytes, Seen], *, clean: bool) -> None:
    """Byte for byte. What Git has itself and nobody changed comes as Git checks it out: with the line endings that its attributes
    ask for, with no mode but `executable`, without folders that have nothing in them.
    """
    now = _but_ignored_folders(root, files_of(root))
    if clean:
        before = {name: what for name, what in before.items() if what[0] != "folder"}
        now = {name: what for name, what in now.items() if what[0] != "folder"}
    assert now.keys() == before.keys()
    for name, (kind, mode, content) in before.items():
        same = (now[name][0], now[name][2]) == (kind, content)
        assert same or (kind == "file" and _converted(root, os.fsdecode(name))), name
        assert now[name][1] & 0o100 == mode & 0o100, name


def _converted(root: Path, name: str) -> bool:
    """Does Git call it unchanged, and has it attributes by which its bytes on the disk are not those in the repository?"""
    known = git(root, "--literal-pathspecs", "ls-files", "--", name)
    changed = git(root, "--literal-pathspecs", "diff", "--name-only", "--", name)
    attributes = git(root, "check-attr", "-z", "text", "eol", "filter", "ident", "working-tree-encoding", "--", name)
    return (
        bool(known)
        and not changed
        and any(value not in ("unspecified", "unset") for value in attributes.split("\0")[2::3])
    )


@pytest.mark.parametrize("plugin", [Worktree, Clone], ids=["worktree", "clone"])
@settings(
    max_examples=EXAMPLES or examples(0.25),
    phases=[Phase.generate],  # a case takes half a second: a found one is made smaller by hand
    suppress_health_check=list(HealthCheck),
)
@given(steps=st.lists(STEPS, min_size=1, max_size=12), death=DEATHS)
def test_any_workspace_comes_back(plugin: type[Worktree] | type[Clone], steps: list[Step], death: Death) -> None:
    with tempfile.TemporaryDirectory(prefix="ao-any-") as folder, pytest.MonkeyPatch.context() as patched:
        own = Path(folder) / "gitconfig"
        own.write_text('[include]\npath = ~/.gitconfig\n[protocol "file"]\nallow = always\n')
        patched.setenv("GIT_CONFIG_GLOBAL", str(own))
        there_and_back(Path(folder), plugin, steps, death)
