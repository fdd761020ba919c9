"""The `copy` setting: exact copies, shared with the original if the file system supports it, for any number of files."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Conflict
from agent_orchestrator.plugins.workspaces.copy_on_write import Copier
from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import ProgramResult
from agent_orchestrator.testing.contracts.workspace import git_in, ignore_line, spec_for
from tests.integration.rescue.world import make_repository

pytestmark = pytest.mark.anyio


class RecordingHost(LocalHost):
    """A host that records its commands."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[list[str]] = []

    async def run(self, argv, **options) -> ProgramResult:  # type: ignore[no-untyped-def]
        self.commands.append(list(argv))
        return await super().run(argv, **options)


@pytest.fixture
def spec(tmp_path: Path) -> WorkspaceSpec:
    return spec_for(make_repository(tmp_path / "repo"), tmp_path, "task")


def write_modules(repo: Path, count: int) -> None:
    for number in range(count):
        package = repo / "node_modules" / f"p{number // 50}"
        package.mkdir(parents=True, exist_ok=True)
        (package / f"{number}.js").write_text(f"// {number}\n")


def used_bytes(disk: Path) -> int:
    """Return the used bytes of a disk."""
    subprocess.run(["sync", "-f", str(disk)], check=True)
    usage = os.statvfs(disk)
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


def test_copies_share_blocks_until_one_is_written(sharing_disk: Path) -> None:
    top, workspace = sharing_disk / "top", sharing_disk / "workspace"
    (top / "big").mkdir(parents=True)
    workspace.mkdir()
    for number in range(10):
        (top / "big" / str(number)).write_bytes(os.urandom(4 << 20))
    before = used_bytes(sharing_disk)
    assert len(Copier(top, workspace, []).copy(top / "big")) == 10
    assert used_bytes(sharing_disk) - before < 4 << 20, "40 MB are copied without using space"
    content = (top / "big" / "3").read_bytes()
    with (workspace / "big" / "3").open("r+b") as file:
        file.write(b"changed")
    assert (top / "big" / "3").read_bytes() == content
    assert (workspace / "big" / "3").read_bytes() == b"changed" + content[7:]


def test_files_are_copied_normally_across_file_systems(sharing_disk: Path, tmp_path: Path) -> None:
    (sharing_disk / "top").mkdir()
    (sharing_disk / "top" / "a").write_bytes(content := os.urandom(3 << 20))
    (tmp_path / "workspace").mkdir()
    Copier(sharing_disk / "top", tmp_path / "workspace", []).copy(sharing_disk / "top" / "a")
    assert (tmp_path / "workspace" / "a").read_bytes() == content


def test_a_copy_keeps_content_modes_times_and_links(tmp_path: Path) -> None:
    top, workspace, notes = tmp_path / "top", tmp_path / "workspace", list[str]()
    folder = top / "conf"
    (folder / "deep" / ".git").mkdir(parents=True)
    (folder / "deep" / ".git" / "HEAD").write_text("not ours")
    (workspace / "conf").mkdir(parents=True)
    (workspace / "conf" / "own").write_text("the branch's")
    for name, mode in (("run", 0o755), ("key", 0o400), ("own", 0o600), ("deep/empty", 0o640)):
        (folder / name).write_text("" if name.endswith("empty") else name)
        (folder / name).chmod(mode)
        os.utime(folder / name, ns=(10**18, 10**18 + 123_456_789))
    (folder / "link").symlink_to("deep/../run")
    (folder / "dangling").symlink_to("nothing")
    (folder / "out").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe")
    copied = Copier(top, workspace, notes).copy(folder)
    assert sorted(copied) == ["conf/dangling", "conf/deep/empty", "conf/key", "conf/link", "conf/run"]
    assert notes == [f"conf/out leads out of {top}: it was not copied"]
    for name, mode in (("run", 0o755), ("key", 0o400), ("deep/empty", 0o640)):
        copy, original = (workspace / "conf" / name).stat(), (folder / name).stat()
        assert copy.st_mode & 0o7777 == mode and copy.st_mtime_ns == original.st_mtime_ns
        assert copy.st_ino != original.st_ino
    assert os.readlink(workspace / "conf" / "link") == "deep/../run"  # noqa: PTH115
    assert (workspace / "conf" / "own").read_text() == "the branch's"
    assert not (workspace / "conf" / "deep" / ".git").exists() and not (workspace / "conf" / "pipe").exists()


