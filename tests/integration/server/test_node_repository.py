"""A node's copy of a repository: fetched once, shared by all sessions there, and how their work comes back from it."""

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
from agent_orchestrator.cluster.node.repository import Access, Repositories, pin_of, with_settings
from agent_orchestrator.errors import Conflict, Denied, Temporary
from agent_orchestrator.plugins.workspaces.branch_publication import move_branch, workspace_ref
from agent_orchestrator.plugins.workspaces.clone import Clone
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.server.access.tls import TlsSettings, certificate
from agent_orchestrator.server.app import create_app
from agent_orchestrator.server.listeners import Servers
from agent_orchestrator.server.services import Services
from agent_orchestrator.sessions import rescue
from agent_orchestrator.sessions.rescue.manifest import IDENTITY
from tests.integration.server.conftest import World
from tests.integration.server.test_git import SESSION, Place, place, quiet, session_facts, template

__all__ = ["place", "template"]
pytestmark = pytest.mark.anyio


class CountingHost(LocalHost):
    """Remembers what was run, with the environment left out."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[str] = []

    async def run(self, argv: Any, **options: Any) -> Any:
        self.commands.append(" ".join(argv))
        return await super().run(argv, **options)


@dataclass
class Node:
    place: Place
    folder: Path
    host: CountingHost = field(default_factory=CountingHost)

    def __post_init__(self) -> None:
        self.home = Home(self.folder)
        self.repositories = Repositories(self.home, self.host)

    def access(self, session: str = SESSION, generation: int = 1) -> Access:
        return Access(self.place.world.url, self.place.token(session, generation))

    def add(self, session: str) -> None:
        self.place.world.services.sessions.flow.sessions[session] = session_facts(session)

    async def workspace(self, session: str, *, existing: bool = False) -> WorkspaceSpec:
        """A session's workspace here, as a node makes it."""
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
        await Clone({}, self.host).create(spec, lambda _: None)
        return spec

    def fetches(self) -> int:
        return sum(" fetch " in command and "/git/app.git" in command for command in self.host.commands)


