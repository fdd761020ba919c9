"""A node's copy of a repository: fetched once, shared by all its sessions, and the way their work returns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.settings import clean_environment
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster import git_server
from agent_orchestrator.cluster.node.repository import Repositories, RepositoryAccess, pin_of, with_git_settings
from agent_orchestrator.errors import Conflict, Denied, Temporary
from agent_orchestrator.plugins.workspaces.branch_publication import move_branch, workspace_ref
from agent_orchestrator.plugins.workspaces.clone import CloneWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.server.access.tls import TlsSettings, choose_certificate
from agent_orchestrator.server.app import create_app
from agent_orchestrator.server.http_servers import Servers
from agent_orchestrator.server.services import Services
from agent_orchestrator.sessions import rescue
from agent_orchestrator.sessions.rescue.manifest import IDENTITY
from tests.integration.server.conftest import ServerWorld
from tests.integration.server.test_git import SESSION, ServedRepository, run_git, served, session_facts, template

__all__ = ["served", "template"]
pytestmark = pytest.mark.anyio


class CountingHost(LocalHost):
    """A host that records commands without their environment."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[str] = []

    async def run(self, argv: Any, **options: Any) -> Any:
        self.commands.append(" ".join(argv))
        return await super().run(argv, **options)


@dataclass
class Node:
    served: ServedRepository
    folder: Path
    host: CountingHost = field(default_factory=CountingHost)

    def __post_init__(self) -> None:
        self.home = Home(self.folder)
        self.repositories = Repositories(self.home, self.host)

    def access(self, session: str = SESSION, generation: int = 1) -> RepositoryAccess:
        return RepositoryAccess(self.served.world.url, self.served.token(session, generation))

    def add(self, session: str) -> None:
        self.served.world.services.sessions.flow.sessions[session] = session_facts(session)

    async def workspace(self, session: str, *, existing: bool = False) -> WorkspaceSpec:
        """Create a session's workspace as a node does."""
        branch = f"session/{session}"
        access = self.access(session)
        repo = await self.repositories.refresh("app", access, session, ["main", branch])
        spec = WorkspaceSpec(
            session=session,
            repo=repo,
            path=self.folder / "worktrees" / session,
            link=None,
            private=self.folder / "sessions" / session,
            branch=branch,
            base="main",
            existing=existing,
            origin=access.origin("app"),
        )
        await CloneWorkspace({}, self.host).create(spec, lambda _: None)
        return spec

    def fetches(self) -> int:
        return sum(" fetch " in command and "/git/app.git" in command for command in self.host.commands)