def test_a_virtual_environment_keeps_its_interpreter(tmp_path: Path) -> None:
    top, workspace, notes = tmp_path / "top", tmp_path / "workspace", list[str]()
    (top / ".venv" / "bin").mkdir(parents=True)
    workspace.mkdir()
    (top / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (top / ".venv" / "bin" / "python").symlink_to("/usr/bin/env")
    (top / ".venv" / "bin" / "secret").symlink_to("/etc/hostname")
    Copier(top, workspace, notes).copy(top / ".venv")
    assert os.readlink(workspace / ".venv" / "bin" / "python") == "/usr/bin/env"  # noqa: PTH115
    assert not os.path.lexists(workspace / ".venv" / "bin" / "secret") and "secret" in notes[0]


def test_nothing_is_copied_outside_of_the_workspace(tmp_path: Path) -> None:
    top, workspace, elsewhere = tmp_path / "top", tmp_path / "workspace", tmp_path / "elsewhere"
    (top / "conf" / "deep").mkdir(parents=True)
    (top / "conf" / "deep" / "a").write_text("a")
    workspace.mkdir()
    elsewhere.mkdir()
    (workspace / "conf").symlink_to(elsewhere)
    with pytest.raises(Conflict, match="outside the workspace"):
        Copier(top, workspace, []).copy(top / "conf")
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("ignored", [True, False])
async def test_many_files_need_no_more_git_commands_than_few(spec: WorkspaceSpec, ignored: bool) -> None:
    counts, longest = [], 0
    if ignored:
        (spec.repo / ".git" / "info" / "exclude").write_text("node_modules/\n")
    for count, name in ((10, "few"), (3000, "many")):
        write_modules(spec.repo, count)
        host = RecordingHost()
        module_spec = replace(spec_for(spec.repo, spec.path.parent.parent, name), copy=("node_modules",), link=None)
        await WorktreeWorkspace({}, host).create(module_spec, ignore_line)
        counts.append(len(host.commands))
        longest = max(longest, *(len(argv) for argv in host.commands))
        assert len(list((module_spec.path / "node_modules").rglob("*.js"))) == count
        assert git_in(module_spec.path, "status", "--porcelain", "-uall") == ""
    assert counts[1] <= counts[0] and longest < 40
    patterns = (spec.repo / ".git" / "info" / "exclude").read_text().splitlines()
    assert ("/node_modules" in patterns) is not ignored and len(patterns) < 30, (
        "Git holds each file against each pattern"
    )


async def test_a_new_file_beside_copied_ones_is_shown_by_git(spec: WorkspaceSpec) -> None:
    (spec.repo / "conf").mkdir()
    (spec.repo / "conf" / "local.json").write_text("{}")
    await WorktreeWorkspace({}, LocalHost()).create(replace(spec, copy=("conf",)), ignore_line)
    (spec.path / "conf" / "new.json").write_text("{}")
    assert git_in(spec.path, "status", "--porcelain", "-uall") == "?? conf/new.json"


async def test_a_pattern_with_exponentially_many_matches_is_fast(spec: WorkspaceSpec) -> None:
    """`**/a/**/a/…` in nested folders `a` matches in exponentially many ways."""
    deep = spec.repo.joinpath(*["a"] * 60)
    deep.mkdir(parents=True)
    (deep / "found").touch()
    pattern = "**/a/" * 10
    async with asyncio.timeout(60):
        info = await WorktreeWorkspace({}, LocalHost()).create(
            replace(spec, copy=(f"{pattern}**/missing", f"{pattern}fou*")), ignore_line
        )
    assert [note for note in info.notes if "missing" in note]
    assert (spec.path / deep.relative_to(spec.repo) / "found").is_file()


async def test_a_cancelled_copy_leaves_nothing_behind(spec: WorkspaceSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    write_modules(spec.repo, 200)
    is_started, may_continue = threading.Event(), threading.Event()
    copy_file = Copier._copy_file

    def slowly(self: Copier, source: str, target: str) -> bool:
        is_started.set()
        assert may_continue.wait(30)
        return copy_file(self, source, target)

    monkeypatch.setattr(Copier, "_copy_file", slowly)
    task = asyncio.create_task(
        WorktreeWorkspace({}, LocalHost()).create(replace(spec, copy=("node_modules",)), ignore_line)
    )
    assert await asyncio.to_thread(is_started.wait, 30)
    task.cancel()
    asyncio.get_running_loop().call_later(0.2, may_continue.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(thread.name.startswith("ao-copy") for thread in threading.enumerate())
    assert not spec.path.exists()
    assert git_in(spec.repo, "branch", "--list", spec.branch) == ""
