"""Reading a session while its workspace is removed: the result is the later state, without an internal error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.conflicts import Branch, RepositoryPrediction
from agent_orchestrator.core.facts import SessionWorkspace
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.errors import Conflict, NotFound
from agent_orchestrator.protocols.host import ProgramResult
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.views.session_details import SessionDetails
from agent_orchestrator.views.timeline_reader import TimelineReader
from tests.integration.merge.world import write
from tests.integration.rescue.world import git, make_repository
from tests.parts import make_core
from tests.unit.core.event_strategies import created

pytestmark = pytest.mark.anyio


class RemovingHost(LocalHost):
    """A host that removes the workspace before or after the n-th Git command in it."""

    def __init__(self, workspace: Path) -> None:
        super().__init__()
        self.workspace = workspace
        self.moved_to = workspace.with_name("away")
        self.when, self.remaining = "", 0

    def plan(self, when: str, number: int) -> None:
        self.when, self.remaining = when, number

    def restore(self) -> bool:
        """Move the workspace back and return whether it was removed."""
        was_removed = self.moved_to.exists()
        if was_removed and not self.workspace.exists():
            self.moved_to.rename(self.workspace)
        return was_removed

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = 60.0,
    ) -> ProgramResult:
        is_due = str(self.workspace) in argv and self._is_due()
        if is_due and self.when == "before":
            self.workspace.rename(self.moved_to)
        result = await super().run(argv, cwd=cwd, env=env, input=input, timeout=timeout)
        if is_due and self.when == "after":
            self.workspace.rename(self.moved_to)
        return result

    def _is_due(self) -> bool:
        self.remaining -= 1
        return self.remaining == 0


@dataclass
class RemovalWorld:
    repo: Path
    workspace: Path
    host: RemovingHost
    core: Core
    session: str
    head: str

    def inspection(self) -> SessionDetails:
        nothing = cast(Any, None)
        return SessionDetails(self.core, nothing, nothing, nothing)

    async def every_removal(self, when: str, read: Callable[[], Awaitable[Any]]) -> list[Any]:
        """Return the results of reads during which the workspace is removed at the first, the second … command."""
        results: list[Any] = []
        while True:
            self.host.plan(when, len(results) + 1)
            try:
                result = await read()
            finally:
                removed = self.host.restore()
            if not removed:
                self.host.plan("", 0)
                return results
            results.append(result)


@pytest.fixture
def world(tmp_path: Path) -> RemovalWorld:
    repo, workspace = make_repository(tmp_path / "repo", {"a.txt": "one\n"}), tmp_path / "place"
    git(repo, "worktree", "add", "-q", "--no-track", "-b", "feature/x", str(workspace), "main")
    start = git(workspace, "rev-parse", "HEAD")
    write(workspace, {"a.txt": "two\n"})
    git(workspace, "commit", "-qam", "work")
    write(workspace, {"loose.txt": "x\n"})
    facts = reduce(None, created(repo=str(repo), path=str(workspace)))
    assert facts is not None
    head = git(workspace, "rev-parse", "HEAD")
    facts = replace(facts, workspace=SessionWorkspace(str(workspace), start, str(repo / ".git")), head=head)
    host = RemovingHost(workspace)
    core = make_core(tmp_path / "home", host=host)
    core.flow.sessions[facts.id] = facts
    return RemovalWorld(repo, workspace, host, core, facts.id, head)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("since", [None, "main"])
async def test_a_diff_is_read_while_the_workspace_is_removed(world: RemovalWorld, when: str, since: str | None) -> None:
    inspection = world.inspection()
    start = git(world.repo, "rev-parse", since) if since else None
    results = await world.every_removal(when, lambda: inspection.diff(world.session, start))
    assert len(results) >= 10
    for result in results:
        assert (result["files"], result["uncommitted"], result["head"]) == (["a.txt"], [], world.head)
        assert "+two" in result["diff"] and "loose" not in result["diff"]
    assert (await inspection.diff(world.session))["uncommitted"] == ["loose.txt"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_place_of_the_work_is_read_while_the_workspace_is_removed(world: RemovalWorld, when: str) -> None:
    timelines = TimelineReader(world.core, cast(Any, None))
    results = await world.every_removal(when, lambda: timelines.saved_work_json(world.session))
    assert len(results) == 2
    for result in results:
        assert (result["path"], result["uncommitted"], result["ahead"]) == (None, [], 1)
        assert result["sentence"] == f"work safe: committed {world.head[:7]} on feature/x in your repository"
    assert (await timelines.saved_work_json(world.session))["path"] == str(world.workspace)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_conflicts_are_read_while_a_workspace_is_removed(world: RemovalWorld, when: str, tmp_path: Path) -> None:
    git(world.repo, "worktree", "add", "-q", "--no-track", "-b", "other", str(tmp_path / "other"), "main")
    write(tmp_path / "other", {"a.txt": "three\n"})
    git(tmp_path / "other", "commit", "-qam", "other")
    start = git(world.repo, "rev-parse", "main")
    branches = [
        Branch("x", "main", world.head, start, world.workspace),
        Branch("other", "main", git(world.repo, "rev-parse", "other"), start, tmp_path / "other", 1.0),
    ]
    outlook = RepositoryPrediction(world.host, world.repo / ".git", tmp_path / "work")
    assert len(await outlook.predict(branches, ())) == 1

    async def read_conflicts() -> Any:
        write(world.workspace, {"loose.txt": str(world.host.remaining)})  # a new change to compare
        return await outlook.predict(branches, ["x"])

    results = await world.every_removal(when, read_conflicts)
    assert len(results) > 2
    assert {(pair.a, pair.b, pair.files) for conflicts in results for pair in conflicts} == {("x", "other", ("a.txt",))}


async def test_a_session_without_workspace_and_branch_is_not_found(world: RemovalWorld) -> None:
    world.workspace.rename(world.host.moved_to)
    git(world.repo, "worktree", "prune")
    git(world.repo, "branch", "-D", "feature/x")
    sessions = world.core.flow.sessions
    sessions[world.session] = replace(sessions[world.session], head=None)
    with pytest.raises(NotFound, match=r"neither the workspace nor the branch feature/x.* ao status"):
        await world.inspection().diff(world.session)


async def test_a_corrupt_workspace_is_reported_with_a_remedy(world: RemovalWorld) -> None:
    (world.workspace / ".git").write_text("spoiled\n")
    with pytest.raises(Conflict, match=r"cannot be read: git .*ao path"):
        await world.inspection().diff(world.session)