@pytest.fixture
def node(served: ServedRepository, tmp_path: Path) -> Node:
    return Node(served, tmp_path / "node")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of bytes of each answer to a fetch."""
    sizes: list[int] = []
    original = git_server.answer_fetch

    async def counting(*arguments: Any) -> AsyncGenerator[bytes, None]:
        sizes.append(0)
        number = len(sizes) - 1
        async for piece in original(*arguments):
            sizes[number] += len(piece)
            yield piece

    monkeypatch.setattr(git_server, "answer_fetch", counting)
    return sizes


async def test_ten_sessions_fetch_once(node: Node, sent: list[int]) -> None:
    repo = node.served.repo
    (repo / "large.bin").write_bytes(os.urandom(1 << 20))
    run_git("add", ".", cwd=repo)
    run_git("commit", "-qm", "large", cwd=repo)
    names = [f"app-{number}" for number in range(5)]
    for name in [*names, "app-tenth"]:
        node.add(name)
    refresh = node.repositories.refresh
    paths = await asyncio.gather(*(refresh("app", node.access(name), name, ["main"]) for name in names))
    assert {*paths} == {node.folder / "repos" / "app.git"} and node.fetches() == 1
    assert sum(sent) < 1.2 * (1 << 20)
    sent.clear()
    await refresh("app", node.access("app-tenth"), "app-tenth", ["main"])
    assert node.fetches() == 1 and sum(sent) < 2000
    (repo / "small.txt").write_text("new\n")
    run_git("add", ".", cwd=repo)
    run_git("commit", "-qm", "small", cwd=repo)
    await refresh("app", node.access("app-tenth"), "app-tenth", ["main"])
    assert node.fetches() == 2 and sum(sent) < 4000
    assert (await Git(node.host, paths[0]).refs("refs/heads"))["refs/heads/main"] == node.served.refs()[
        "refs/heads/main"
    ]
    written = b"".join(path.read_bytes() for path in paths[0].rglob("*") if path.is_file())
    assert b"aos_" not in written and not any("aos_" in command for command in node.host.commands)


async def test_commits_of_a_node_reach_the_main_repository(node: Node) -> None:
    spec = await node.workspace(SESSION)
    main, work = Git(node.host, node.served.repo), spec.path
    assert run_git("config", "remote.origin.url", cwd=work) == node.served.url
    commit = await node.repositories.publish("app", node.access(), SESSION, spec.branch, work)
    assert await move_branch(main, SESSION, spec.branch, work) == commit
    assert node.served.refs()[f"refs/heads/{spec.branch}"] == node.served.refs()["refs/heads/main"]
    identity = {
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    for message, options in (("first", ()), ("amended", ("--amend",))):
        run_git("commit", "-q", "--allow-empty", "-m", message, *options, cwd=work, env=identity)
        commit = await node.repositories.publish("app", node.access(), SESSION, spec.branch, work)
        assert commit == run_git("rev-parse", "HEAD", cwd=work)
        assert await move_branch(main, SESSION, spec.branch, work) == commit
        assert node.served.refs()[f"refs/heads/{spec.branch}"] == commit
    # The branch is moved by another program: the workspace's commit is kept under another ref.
    run_git("update-ref", f"refs/heads/{spec.branch}", "main", cwd=node.served.repo)
    run_git("commit", "-q", "--allow-empty", "-m", "third", "--amend", cwd=work, env=identity)
    commit = await node.repositories.publish("app", node.access(), SESSION, spec.branch, work)
    run_git("commit", "-q", "--allow-empty", "-m", "theirs", cwd=node.served.repo, env=identity)
    run_git("update-ref", f"refs/heads/{spec.branch}", "main", cwd=node.served.repo)
    with pytest.raises(Conflict, match="has commits that the workspace"):
        await move_branch(main, SESSION, spec.branch, work)
    assert node.served.refs()[workspace_ref(SESSION)] == commit


async def test_an_agent_can_fetch_but_not_push(node: Node) -> None:
    spec = await node.workspace(SESSION)
    env = {
        **clean_environment(),
        **node.access().agent_environment(
            "app", {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
        ),
    }
    host = LocalHost()
    result = await host.run(["git", "config", "a.b"], cwd=spec.path, env=env)
    assert result.text == "c\n"
    result = await host.run(["git", "fetch", "origin"], cwd=spec.path, env=env)
    assert not result.code, result.error
    result = await host.run(["git", "push", "origin", "HEAD"], cwd=spec.path, env=env)
    assert result.code and b"(commit, and do not push: commits on the session's branch are brought over" in result.err


async def test_a_session_moves_to_another_node(node: Node, tmp_path: Path) -> None:
    first, other = await node.workspace(SESSION), Node(node.served, tmp_path / "other")
    main = Git(node.host, node.served.repo)
    await node.repositories.publish("app", node.access(), SESSION, first.branch, first.path)
    await move_branch(main, SESSION, first.branch, first.path)
    (first.path / "a.txt").write_text("uncommitted\n")
    saved = await rescue.checkpoint(node.host, first.repo, first.path, SESSION)
    await node.repositories.push("app", node.access(), [saved.ref])
    second = await other.workspace(SESSION, existing=True)
    restored = await rescue.restore_checkpoint(other.host, second.repo, second.path, SESSION)
    assert restored.restored == ("1 unstaged file",) and (second.path / "a.txt").read_text() == "uncommitted\n"
    node.served.facts.generation = 2
    (first.path / "a.txt").write_text("a stale launch goes on\n")
    saved = await rescue.checkpoint(node.host, first.repo, first.path, SESSION)
    with pytest.raises(Denied, match="launch 1 of app-fix is over"):
        await node.repositories.push("app", node.access(), [saved.ref])
    current_access = node.access(generation=2)
    stale_ref = f"refs/ao/stale/{SESSION}/node-1"
    await node.repositories.save("app", current_access, saved.ref, stale_ref)
    assert run_git("show", f"{stale_ref}:a.txt", cwd=node.served.repo) == "a stale launch goes on"


async def test_saved_work_restored_elsewhere_is_removed_from_the_node(node: Node, tmp_path: Path) -> None:
    first, other = await node.workspace(SESSION), Node(node.served, tmp_path / "other")
    await node.repositories.publish("app", node.access(), SESSION, first.branch, first.path)
    await move_branch(Git(node.host, node.served.repo), SESSION, first.branch, first.path)
    (first.path / "a.txt").write_text("uncommitted\n")
    saved = await rescue.rescue(node.host, first.repo, first.path, SESSION)
    assert saved.ref is not None
    await node.repositories.push("app", node.access(), [saved.ref])
    second = await other.workspace(SESSION, existing=True)
    assert (await rescue.restore_work(other.host, second.repo, second.path, SESSION)).restored == saved.saved
    await rescue.mark_restored(node.host, node.served.repo, SESSION)
    assert saved.ref not in node.served.refs()
    await node.repositories.refresh("app", node.access(), SESSION, ["main"])
    assert await Git(node.host, first.repo).refs(saved.ref) == {}


async def test_objects_borrowed_by_a_workspace_are_kept(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.cluster.node.repository.REPACK_THRESHOLD", 1)
    spec = await node.workspace(SESSION)
    cache = Git(node.host, spec.repo)
    passing = await cache.commit_tree("main^{tree}", ["main"], "seen in passing", IDENTITY)
    await cache.update_ref("refs/heads/passing", passing)
    await cache.run("repack", "-a", "-d", "-q")
    run_git("update-ref", "refs/remotes/origin/passing", passing, cwd=spec.path)
    for ref, sha in (await cache.refs("refs/heads")).items():
        await cache.delete_ref(ref, sha)
    await node.repositories.repack("app")
    run_git("fsck", "--connectivity-only", cwd=spec.path)
    await CloneWorkspace({}, node.host).remove(spec)
    await node.repositories.forget("app", SESSION, spec.branch)
    assert await cache.refs() == {}
    assert not [path for path in (spec.repo / "objects").rglob("*") if path.suffix == ".pack"]


async def test_a_node_verifies_the_daemons_certificate(node: Node, tmp_path: Path) -> None:
    own = await choose_certificate(TlsSettings(own=True), "127.0.0.1", tmp_path / "tls", node.host)
    assert own is not None
    services = cast(Services, cast(Any, node.served.world.services))
    servers, url, _ = Servers.bind(tmp_path / "s", "127.0.0.1", 0, explicit=False, certificate=own)
    apps = (create_app(services, trusted=True), create_app(services, trusted=False))
    serving = asyncio.create_task(servers.serve(*apps))
    await servers.started.wait()
    try:
        pin = pin_of(own.cert.read_text())
        access_over_tls = replace(node.access(), url=url)
        for access in (replace(access_over_tls, pin=pin), replace(access_over_tls, ca=own.cert)):
            assert await node.repositories.refresh("app", access, SESSION, ["main"])
        for access in (access_over_tls, replace(access_over_tls, pin=f"sha256//{'A' * 43}=")):
            with pytest.raises(Temporary, match="cannot be reached"):
                await node.repositories.refresh("app", access, SESSION, ["main"])
    finally:
        servers.close()
        await serving


async def test_failed_fetches_name_the_problem(node: Node, world: ServerWorld) -> None:
    refresh = node.repositories.refresh
    unreachable = RepositoryAccess("http://127.0.0.1:9", "token")
    with pytest.raises(Temporary, match="cannot be reached"):
        await refresh("app", unreachable, SESSION, ["main"])
    with pytest.raises(Denied, match="is no session of project app"):
        await refresh("app", node.access("app-none"), "app-none", ["main"])
    world.services.sessions.flow.sessions[SESSION].generation = 2
    with pytest.raises(Denied, match="launch 1 of app-fix is over"):
        await refresh("app", node.access(), SESSION, ["main"])
    assert with_git_settings({}, [("a.b", "c")]) == {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "a.b",
        "GIT_CONFIG_VALUE_0": "c",
    }
    assert replace(node.access(), url="https://d:1/").origin("my app") == "https://d:1/git/my%20app.git"
