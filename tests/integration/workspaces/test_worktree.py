"""Worktrees with real repositories: remotes, crashes, full disks, submodules, large files."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import AoError, Conflict
from agent_orchestrator.plugins.workspaces import start_point
from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import ProgramResult
from agent_orchestrator.testing.contracts.workspace import git_in, ignore_line, spec_for
from tests.hostile import create_nested_folders
from tests.integration.rescue.world import make_repository

pytestmark = pytest.mark.anyio


class CountingHost(LocalHost):
    """A host that records its commands."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[list[str]] = []
        self.registering = self.max_registering = 0

    async def run(self, argv, **options) -> ProgramResult:  # type: ignore[no-untyped-def]
        self.commands.append(list(argv))
        counts = "worktree" in argv
        self.registering += counts
        self.max_registering = max(self.max_registering, self.registering)
        try:
            return await super().run(argv, **options)
        finally:
            self.registering -= counts


@pytest.fixture
def host() -> CountingHost:
    return CountingHost()


@pytest.fixture
def worktree(host: CountingHost) -> WorktreeWorkspace:
    start_point._fetch_outcomes.clear()
    return WorktreeWorkspace({}, host)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


@pytest.fixture
def spec(repo: Path, tmp_path: Path) -> WorkspaceSpec:
    return spec_for(repo, tmp_path, "task")


