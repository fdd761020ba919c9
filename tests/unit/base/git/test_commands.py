"""Names, layouts and commands of Git, compared with Git itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.base.git.commands import (
    REF_ABSENT,
    Git,
    GitFailed,
    find_layout,
    is_valid_branch,
    read_head,
    repository_lock,
)
from agent_orchestrator.base.git.listings import StatusEntry
from agent_orchestrator.base.git.refs import escape_for_ref, read_refs
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Temporary
from agent_orchestrator.protocols.host import ProgramResult
from agent_orchestrator.testing.contracts.workspace import git_in

pytestmark = pytest.mark.anyio

PARTS = st.sampled_from(
    [*"aZ9-_./@{}~^:?*[\\ \x7f\t", "..", "@{", ".lock", "//", "/.", "HEAD", "refs/heads/", "ü", "-"]
)


def git_accepts(name: str) -> bool:
    return (
        subprocess.run(
            ["git", "check-ref-format", "--branch", name], capture_output=True, check=False, cwd="/"
        ).returncode
        == 0
    )


@given(st.lists(PARTS, min_size=1, max_size=4).map("".join))
def test_branch_names_are_valid_exactly_if_git_accepts_them(name: str) -> None:
    assert is_valid_branch(name) == (name != "@" and git_accepts(name))


@pytest.mark.parametrize(
    "name", ["HEAD", "-x", "a.lock/b", "a/.b", "a.", "a..b", "@{-1}", "x" * 10, "a/@/b", "@a", "a@"]
)
def test_unusual_branch_names_are_valid_exactly_if_git_accepts_them(name: str) -> None:
    assert is_valid_branch(name) == git_accepts(name)


@given(st.text(min_size=1, max_size=12))
def test_any_session_name_can_be_escaped_into_a_branch_name(name: str) -> None:
    assert is_valid_branch("ao/" + escape_for_ref(name.encode(errors="replace").decode()))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    repo.mkdir()
    git_in(repo, "init", "-q", "-b", "main")
    (repo / "a").write_text("a\n")
    git_in(repo, "add", "a")
    git_in(repo, "commit", "-qm", "first")
    return repo


@pytest.fixture
def git(repo: Path) -> Git:
    return Git(LocalHost(), repo)


def test_head_is_read_from_files(repo: Path, tmp_path: Path) -> None:
    head = git_in(repo, "rev-parse", "HEAD")
    layout = find_layout(repo)
    assert layout and layout.common == repo / ".git" and read_head(layout.git_dir) == head
    git_in(repo, "pack-refs", "--all")
    assert read_head(layout.git_dir) == head
    git_in(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    git_in(tmp_path / "side", "commit", "-q", "--allow-empty", "-m", "second")
    side = find_layout(tmp_path / "side")
    assert side and side.common == repo / ".git" and side.git_dir == repo / ".git" / "worktrees" / "side"
    assert read_head(side.git_dir) == git_in(tmp_path / "side", "rev-parse", "HEAD") != head
    git_in(tmp_path / "side", "checkout", "-q", "--detach")
    assert read_head(side.git_dir) == git_in(tmp_path / "side", "rev-parse", "HEAD")
    git_in(tmp_path / "side", "checkout", "-q", "--orphan", "new")
    assert read_head(side.git_dir) is None
    git_in(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    bare = find_layout(tmp_path / "bare.git")
    assert bare and bare.top is None and read_head(bare.git_dir) == head
    assert find_layout(tmp_path) is None


async def test_a_folder_below_the_top_belongs_to_the_repository(repo: Path) -> None:
    (repo / "deep").mkdir()
    layout = await Git(LocalHost(), repo / "deep").layout()
    assert layout and layout.top == repo and layout.common == repo / ".git"


async def test_refs_and_commits_are_resolved_created_and_deleted(git: Git, repo: Path) -> None:
    head = git_in(repo, "rev-parse", "HEAD")
    assert await git.resolve("main") == head and await git.resolve("nope") is None and await git.resolve("-x") is None
    assert await git.branch_exists("main") and not await git.branch_exists("nope")
    assert await git.current_branch() == "main" and await git.default_branch() == "main" and not await git.is_bare()
    assert (await git.version()) >= (2, 20)
    tree = await git.make_tree([("100644", "blob", await git.hash_bytes(b"x"), "x")])
    second = await git.commit_tree(tree, [head], "second")
    await git.update_ref("refs/heads/two", second, REF_ABSENT)
    with pytest.raises(GitFailed):
        await git.update_ref("refs/heads/two", head, head)
    assert await git.is_ancestor(head, second) and not await git.is_ancestor(second, head)
    assert await git.count_commits("main..two") == 1 and await git.merge_base("main", "two") == head
    assert await git.refs("refs/heads") == {"refs/heads/main": head, "refs/heads/two": second}
    await git.delete_ref("refs/heads/two", second)
    assert not await git.branch_exists("two")


async def test_a_diff_may_end_at_the_uncommitted_files(git: Git, repo: Path) -> None:
    git_in(repo, "checkout", "-q", "-b", "work")
    (repo / "committed").write_text("c\n")
    git_in(repo, "add", "committed")
    git_in(repo, "commit", "-qm", "work")
    (repo / "a").write_text("changed\n")
    (repo / "new file").write_text("n\n")
    (repo / "nested").mkdir()
    git_in(repo / "nested", "init", "-q")
    index = (repo / ".git" / "index").read_bytes()
    assert (await git.diff("main", "work", form="name-status")).split("\n") == ["A\tcommitted", ""]
    assert (await git.diff("main", form="name-status")).splitlines() == ["M\ta", "A\tcommitted", "A\tnew file"]
    patch = await git.diff("main")
    assert "+changed" in patch and "+n" in patch and "3 files changed" in await git.diff("main", form="stat")
    assert (repo / ".git" / "index").read_bytes() == index


class OtherMachine(LocalHost):
    """Another machine, with its own folder for temporary files."""

    def __init__(self, temporary: Path) -> None:
        super().__init__()
        self.temporary = temporary
        self.indexes: set[Path] = set()

    async def run(self, argv: Sequence[str], **more: Any) -> ProgramResult:
        env = {**os.environ, **(more.pop("env", None) or {}), "TMPDIR": str(self.temporary)}
        if index := env.get("GIT_INDEX_FILE"):
            self.indexes.add(Path(index))
        return await super().run(argv, **more, env=env)


async def test_the_temporary_index_of_a_diff_lies_on_the_workspaces_machine(repo: Path, tmp_path: Path) -> None:
    other_machine = OtherMachine(tmp_path / "there")
    other_machine.temporary.mkdir()
    (repo / "new").write_text("n\n")
    assert "+n" in await Git(other_machine, repo).diff("main")
    assert other_machine.indexes and all(
        index.is_relative_to(other_machine.temporary) for index in other_machine.indexes
    )
    assert not list(other_machine.temporary.iterdir())


async def test_a_remote_head_is_not_confused_with_a_branch_of_the_same_ending(git: Git, repo: Path) -> None:
    git_in(repo, "commit", "-q", "--allow-empty", "-m", "another")
    git_in(repo, "branch", "feature/x", "HEAD~1")
    git_in(repo, "branch", "a/refs/heads/feature/x", "HEAD")
    git_in(repo, "branch", "a/refs/heads/gone", "HEAD")
    own = git_in(repo, "rev-parse", "HEAD~1")
    assert await git.remote_head(str(repo), "feature/x", env={}, timeout=60) == own
    assert await git.remote_head(str(repo), "gone", env={}, timeout=60) is None


async def test_status_names_every_file(git: Git, repo: Path) -> None:
    (repo / "a").write_text("changed\n")
    (repo / "d").mkdir()
    (repo / "d" / "new\nline").write_text("x")
    changes = await git.status()
    assert [(change.xy, change.path) for change in changes] == [(".M", "a"), ("??", "d/new\nline")]
    assert changes[0].blobs == (git_in(repo, "rev-parse", ":a"),) and changes[1] == StatusEntry("??", "d/new\nline")


async def test_files_are_stored_byte_for_byte(git: Git, repo: Path, tmp_path: Path) -> None:
    git_in(repo, "config", "core.autocrlf", "true")
    names = ["plain", "new\nline", "end\r", '"q"']
    for name in names:
        (tmp_path / name).write_bytes(b"one\r\ntwo\n" + name.encode())
    for name, sha in zip(names, await git.hash_files([tmp_path / name for name in names]), strict=True):
        assert (await git.run("cat-file", "blob", sha)).out == b"one\r\ntwo\n" + name.encode()


async def test_configuration_is_the_users_and_not_ours(git: Git, repo: Path) -> None:
    git_in(repo, "config", "core.hooksPath", "mine")
    git_in(repo, "config", "--add", "x.y", "1")
    git_in(repo, "config", "--add", "x.y", "two\nlines")
    config = await git.config()
    assert config.effective_value("core.hookspath") == "mine" and config["x.y"] == ["1", "two\nlines"]
    assert config.effective_value("gc.auto") is None and not config.is_true("commit.gpgsign")


async def test_a_ref_update_waits_for_a_lock(git: Git, repo: Path) -> None:
    lock = repo / ".git" / "refs" / "heads" / "x.lock"
    lock.touch()
    asyncio.get_running_loop().call_later(0.1, lock.unlink)
    await git.update_ref("refs/heads/x", git_in(repo, "rev-parse", "HEAD"))
    assert await git.branch_exists("x")


async def test_a_lock_that_stays_is_named_in_the_error(git: Git, repo: Path) -> None:
    (repo / ".git" / "refs" / "heads" / "x.lock").touch()
    with pytest.raises(Temporary, match=r"x\.lock"):
        await git.update_ref("refs/heads/x", git_in(repo, "rev-parse", "HEAD"))


async def test_gits_environment_variables_are_ignored(
    git: Git, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nothing"))
    assert await git.resolve("main")


async def test_a_repository_has_one_lock_by_any_path(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(repo)
    lock = repository_lock(repo / ".git")
    assert repository_lock(tmp_path / "alias" / ".git") is lock and repository_lock(tmp_path) is not lock


@pytest.mark.parametrize(
    ("stderr", "retryable"),
    [
        ("fatal: unable to write loose object file: No space left on device", True),
        ("fatal: cannot create directory at 'x': Read-only file system", True),
        ("fatal: sha1 file '/r/.git/index.lock' write error. Out of diskspace", True),
        ("fatal: unable to write new index file", True),
        ("error: unable to create temporary file: Too many open files", True),
        ("git: error while loading shared libraries: libz: cannot open shared object file: Error 24", True),
        ("fatal: not a valid object name HEAD", False),
    ],
)
def test_a_git_failure_for_lack_of_resources_is_retryable(stderr: str, retryable: bool) -> None:
    assert GitFailed(["hash-object"], Path("repo"), ProgramResult(128, b"", stderr.encode())).retryable is retryable
    assert GitFailed(["hash-object"], Path("repo"), ProgramResult(-9, b"", stderr.encode())).retryable


class OutOfDescriptors(LocalHost):
    async def run(self, *_args: Any, **_options: Any) -> ProgramResult:
        return ProgramResult(128, b"", b"fatal: unable to open .git/HEAD: Too many open files\n")


async def test_a_name_that_cannot_be_resolved_for_lack_of_resources_raises(repo: Path) -> None:
    with pytest.raises(GitFailed) as failed:
        await Git(OutOfDescriptors(), repo).resolve("main")
    assert failed.value.retryable


@pytest.mark.parametrize("packed", [False, True])
async def test_refs_are_read_as_git_reads_them(tmp_path: Path, packed: bool) -> None:
    git_in(tmp_path, "init", "-q", "-b", "main")
    git_in(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    for name in ("a/b", "a/bc", "a/b-c", "x/y/deep/er", "x/y/deep/est", "x/yz"):
        git_in(tmp_path, "branch", name)
    git_in(tmp_path, "tag", "-am", "peeled", "v1")
    git_in(tmp_path, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/a/bc")
    if packed:
        git_in(tmp_path, "pack-refs", "--all")
        git_in(tmp_path, "commit", "-q", "--allow-empty", "-m", "newer than what is packed")
    names = [
        "refs/heads/main",
        "refs/heads/a/b",
        "refs/heads/a",
        "refs/heads/b",
        "refs/tags/v1",
        "refs/remotes/origin/HEAD",
    ]
    refs = await Git(LocalHost(), tmp_path).refs(*(name for name in names if name != "refs/heads/a"), "refs/heads/x/y")
    assert len(refs) == 6 and read_refs(tmp_path / ".git", names, "refs/heads/x/y") == refs


def test_refs_in_the_reftable_format_are_left_to_git(tmp_path: Path) -> None:
    git_in(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".git" / "reftable").mkdir()
    assert read_refs(tmp_path / ".git", ["refs/heads/main"], "refs/heads/x") is None
