"""Looking at a session while its workspace is removed: told is what is there afterwards, and it is no fault of the daemon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.conflicts import Branch, RepositoryPrediction
from agent_orchestrator.core.facts import Workspace
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.errors import Conflict, NotFound
from agent_orchestrator.protocols.host import Completed
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.views.inspection import SessionDetails
from agent_orchestrator.views.story import Timelines
from tests.integration.merge.world import write
from tests.integration.rescue.world import git, make_repository
from tests.parts import make_core
from tests.unit.core.event_strategies import created

pytestmark = pytest.mark.anyio


class Removing(LocalHost):
    """Takes the workspace away before or after the n-th Git command that runs in it."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place
        self.away = place.with_name("away")
        self.when, self.left = "", 0

    def plan(self, when: str, number: int) -> None:
        self.when, self.left = when, number

    def put_back(self) -> bool:
        """Was it taken away?"""
        taken = self.away.exists()
        if taken and not self.place.exists():
            self.away.rename(self.place)
        return taken

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = 60.0,
    ) -> Completed:
        now = str(self.place) in argv and self._is_due()
        if now and self.when == "before":
            self.place.rename(self.away)
        done = await super().run(argv, cwd=cwd, env=env, input=input, timeout=timeout)
        if now and self.when == "after":
            self.place.rename(self.away)
        return done

    def _is_due(self) -> bool:
        self.left -= 1
        return self.left == 0


@dataclass
class Here:
    repo: Path
    place: Path
    host: Removing
    core: Core
    session: str
    head: str

    def inspection(self) -> SessionDetails:
        nothing = cast(Any, None)
        return SessionDetails(self.core, nothing, nothing, nothing)

    async def every_removal(self, when: str, look: Callable[[], Awaitable[Any]]) -> list[Any]:
        """What is seen when it is removed at the first, the second … command, until all were tried."""
        found: list[Any] = []
        while True:
            self.host.plan(when, len(found) + 1)
            try:
                seen = await look()
            finally:
                removed = self.host.put_back()
            if not removed:
                self.host.plan("", 0)
                return found
            found.append(seen)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    repo, place = make_repository(tmp_path / "repo", {"a.txt": "one\n"}), tmp_path / "place"
    git(repo, "worktree", "add", "-q", "--no-track", "-b", "feature/x", str(place), "main")
    start = git(place, "rev-parse", "HEAD")
    write(place, {"a.txt": "two\n"})
    git(place, "commit", "-qam", "work")
    write(place, {"loose.txt": "x\n"})
    facts = reduce(None, created(repo=str(repo), path=str(place)))
    assert facts is not None
    head = git(place, "rev-parse", "HEAD")
    facts = replace(facts, place=Workspace(str(place), start, str(repo / ".git")), head=head)
    host = Removing(place)
    core = make_core(tmp_path / "home", host=host)
    core.flow.sessions[facts.id] = facts
    return Here(repo, place, host, core, facts.id, head)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("since", [None, "main"])
async def test_the_change(here: Here, when: str, since: str | None) -> None:
    inspection = here.inspection()
    start = git(here.repo, "rev-parse", since) if since else None
    seen = await here.every_removal(when, lambda: inspection.diff(here.session, start))
    assert len(seen) >= 10
    for one in seen:
        assert (one["files"], one["uncommitted"], one["head"]) == (["a.txt"], [], here.head)
        assert "+two" in one["diff"] and "loose" not in one["diff"]
    assert (await inspection.diff(here.session))["uncommitted"] == ["loose.txt"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_where_the_work_is(here: Here, when: str) -> None:
    stories = Timelines(here.core, cast(Any, None))
    seen = await here.every_removal(when, lambda: stories.work(here.session))
    assert len(seen) == 2
    for one in seen:
        assert (one["path"], one["uncommitted"], one["ahead"]) == (None, [], 1)
        assert one["sentence"] == f"work safe: committed {here.head[:7]} on feature/x in your repository"
    assert (await stories.work(here.session))["path"] == str(here.place)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_who_collides(here: Here, when: str, tmp_path: Path) -> None:
    git(here.repo, "worktree", "add", "-q", "--no-track", "-b", "other", str(tmp_path / "other"), "main")
    write(tmp_path / "other", {"a.txt": "three\n"})
    git(tmp_path / "other", "commit", "-qam", "other")
    start = git(here.repo, "rev-parse", "main")
    branches = [
        Branch("x", "main", here.head, start, here.place),
        Branch("other", "main", git(here.repo, "rev-parse", "other"), start, tmp_path / "other", 1.0),
    ]
    outlook = RepositoryPrediction(here.host, here.repo / ".git", tmp_path / "work")
    assert len(await outlook.look(branches, ())) == 1

    async def look() -> Any:
        write(here.place, {"loose.txt": str(here.host.left)})  # there is something new to be looked at
        return await outlook.look(branches, ["x"])

    seen = await here.every_removal(when, look)
    assert len(seen) > 2
    assert {(pair.a, pair.b, pair.files) for one in seen for pair in one} == {("x", "other", ("a.txt",))}


async def test_what_is_nowhere_any_more_is_not_found(here: Here) -> None:
    here.place.rename(here.host.away)
    git(here.repo, "worktree", "prune")
    git(here.repo, "branch", "-D", "feature/x")
    sessions = here.core.flow.sessions
    sessions[here.session] = replace(sessions[here.session], head=None)
    with pytest.raises(NotFound, match=r"neither the workspace nor the branch feature/x.* ao status"):
        await here.inspection().diff(here.session)


async def test_a_spoiled_workspace_is_no_fault_of_the_daemon(here: Here) -> None:
    (here.place / ".git").write_text("spoiled\n")
    with pytest.raises(Conflict, match=r"cannot be read: git .*ao path"):
        await here.inspection().diff(here.session)