@pytest.fixture
def node(place: Place, tmp_path: Path) -> Node:
    return Node(place, tmp_path / "node")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each answer to a fetch."""
    found: list[int] = []
    original = git_server.answer_fetch

    async def counting(*arguments: Any) -> AsyncGenerator[bytes, None]:
        found.append(0)
        number = len(found) - 1
        async for piece in original(*arguments):
            found[number] += len(piece)
            yield piece

    monkeypatch.setattr(git_server, "answer_fetch", counting)
    return found


async def test_ten_sessions_fetch_once(node: Node, sent: list[int]) -> None:
    repo = node.place.repo
    (repo / "large.bin").write_bytes(os.urandom(1 << 20))
    quiet("add", ".", cwd=repo)
    quiet("commit", "-qm", "large", cwd=repo)
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
    quiet("add", ".", cwd=repo)
    quiet("commit", "-qm", "small", cwd=repo)
    await refresh("app", node.access("app-tenth"), "app-tenth", ["main"])
    assert node.fetches() == 2 and sum(sent) < 4000
    assert (await Git(node.host, paths[0]).refs("refs/heads"))["refs/heads/main"] == node.place.refs()[
        "refs/heads/main"
    ]
    written = b"".join(path.read_bytes() for path in paths[0].rglob("*") if path.is_file())
    assert b"aos_" not in written and not any("aos_" in command for command in node.host.commands)


async def test_work_comes_back(node: Node) -> None:
    spec = await node.workspace(SESSION)
    main, work = Git(node.host, node.place.repo), spec.path
    assert quiet("config", "remote.origin.url", cwd=work) == node.place.url
    commit = await node.repositories.publish("app", node.access(), SESSION, spec.branch, work)
    assert await move_branch(main, SESSION, spec.branch, work) == commit
    assert node.place.refs()[f"refs/heads/{spec.branch}"] == node.place.refs()["refs/heads/main"]
    identity = {
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    for message, options in (("first", ()), ("amended", ("--amend",))):
        quiet("commit", "-q", "--allow-empty", "-m", message, *options, cwd=work, env=identity)
        commit = await node.repositories.publish("app", node.access(), SESSION, spec.branch, work)
        assert commit == quiet("rev-parse", "HEAD", cwd=work)
        assert await move_branch(main, SESSION, spec.branch, work) == commit
        assert node.place.refs()[f"refs/heads/{spec.branch}"] == commit
    # Somebody else moves the branch: what the workspace has is kept apart from it.
    quiet("update-ref", f"refs/heads/{spec.branch}", "main", cwd=node.place.repo)
    quiet("commit", "-q", "--allow-empty", "-m", "third", "--amend", cwd=work, env=identity)
    commit = await node.repositories.publish("app", node.access(), SESSION, spec.branch, work)
    quiet("commit", "-q", "--allow-empty", "-m", "theirs", cwd=node.place.repo, env=identity)
    quiet("update-ref", f"refs/heads/{spec.branch}", "main", cwd=node.place.repo)
    with pytest.raises(Conflict, match="has commits that the workspace"):
        await move_branch(main, SESSION, spec.branch, work)
    assert node.place.refs()[workspace_ref(SESSION)] == commit


async def test_an_agent_fetches_and_may_not_push(node: Node) -> None:
    spec = await node.workspace(SESSION)
    env = {
        **clean_environment(),
        **node.access().environment(
            "app", {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
        ),
    }
    host = LocalHost()
    done = await host.run(["git", "config", "a.b"], cwd=spec.path, env=env)
    assert done.text == "c\n"
    done = await host.run(["git", "fetch", "origin"], cwd=spec.path, env=env)
    assert not done.code, done.error
    done = await host.run(["git", "push", "origin", "HEAD"], cwd=spec.path, env=env)
    assert done.code and b"(commit, and do not push: commits on the session's branch are brought over" in done.err


async def test_a_session_moves_to_another_node(node: Node, tmp_path: Path) -> None:
    first, other = await node.workspace(SESSION), Node(node.place, tmp_path / "other")
    main = Git(node.host, node.place.repo)
    await node.repositories.publish("app", node.access(), SESSION, first.branch, first.path)
    await move_branch(main, SESSION, first.branch, first.path)
    (first.path / "a.txt").write_text("uncommitted\n")
    saved = await rescue.checkpoint(node.host, first.repo, first.path, SESSION)
    await node.repositories.push("app", node.access(), [saved.ref])
    second = await other.workspace(SESSION, existing=True)
    back = await rescue.from_checkpoint(other.host, second.repo, second.path, SESSION)
    assert back.restored == ("1 unstaged file",) and (second.path / "a.txt").read_text() == "uncommitted\n"
    node.place.facts.generation = 2
    (first.path / "a.txt").write_text("a stale launch goes on\n")
    saved = await rescue.checkpoint(node.host, first.repo, first.path, SESSION)
    with pytest.raises(Denied, match="launch 1 of app-fix is over"):
        await node.repositories.push("app", node.access(), [saved.ref])
    now = node.access(generation=2)
    apart = f"refs/ao/stale/{SESSION}/node-1"
    await node.repositories.save("app", now, saved.ref, apart)
    assert quiet("show", f"{apart}:a.txt", cwd=node.place.repo) == "a stale launch goes on"


async def test_saved_work_that_was_brought_back_elsewhere_waits_no_more(node: Node, tmp_path: Path) -> None:
    first, other = await node.workspace(SESSION), Node(node.place, tmp_path / "other")
    await node.repositories.publish("app", node.access(), SESSION, first.branch, first.path)
    await move_branch(Git(node.host, node.place.repo), SESSION, first.branch, first.path)
    (first.path / "a.txt").write_text("uncommitted\n")
    saved = await rescue.rescue(node.host, first.repo, first.path, SESSION)
    assert saved.ref is not None
    await node.repositories.push("app", node.access(), [saved.ref])
    second = await other.workspace(SESSION, existing=True)
    assert (await rescue.restore_work(other.host, second.repo, second.path, SESSION)).restored == saved.saved
    await rescue.mark_restored(node.host, node.place.repo, SESSION)
    assert saved.ref not in node.place.refs()
    await node.repositories.refresh("app", node.access(), SESSION, ["main"])
    assert await Git(node.host, first.repo).refs(saved.ref) == {}


async def test_what_a_workspace_borrows_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.cluster.node.repository.REPACK_THRESHOLD", 1)
    spec = await node.workspace(SESSION)
    cache = Git(node.host, spec.repo)
    passing = await cache.commit_tree("main^{tree}", ["main"], "seen in passing", IDENTITY)
    await cache.update_ref("refs/heads/passing", passing)
    await cache.run("repack", "-a", "-d", "-q")
    quiet("update-ref", "refs/remotes/origin/passing", passing, cwd=spec.path)
    for ref, sha in (await cache.refs("refs/heads")).items():
        await cache.delete_ref(ref, sha)
    await node.repositories.tidy("app")
    quiet("fsck", "--connectivity-only", cwd=spec.path)
    await Clone({}, node.host).remove(spec)
    await node.repositories.forget("app", SESSION, spec.branch)
    assert await cache.refs() == {}
    assert not [path for path in (spec.repo / "objects").rglob("*") if path.suffix == ".pack"]


async def test_a_daemon_is_known_by_its_certificate(node: Node, tmp_path: Path) -> None:
    own = await certificate(TlsSettings(own=True), "127.0.0.1", tmp_path / "tls", node.host)
    assert own is not None
    services = cast(Services, cast(Any, node.place.world.services))
    servers, url, _ = Servers.bind(tmp_path / "s", "127.0.0.1", 0, explicit=False, certificate=own)
    apps = (create_app(services, trusted=True), create_app(services, trusted=False))
    serving = asyncio.create_task(servers.serve(*apps))
    await servers.started.wait()
    try:
        pin = pin_of(own.cert.read_text())
        told = replace(node.access(), url=url)
        for access in (replace(told, pin=pin), replace(told, ca=own.cert)):
            assert await node.repositories.refresh("app", access, SESSION, ["main"])
        for access in (told, replace(told, pin=f"sha256//{'A' * 43}=")):
            with pytest.raises(Temporary, match="cannot be reached"):
                await node.repositories.refresh("app", access, SESSION, ["main"])
    finally:
        servers.close()
        await serving


async def test_what_went_wrong_is_said(node: Node, world: World) -> None:
    refresh = node.repositories.refresh
    nobody = Access("http://127.0.0.1:9", "token")
    with pytest.raises(Temporary, match="cannot be reached"):
        await refresh("app", nobody, SESSION, ["main"])
    with pytest.raises(Denied, match="is no session of project app"):
        await refresh("app", node.access("app-none"), "app-none", ["main"])
    world.services.sessions.flow.sessions[SESSION].generation = 2
    with pytest.raises(Denied, match="launch 1 of app-fix is over"):
        await refresh("app", node.access(), SESSION, ["main"])
    assert with_settings({}, [("a.b", "c")]) == {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "a.b",
        "GIT_CONFIG_VALUE_0": "c",
    }
    assert replace(node.access(), url="https://d:1/").origin("my app") == "https://d:1/git/my%20app.git"