@pytest.fixture
def remote(repo: Path, tmp_path: Path) -> Path:
    """Create a bare repository and set it as the origin of `repo`."""
    git_in(tmp_path, "clone", "-q", "--bare", str(repo), "origin.git")
    git_in(repo, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git_in(repo, "fetch", "-q", "origin")
    git_in(repo, "branch", "-q", "--set-upstream-to=origin/main", "main")
    return tmp_path / "origin.git"


def advance(remote: Path, tmp_path: Path, branch: str = "main") -> str:
    """Push a commit to the remote as another person and return it."""
    other = tmp_path / f"other-{time.monotonic_ns()}"
    git_in(tmp_path, "clone", "-q", str(remote), str(other))
    git_in(other, "checkout", "-q", "-B", branch)
    git_in(other, "commit", "-q", "--allow-empty", "-m", "by somebody else")
    git_in(other, "push", "-q", "--force", "origin", branch)
    return git_in(other, "rev-parse", "HEAD")


def subcommands(host: CountingHost) -> list[str]:
    return [
        next(
            word
            for word in argv
            if word in ("fetch", "worktree", "reset", "config", "for-each-ref", "rev-parse", "merge-base")
        )
        for argv in host.commands
    ]


async def test_creating_a_worktree_takes_three_processes(
    worktree: WorktreeWorkspace, host: CountingHost, spec: WorkspaceSpec
) -> None:
    await worktree.create(spec, ignore_line)
    assert sorted(subcommands(host)) == ["config", "reset", "worktree"]


async def test_worktrees_are_registered_one_at_a_time(
    worktree: WorktreeWorkspace, host: CountingHost, repo: Path, tmp_path: Path
) -> None:
    await asyncio.gather(*(worktree.create(spec_for(repo, tmp_path, f"t{number}"), ignore_line) for number in range(6)))
    assert host.max_registering == 1 and len(host.commands) == 18


async def test_a_worktree_starts_from_the_remote_if_that_is_ahead(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, remote: Path, tmp_path: Path
) -> None:
    local = git_in(spec.repo, "rev-parse", "main")
    newest = advance(remote, tmp_path)
    info = await worktree.create(spec, ignore_line)
    assert (info.base_commit, info.head, info.notes) == (newest, newest, ())
    assert git_in(spec.repo, "rev-parse", "main") == local, "the user's branch does not move"
    assert not git_in(spec.repo, "config", "--local", "--list").count(f"branch.{spec.branch}")


async def test_a_worktree_starts_from_the_local_base_if_that_is_ahead(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, remote: Path
) -> None:
    git_in(spec.repo, "commit", "-q", "--allow-empty", "-m", "not pushed")
    info = await worktree.create(spec, ignore_line)
    assert info.base_commit == git_in(spec.repo, "rev-parse", "main") and info.notes == ()


async def test_a_diverged_base_and_remote_are_noted(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, remote: Path, tmp_path: Path
) -> None:
    newest = advance(remote, tmp_path)
    git_in(spec.repo, "commit", "-q", "--allow-empty", "-m", "not pushed")
    info = await worktree.create(spec, ignore_line)
    assert info.base_commit == newest and "diverged" in info.notes[0]


async def test_an_unreachable_remote_is_noted_and_the_local_base_used(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, remote: Path
) -> None:
    remote.rename(remote.with_name("gone.git"))
    info = await worktree.create(spec, ignore_line)
    assert info.base_commit == git_in(spec.repo, "rev-parse", "main")
    assert info.notes[0].startswith("offline: main could not be fetched from origin") and "old" in info.notes[0]


async def test_a_hanging_remote_times_out(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, remote: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    git_in(spec.repo, "config", "remote.origin.uploadpack", str(slow))
    started_at = time.monotonic()
    info = await worktree.create(replace(spec, fetch_timeout=0.3), ignore_line)
    assert time.monotonic() - started_at < 45 and info.notes[0].startswith("offline:")


async def test_one_fetch_serves_several_worktrees(
    worktree: WorktreeWorkspace, host: CountingHost, repo: Path, remote: Path, tmp_path: Path
) -> None:
    await asyncio.gather(*(worktree.create(spec_for(repo, tmp_path, f"t{number}"), ignore_line) for number in range(5)))
    await worktree.create(spec_for(repo, tmp_path, "later"), ignore_line)
    assert subcommands(host).count("fetch") == 1


async def test_a_branch_that_only_the_remote_has_is_continued(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, remote: Path, tmp_path: Path
) -> None:
    remote_commit = advance(remote, tmp_path, "their-work")
    info = await worktree.create(replace(spec, branch="their-work", existing=True), ignore_line)
    assert info.head == remote_commit and info.branch == "their-work"
    assert info.base_commit == git_in(spec.repo, "rev-parse", "main")
    assert "branch.their-work" not in git_in(spec.repo, "config", "--local", "--list")


@pytest.mark.parametrize("location", ["checkout", "worktree"])
async def test_a_branch_checked_out_elsewhere_is_refused(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, tmp_path: Path, location: str
) -> None:
    if location == "checkout":
        git_in(spec.repo, "checkout", "-q", "-b", spec.branch)
        checkout = spec.repo
    else:
        checkout = tmp_path / "by-hand"
        git_in(spec.repo, "worktree", "add", "-q", "-b", spec.branch, str(checkout))
    with pytest.raises(Conflict, match="is checked out in") as caught:
        await worktree.create(replace(spec, existing=True), ignore_line)
    assert str(checkout) in caught.value.text and caught.value.remedy
    assert not spec.path.exists() and git_in(spec.repo, "rev-parse", spec.branch)


async def test_a_worktree_can_start_from_a_tag_or_commit(
    worktree: WorktreeWorkspace, repo: Path, tmp_path: Path
) -> None:
    first = git_in(repo, "rev-parse", "HEAD")
    git_in(repo, "tag", "-a", "v1", "-m", "one")
    git_in(repo, "commit", "-q", "--allow-empty", "-m", "second")
    for name, start in (("tag", "v1"), ("commit", first[:12])):
        info = await worktree.create(replace(spec_for(repo, tmp_path, name), base=start), ignore_line)
        assert info.base_commit == first


async def test_a_detached_and_dirty_checkout_does_not_matter(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    git_in(spec.repo, "checkout", "-q", "--detach")
    (spec.repo / "a.txt").write_text("dirty\n")
    info = await worktree.create(spec, ignore_line)
    assert (info.path / "a.txt").read_text() == "one\n" and (spec.repo / "a.txt").read_text() == "dirty\n"


# -- crashes -----------------------------------------------------------------------------------------------------------

CHILD = """
import asyncio, sys
from pathlib import Path
from dataclasses import replace
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.testing.contracts.workspace import ignore_line, spec_for
spec = replace(spec_for(Path(sys.argv[1]), Path(sys.argv[2]), "task"), post_create=(SET_UP,))
asyncio.run(WorktreeWorkspace({}, LocalHost()).create(spec, ignore_line))
"""
KILLER = """#!/bin/sh
case " $* " in *" {command} "*) hit=1 ;; *) hit=0 ;; esac
[ $hit = 1 ] && [ {moment} = before ] && kill -9 $PPID && exit 1
"{git}" "$@"; code=$?
[ $hit = 1 ] && kill -9 $PPID
exit $code
"""


def create_and_die(spec: WorkspaceSpec, tmp_path: Path, set_up: str, programs: Path) -> None:
    """Create the workspace in a separate process, which must be killed meanwhile."""
    child = CHILD.replace("SET_UP", repr(set_up))
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    argv = [sys.executable, "-c", child, str(spec.repo), str(tmp_path)]
    done = subprocess.run(argv, env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


async def retry_create(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    """Create the workspace again and check that it is complete."""
    info = await worktree.create(spec, ignore_line)
    assert info.head == git_in(spec.repo, "rev-parse", "main")
    assert git_in(spec.path, "status", "--porcelain", "--branch") == f"## {spec.branch}"
    assert (spec.path / "d" / "c.txt").read_text() == "three\n"
    assert len(git_in(spec.repo, "worktree", "list").splitlines()) == 2


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("command", ["worktree", "reset"])
async def test_a_creation_killed_around_a_command_is_repeated(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, tmp_path: Path, command: str, moment: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text(KILLER.format(command=command, moment=moment, git=LocalHost().which("git")))
    (programs / "git").chmod(0o755)
    create_and_die(spec, tmp_path, "true", programs)
    await retry_create(worktree, spec)


async def test_a_creation_killed_during_the_set_up_is_repeated(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, tmp_path: Path
) -> None:
    create_and_die(spec, tmp_path, "touch half; kill -9 $PPID", tmp_path)
    assert (spec.path / "half").exists()
    await retry_create(worktree, spec)
    assert not (spec.path / "half").exists()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("command", ["worktree", "reset"])
async def test_a_creation_killed_around_a_command_can_be_abandoned(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, tmp_path: Path, command: str, moment: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").write_text(KILLER.format(command=command, moment=moment, git=LocalHost().which("git")))
    (programs / "git").chmod(0o755)
    create_and_die(spec, tmp_path, "true", programs)
    assert await worktree.abandon(spec) is None
    assert not spec.path.exists() and spec.link and not os.path.lexists(spec.link)
    assert len(git_in(spec.repo, "worktree", "list").splitlines()) == 1
    assert git_in(spec.repo, "branch", "--list", spec.branch) == ""
    await retry_create(worktree, spec)


async def test_a_partially_registered_worktree_is_repaired(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    await worktree.create(spec, ignore_line)
    record = spec.private / "workspace.json"
    record.write_text(record.read_text().replace('"made": true', '"made": false'))
    entry = Path(git_in(spec.path, "rev-parse", "--absolute-git-dir"))
    for name in ("gitdir", "HEAD", "commondir", "index"):
        (entry / name).unlink()
    (entry / "locked").write_text("initializing")
    info = await worktree.create(spec, ignore_line)
    assert info.git_dir == entry and git_in(spec.path, "status", "--porcelain") == ""


async def test_a_deleted_worktree_folder_is_recreated(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    await worktree.create(spec, ignore_line)
    (spec.path / "x").write_text("x")
    git_in(spec.path, "add", "x")
    git_in(spec.path, "commit", "-qm", "work")
    commit = git_in(spec.path, "rev-parse", "HEAD")
    subprocess.run(["rm", "-rf", str(spec.path)], check=True)
    info = await worktree.create(spec, ignore_line)
    assert info.head == commit and (spec.path / "x").read_text() == "x"


async def test_a_full_disk_leaves_nothing(worktree: WorktreeWorkspace, spec: WorkspaceSpec, small_disk: Path) -> None:
    (spec.repo / "big").write_bytes(os.urandom(3_000_000))
    git_in(spec.repo, "add", "big")
    git_in(spec.repo, "commit", "-qm", "big")
    full = replace(spec, path=small_disk / "w" / "task")
    with pytest.raises(AoError) as caught:
        await worktree.create(full, ignore_line)
    assert "free some disk space" in caught.value.remedy
    assert not full.path.exists() and full.link and not full.link.is_symlink()
    assert git_in(spec.repo, "branch", "--list", spec.branch) == ""
    assert len(git_in(spec.repo, "worktree", "list").splitlines()) == 1


async def test_a_full_disk_for_private_files_leaves_nothing(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, small_disk: Path
) -> None:
    full = replace(spec, private=small_disk / "private")
    (small_disk / "filler").write_bytes(b"\0" * (1024 * 1024 - 8192))
    with pytest.raises(OSError, match="No space"), (small_disk / "rest").open("wb", buffering=0) as stream:
        while stream.write(b"\0" * 512):
            pass
    with pytest.raises(AoError, match="No space left"):
        await worktree.create(full, ignore_line)
    assert not full.path.exists() and git_in(spec.repo, "branch", "--list", spec.branch) == ""


# -- submodules and large files ----------------------------------------------------------------------------------------


async def test_submodules_come_from_the_main_checkout(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, tmp_path: Path
) -> None:
    inner = make_repository(tmp_path / "inner")
    library = make_repository(tmp_path / "library")
    allow = ("-c", "protocol.file.allow=always")
    git_in(library, *allow, "submodule", "--quiet", "add", str(inner), "inner")
    git_in(library, "commit", "-qm", "with inner")
    git_in(spec.repo, *allow, "submodule", "--quiet", "add", str(library), "lib")
    git_in(spec.repo, *allow, "submodule", "--quiet", "update", "--init", "--recursive")
    git_in(spec.repo, "commit", "-qm", "with library")
    for source in (inner, library):
        source.rename(source.with_name(f"{source.name}-gone"))
    configuration = (spec.repo / ".git" / "config").read_bytes()
    info = await worktree.create(spec, ignore_line)
    assert info.notes == ()
    assert (spec.path / "lib" / "inner" / "a.txt").read_text() == "one\n"
    assert git_in(spec.path, "status", "--porcelain") == ""
    assert git_in(spec.path / "lib", "config", "remote.origin.url") == str(library)
    assert (spec.repo / ".git" / "config").read_bytes() == configuration, "the user's configuration is as it was"
    await worktree.remove(spec)
    assert not spec.path.exists()


async def test_an_unavailable_submodule_is_noted(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, tmp_path: Path
) -> None:
    library = make_repository(tmp_path / "library")
    git_in(spec.repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git_in(spec.repo, "commit", "-qm", "with library")
    library.rename(tmp_path / "gone")
    subprocess.run(["rm", "-rf", str(spec.repo / "lib"), str(spec.repo / ".git" / "modules")], check=True)
    info = await worktree.create(spec, ignore_line)
    assert info.notes[0].startswith("submodule lib is not filled")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"


async def test_lfs_pointers_are_kept_unchanged(
    worktree: WorktreeWorkspace, spec: WorkspaceSpec, own_world: Path
) -> None:
    (spec.repo / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    (spec.repo / "data.bin").write_text(POINTER)
    git_in(spec.repo, "add", "-A")
    git_in(spec.repo, "commit", "-qm", "large")
    with (own_world / ".gitconfig").open("a") as stream:
        stream.write('[filter "lfs"]\nclean = git-lfs clean -- %f\nsmudge = git-lfs smudge -- %f\nrequired = true\n')
    info = await worktree.create(spec, ignore_line)
    assert (spec.path / "data.bin").read_text() == POINTER
    assert any("git-lfs" in note for note in info.notes)
    assert git_in(spec.path, "status", "--porcelain", env=info.git_env) == ""


# -- hooks -------------------------------------------------------------------------------------------------------------


async def test_creating_a_worktree_runs_no_hooks(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    hook = spec.repo / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    await worktree.create(spec, ignore_line)
    assert not (spec.path / "ran").exists()


async def test_tracked_hooks_are_the_workspaces_own(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    git_in(spec.repo, "config", "core.hooksPath", ".hooks")
    info = await worktree.create(spec, ignore_line)
    assert git_in(spec.path, "config", "core.hooksPath", env=info.git_env) == ".hooks"


async def test_linked_hooks_are_copied_as_files(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    script = spec.repo / "pre-push.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    hooks = spec.repo / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-push").symlink_to("../../pre-push.sh")
    (hooks / "broken").symlink_to("nowhere")
    await worktree.create(spec, ignore_line)
    copy = spec.private / "hooks" / "pre-push"
    assert copy.is_file() and not copy.is_symlink() and copy.stat().st_mode & stat.S_IXUSR
    assert sorted(path.name for path in (spec.private / "hooks").iterdir()) == ["pre-push"]


async def test_the_symlink_folder_is_excluded_from_git_once(
    worktree: WorktreeWorkspace, repo: Path, tmp_path: Path
) -> None:
    exclude = repo / ".git" / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_bytes(b"caf\xe9\n*.tmp")
    for name in ("one", "two"):
        await worktree.create(spec_for(repo, tmp_path, name), ignore_line)
    assert exclude.read_bytes() == b"caf\xe9\n*.tmp\n/.worktrees/\n"
    assert git_in(repo, "status", "--porcelain") == ""


async def test_a_folder_in_place_of_the_symlink_is_refused(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    assert spec.link is not None
    spec.link.mkdir(parents=True)
    with pytest.raises(Conflict, match="in the way of the workspace's symlink"):
        await worktree.create(spec, ignore_line)
    assert spec.link.is_dir() and git_in(spec.repo, "branch", "--list", spec.branch) == ""


async def test_a_path_registered_by_another_worktree_is_not_used(
    repo: Path, tmp_path: Path, worktree: WorktreeWorkspace
) -> None:
    spec, moved_folder = spec_for(repo, tmp_path, "one"), tmp_path / "on a disk that is not here just now"
    git_in(repo, "worktree", "add", "-q", "-b", "mine", str(spec.path))
    spec.path.rename(moved_folder)
    with pytest.raises(Conflict, match="is the place of a worktree whose folder is not there"):
        await worktree.create(spec, ignore_line)
    moved_folder.rename(spec.path)
    assert git_in(spec.path, "status", "--porcelain", "--branch").strip() == "## mine"


# -- among what an agent has prepared ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"a\0b/.git", b"x" * 100_000])
async def test_a_corrupt_neighbouring_worktree_blocks_nothing(
    worktree: WorktreeWorkspace, repo: Path, tmp_path: Path, content: bytes | None
) -> None:
    bad, spec = spec_for(repo, tmp_path, "bad"), spec_for(repo, tmp_path, "task")
    gitdir_file = (await worktree.create(bad, ignore_line)).git_dir / "gitdir"
    await worktree.create(spec, ignore_line)
    gitdir_file.unlink()
    if content is None:
        os.mkfifo(gitdir_file)
    else:
        gitdir_file.write_bytes(content)
    await worktree.remove(spec)
    assert not spec.path.exists() and bad.path.exists() and gitdir_file.parent.is_dir()
    await worktree.create(spec_for(repo, tmp_path, "bad1"), ignore_line)


async def test_a_symlink_in_place_of_a_branch_is_refused(
    worktree: WorktreeWorkspace, host: CountingHost, spec: WorkspaceSpec
) -> None:
    ref_file = spec.repo / ".git/refs/heads" / spec.branch
    ref_file.parent.mkdir(parents=True, exist_ok=True)
    ref_file.symlink_to("/")
    with pytest.raises(Conflict, match="has become a symlink, which Git has not made: see what it is and remove it"):
        await worktree.create(spec, ignore_line)
    assert not any("worktree" in argv for argv in host.commands), "Git would scan the whole file system"
    ref_file.unlink()
    await worktree.create(spec, ignore_line)


async def test_a_pipe_in_place_of_the_exclude_file_is_refused(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    exclude = spec.repo / ".git/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.unlink(missing_ok=True)
    os.mkfifo(exclude)
    with pytest.raises(Conflict, match="info/exclude' is no plain file: find out what it is"):
        await worktree.create(spec, ignore_line)


async def test_very_deep_folders_are_removed(worktree: WorktreeWorkspace, spec: WorkspaceSpec) -> None:
    await worktree.create(spec, ignore_line)
    closed = spec.path / "deep/d/closed"
    (closed / "er").mkdir(parents=True)
    closed.chmod(0)
    try:
        create_nested_folders(spec.path / "deep/d", 1300)
        await worktree.remove(spec)
        assert not spec.path.exists() and [*spec.path.parent.iterdir()] == []
    finally:
        subprocess.run(["rm", "-rf", str(spec.path.parent)], check=True)  # pytest could not
