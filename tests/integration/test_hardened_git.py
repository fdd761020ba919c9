"""The daemon's Git in prepared repositories: real attacks and their effects."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.base.files.safe import UnsafePath
from agent_orchestrator.base.git import commands as git_module
from agent_orchestrator.base.git import fifo_guard
from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Facts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.errors import AoError, Missing, Temporary
from agent_orchestrator.plugins.workspaces.submodules import fill_submodules
from agent_orchestrator.protocols.host import ProgramResult
from agent_orchestrator.sessions.isolation.sandbox import SandboxedGitHost
from agent_orchestrator.sessions.rescue import save
from agent_orchestrator.sessions.rescue.survey import survey
from tests.hostile import create_nested_folders
from tests.parts import make_config
from tests.unit.core.world import SESSION, created

pytestmark = pytest.mark.anyio


def run_git(folder: Path, *arguments: str, input: str | None = None) -> str:  # noqa: A002
    env = {**os.environ, "GIT_CONFIG_GLOBAL": str(folder / "../user"), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=env, input=input, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "user").write_text("[user]\nname=a\nemail=a@b\n[init]\ndefaultBranch=main\n[protocol]\nallow=always\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "user"))
    repo = tmp_path / "repo"
    repo.mkdir()
    run_git(repo, "init", "-q")
    (repo / "a.txt").write_text("a\n")
    run_git(repo, "add", "-A")
    run_git(repo, "commit", "-qm", "one")
    return repo


@pytest.fixture
def git(repo: Path) -> Git:
    return Git(LocalHost(), repo)


def write_evil_program(repo: Path) -> str:
    """Write a program that must not run and return its path."""
    program = repo.parent / "evil"
    program.write_text(f"#!/bin/sh\ntouch {repo.parent}/ran\nexit 1\n")
    program.chmod(0o755)
    return str(program)


def has_run(repo: Path) -> bool:
    return (repo.parent / "ran").exists()


async def test_a_remote_is_never_run_as_a_command(git: Git, repo: Path) -> None:
    url = f"ext::{write_evil_program(repo)}"
    subprocess.run(["git", "-C", str(repo), "fetch", "-q", url], capture_output=True, check=False)
    assert has_run(repo), "the attack works if the user's configuration allows it"
    (repo.parent / "ran").unlink()
    with pytest.raises(GitFailed, match="transport 'ext' not allowed"):
        await git.fetch(url, ["main"], timeout=60)
    with pytest.raises(GitFailed):
        await git.remote_head(url, "main", env={}, timeout=60)
    assert not has_run(repo)


async def test_reading_a_repository_runs_none_of_its_programs(git: Git, repo: Path) -> None:
    program = write_evil_program(repo)
    for key in ("core.fsmonitor", "core.pager", "core.editor", "diff.x.command", "diff.x.textconv", "diff.external"):
        run_git(repo, "config", key, program)
    hooks = repo / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit"):
        (hooks / name).symlink_to(program)
    (repo / ".gitattributes").write_text("* diff=x\n")
    (repo / "a.txt").write_text("b\n")
    (repo / "new.txt").write_text("new\n")
    assert {change.path for change in await git.status()} == {".gitattributes", "a.txt", "new.txt"}
    assert "+b" in await git.diff("HEAD") and "new.txt" in await git.diff("HEAD", form="stat")
    head = await git.resolve("HEAD")
    assert head
    await git.update_ref("refs/heads/other", head)
    await git.checkout_files()
    assert not has_run(repo)


async def test_replace_refs_are_ignored(git: Git, repo: Path) -> None:
    good = run_git(repo, "rev-parse", "HEAD")
    (repo / "a.txt").write_text("evil\n")
    run_git(repo, "commit", "-qam", "two")
    run_git(repo, "replace", good, "HEAD")
    assert "evil" in run_git(repo, "show", f"{good}:a.txt")
    assert await git.text("show", f"{good}:a.txt") == "a"


@pytest.mark.parametrize("name", ["--output=ran", "--help", "-h", "--upload-pack=touch ran", "--exec=touch ran", "-x"])
async def test_a_name_is_never_parsed_as_an_option(git: Git, repo: Path, name: str) -> None:
    assert await git.resolve(name) is None
    assert not await git.branch_exists(name)
    for call in (
        lambda: git.is_ancestor(name, "HEAD"),
        lambda: git.merge_base(name, "HEAD"),
        lambda: git.count_commits(name),
        lambda: git.diff(name, "HEAD"),
        lambda: git.merge_tree(name, "HEAD"),
        lambda: git.fetch(name, ["main"], timeout=60),
        lambda: git.update_ref(name, "HEAD"),
        lambda: git.remote_head(name, "main", env={}, timeout=60),
    ):
        with pytest.raises(AoError):
            await cast(Any, call)()
    assert not [*repo.parent.rglob("ran")]


async def test_malicious_objects_of_an_agents_repository_are_not_fetched(git: Git, repo: Path) -> None:
    clone = repo.parent / "clone"
    run_git(repo, "clone", "-q", str(repo), str(clone))
    blob = run_git(clone, "hash-object", "-w", "--stdin", input="[core]\nfsmonitor=evil\n")
    entry = b"100644 config\0" + bytes.fromhex(blob)
    inner = subprocess.run(
        ["git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin"],
        cwd=clone,
        input=entry,
        capture_output=True,
        check=True,
    ).stdout.decode()
    outer = subprocess.run(
        ["git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin"],
        cwd=clone,
        input=b"40000 .git\0" + bytes.fromhex(inner.strip()),
        capture_output=True,
        check=True,
    ).stdout.decode()
    commit = run_git(clone, "commit-tree", outer.strip(), "-m", "x")
    run_git(clone, "update-ref", "refs/heads/bad", commit)
    with pytest.raises(GitFailed):
        await git.fetch(str(clone), ["+refs/heads/bad:refs/heads/got"], timeout=60, checked=True)
    assert await git.resolve("refs/heads/got") is None
    await git.fetch(str(clone), ["+refs/heads/main:refs/heads/got"], timeout=60, checked=True)
    assert await git.resolve("refs/heads/got")


@pytest.mark.parametrize("name", [".gitignore", ".git/index"])
async def test_a_pipe_in_a_repository_ends_with_a_timeout(
    git: Git, repo: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_module, "LONG_TIMEOUT", 1.5)
    (repo / name).unlink(missing_ok=True)
    os.mkfifo(repo / name)
    with pytest.raises(Temporary, match="did not finish"):
        await git.status()


async def test_a_submodules_name_cannot_inject_configuration(git: Git, repo: Path) -> None:
    program = write_evil_program(repo)
    other = repo.parent / "other"
    run_git(repo, "clone", "-q", "--bare", str(repo), str(other))
    names = [f"a.update=!{program};", "/etc", "x/../../y", "-x"]
    for number, name in enumerate(names):
        section = f"submodule.{name}"
        run_git(repo, "config", "--file", ".gitmodules", f"{section}.path", f"sub{number}")
        run_git(repo, "config", "--file", ".gitmodules", f"{section}.url", f"ext::{program}")
        run_git(
            repo, "update-index", "--add", "--cacheinfo", f"160000,{run_git(repo, 'rev-parse', 'HEAD')},sub{number}"
        )
    notes: list[str] = []
    layout = await git.layout()
    assert layout is not None
    await fill_submodules(git, layout, await git.config(), notes)
    assert not has_run(repo) and not [*repo.glob("sub*/*")]


async def test_a_folder_replaced_by_a_symlink_while_saving_is_not_followed(repo: Path) -> None:
    secret = repo.parent / "secret"
    secret.mkdir()
    (secret / "file").write_text("secret")
    workspace = repo.parent / "ws"
    run_git(repo, "worktree", "add", "-q", str(workspace))
    (workspace / "dir").mkdir()
    (workspace / "dir/file").write_text("mine")
    surveyed = await survey(LocalHost(), repo, workspace, ())
    assert surveyed.files == ["dir/file"]
    (workspace / "dir").rename(workspace / "gone")
    (workspace / "dir").symlink_to(secret)
    with pytest.raises(UnsafePath):
        await save._capture(surveyed, repo.parent)


async def test_pipes_in_place_of_files_do_not_block_git(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo_guard, "FIRST_CHECK_SECONDS", 0.05)
    (repo / "d").mkdir()
    for name in (".gitattributes", "d/.gitignore", ".git/refs/heads/waits", "mine"):
        os.mkfifo(repo / name)
    (repo / "d/b.txt").write_text("b\n")
    reader = os.open(repo / "mine", os.O_RDONLY | os.O_NONBLOCK)
    async with asyncio.timeout(60):
        assert {change.path for change in await Git(LocalHost(), repo).status()} == {"d/b.txt"}
        surveyed = await survey(LocalHost(), repo, repo, ())
        assert {".gitattributes", "mine"} <= set(surveyed.special)
    writer = os.open(repo / "mine", os.O_WRONLY)
    os.write(writer, b"x")
    assert os.read(reader, 1) == b"x", "a pipe that Git does not read is not touched"
    os.close(reader)
    os.close(writer)


def test_pipes_are_found_beside_very_deep_folders(repo: Path) -> None:
    os.mkfifo(repo / ".git/waits")
    reader = os.open(repo / ".git/waits", os.O_RDONLY | os.O_NONBLOCK)
    create_nested_folders(repo / ".git", 1100)
    try:
        assert fifo_guard.unblock_pipes(repo)
    finally:
        os.close(reader)
        subprocess.run(["rm", "-rf", str(repo)], check=True)  # pytest could not


async def test_folders_too_deep_for_a_path_keep_the_workspace(repo: Path) -> None:
    top_fd = os.open(repo, os.O_RDONLY)
    folder_fd = top_fd
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=folder_fd)
        folder_fd = os.open("d" * 200, os.O_RDONLY, dir_fd=folder_fd)
    surveyed = await survey(LocalHost(), repo, repo, ())
    assert "File name too long" in surveyed.unsafe[0]
    shutil.rmtree("d" * 200, dir_fd=top_fd)  # pytest could not


# -- where an agent is confined ------------------------------------------------------------------------------------------


class RecordingHost(SandboxedGitHost):
    """A sandboxed host that records the command instead of running it."""

    def __init__(self, config: ConfigSet, facts: Facts, hidden: Path) -> None:
        super().__init__(config, facts, (hidden,))
        self.programs = {"bwrap"}
        self.last_command: tuple[list[str], dict[str, str]] = ([], {})

    def which(self, program: str, path: str | None = None) -> str | None:  # noqa: ARG002
        return f"/bin/{program}" if program in self.programs else None


@pytest.fixture
def guarded(repo: Path, monkeypatch: pytest.MonkeyPatch) -> RecordingHost:
    hidden = repo.parent / "home"
    hidden.mkdir()
    config, facts = make_config(hidden / "config.yaml"), Facts()
    config.add_adhoc("app", repo)
    prepared = reduce(None, created(path=str(repo), repo=str(repo), branch="x/y", runtime="docker"))
    session = reduce(prepared, Event(e.AgentLaunched({}), 1001.0, "daemon", "launched", "app", SESSION, 1))
    assert session is not None
    facts.sessions[session.id] = session
    host = RecordingHost(config, facts, hidden)

    async def record(_self: LocalHost, argv: Any, *, env: Any = None, **_: Any) -> ProgramResult:
        host.last_command = (list(argv), dict(env or {}))
        return ProgramResult(0, b"", b"")

    monkeypatch.setattr(LocalHost, "run", record)
    return host


async def test_git_in_a_workspace_sees_neither_the_home_nor_secrets(
    guarded: RecordingHost, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_TOKEN", "secret")
    await Git(guarded, repo).run("status")
    argv, env = guarded.last_command
    assert argv[0] == "/bin/bwrap"
    assert ("--tmpfs", str(repo.parent / "home")) in list(pairwise(argv))
    assert "safe.bareRepository=explicit" in argv and "protocol.ext.allow=never" in argv
    assert "secret" not in env.values() and "PATH" in env and env["GIT_TERMINAL_PROMPT"] == "0"


async def test_without_a_sandbox_nested_repositories_are_not_entered(guarded: RecordingHost, repo: Path) -> None:
    guarded.programs = set()
    await Git(guarded, repo).status()
    argv, _ = guarded.last_command
    assert argv[0] == "git" and "--ignore-submodules=all" in argv and "--ignore-submodules=none" not in argv
    with pytest.raises(Missing, match="cannot be looked at safely"):
        await Git(guarded, repo / "sub").status()
