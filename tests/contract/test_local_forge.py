"""The local forge against the contracts of its slots, on the daemon's own records."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.forge_records import ForgeRecords, NumberAllocator
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.protocols.forge import SCM, PullRequestSpec, PullRequestState, Tracker
from agent_orchestrator.testing.contracts.scm import Ask, Review, SCMContract
from agent_orchestrator.testing.contracts.tracker import TrackerContract
from tests.parts import make_flow
from tests.unit.core.world import created

SESSIONS = ("app-x", "app-y")


@pytest.fixture
async def flow() -> AsyncIterator[Flow]:
    """Yield a started flow."""
    flow = make_flow()
    await flow.start()
    yield flow
    await flow.stop()


def make_plugin(flow: Flow, slot: str, path: str = "") -> Any:
    """Return the plugin as the daemon creates it."""
    records = ForgeRecords(flow, NumberAllocator(flow)).for_slot(slot, "app")
    return PluginRegistry().create(slot, "local", {"path": path, "records": records}, LocalHost())


def session_event(body: e.Body, key: str, session: str) -> Event:
    return Event(body, 1.0, "person", key, "app", session)


class TestPullRequests(SCMContract):
    @pytest.fixture
    def repository(self, tmp_path: Path) -> str:
        first = tmp_path / "first"
        first.mkdir()
        (first / "a.txt").write_text("1\n2\n3\n")
        for argv in (["init", "-q", "-b", "main"], ["add", "a.txt"], ["commit", "-q", "-m", "first"]):
            subprocess.run(["git", "-C", str(first), *argv], check=True)
        subprocess.run(["git", "clone", "-q", "--bare", str(first), str(tmp_path / "app.git")], check=True)
        return str(tmp_path / "app.git")

    @pytest.fixture
    async def scm(self, flow: Flow, repository: str) -> SCM:
        """Return a forge with a session on the branch `feature/x`."""
        await flow.append(created(SESSIONS[0], branch="feature/x"))
        plugin: SCM = make_plugin(flow, "scm", repository)
        return plugin

    @pytest.fixture
    def restarted(self, flow: Flow, scm: SCM) -> SCM:
        plugin: SCM = make_plugin(flow, "scm", scm.push_url()[0])
        return plugin

    @pytest.fixture
    def ask(self, flow: Flow) -> Ask:
        async def ask(pull: PullRequestState, path: str, line: int, text: str) -> None:
            comment = e.CommentAdded("c-1", text, "rev", path, line, head=pull.head)
            await flow.append(session_event(comment, "asked", SESSIONS[0]))

        return ask

    @pytest.fixture
    def review(self, flow: Flow) -> Review:
        async def review(pull: PullRequestState, verdict: str, text: str) -> None:
            submitted = e.ReviewSubmitted("r-1", verdict, pull.head, "rev", text)
            await flow.append(session_event(submitted, "submitted", SESSIONS[0]))

        return review

    @pytest.fixture(autouse=True)
    def _facts(self, flow: Flow) -> None:
        self.flow = flow

    @pytest.mark.usefixtures("clone")
    async def test_a_closed_pull_request_does_not_prevent_a_new_one(self, scm: SCM, restarted: SCM) -> None:
        """A session has one pull request, so another session continues with the branch."""
        await self.flow.append(created(SESSIONS[1], branch="feature/x"))
        await super().test_a_closed_pull_request_does_not_prevent_a_new_one(scm, restarted)


class TestIssues(TrackerContract):
    @pytest.fixture
    def tracker(self, flow: Flow) -> Tracker:
        plugin: Tracker = make_plugin(flow, "tracker")
        return plugin

    @pytest.fixture
    def restarted(self, flow: Flow) -> Tracker:
        plugin: Tracker = make_plugin(flow, "tracker")
        return plugin


@pytest.mark.anyio
async def test_each_session_gets_its_own_pull_request_on_a_shared_branch(flow: Flow) -> None:
    scm = make_plugin(flow, "scm")
    spec = PullRequestSpec("feature/x", "main", "Fix it", "")
    await flow.append(*(created(session, branch="feature/x") for session in SESSIONS))
    numbers = [
        (await scm.open(PullRequestSpec(spec.branch, spec.base, spec.title, "", session=session))).number
        for session in SESSIONS
    ]
    assert numbers == [1, 2]
    assert [pr.number for session in SESSIONS if (pr := flow.sessions[session].pr)] == [1, 2]


@pytest.mark.anyio
async def test_issues_and_pull_requests_share_one_sequence_of_numbers(flow: Flow) -> None:
    scm, tracker = make_plugin(flow, "scm"), make_plugin(flow, "tracker")
    await flow.append(created(SESSIONS[0], branch="feature/x"))
    issue = await tracker.create("One")
    pull = await scm.open(PullRequestSpec("feature/x", "main", "Two", ""))
    await scm.ready(pull)
    assert (issue.id, pull.number) == ("1", 2)
    kept = [(event.type, event.source, event.key) for event in await flow.store.events(0, 100, session=SESSIONS[0])][1:]
    assert kept == [
        ("pr-opened", "forge", f"open-pr:{SESSIONS[0]}:done"),
        ("pr-ready", "forge", f"ready-pr:{SESSIONS[0]}:None:done"),
    ]


@pytest.mark.anyio
async def test_issues_of_a_service_are_not_listed(flow: Flow) -> None:
    tracker = make_plugin(flow, "tracker")
    await flow.append(Event(e.IssueOpened(7, "Elsewhere", tracker="github"), 1.0, "github", "opened", "app"))
    assert await tracker.list(state="all") == []
    with pytest.raises(NotFound):
        await tracker.get("7")


@pytest.mark.parametrize("slot", ["scm", "tracker"])
def test_without_the_daemons_records_the_plugin_is_refused(slot: str) -> None:
    with pytest.raises(UsageError, match="needs the daemon's records"):
        PluginRegistry().create(slot, "local", {}, LocalHost())
