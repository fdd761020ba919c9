"""The Python API against a real daemon with the demo agent: spawned, followed, reacted to, waited for, and interrupted on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator import (
    AgentRuntime,
    AoError,
    Event,
    HandlerError,
    Orchestrator,
    OrchestratorAgent,
    Plan,
    Result,
    Session,
    SessionManager,
    Task,
    TimedOut,
)
from agent_orchestrator.errors import Conflict, NotFound, UsageError
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux

pytestmark = pytest.mark.anyio

CONFIG = """\
defaults: {agent: demo, runtime: process}
projects:
  app: {path: ., repo: myorg/myrepo, scm: local, tracker: local, ci: {command: "test ! -e bad"}}
agents:
  other: {tool: demo}
reactions: {ci-failed: {auto: false}}
"""
DONE = "[[edit: {0}.txt|x]] [[commit: add {0}]] [[done: did {0}]]"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A daemon of its own; the program runs in its repository."""
    with Sandbox(tmp_path) as box:
        box.repository(config=CONFIG)
        box.start()
        monkeypatch.chdir(box.repo)
        monkeypatch.setenv("AO_HOME", str(box.home.path))
        yield box


async def land(event: Event) -> None:
    """A handler that lets every green change land."""
    session = event.session
    if session is not None and session.pr and all(check.state == "success" for check in session.pr.checks):
        await session.merge()


async def test_tasks_with_dependencies_are_spawned_reacted_to_and_waited_for(app: Sandbox) -> None:
    results: list[Result] = []
    failures: list[Event] = []
    async with Orchestrator("app", max_parallel_agents=2) as orchestrator:
        first = await orchestrator.spawn(Task("a", "Add a", DONE.format("a")), on_complete=results.append)

        async def told(result: Result) -> None:
            await asyncio.sleep(0)
            results.append(result)

        bad = "[[edit: bad|x]] [[commit: spoil]] [[done: did b]]"
        second = await orchestrator.spawn(Task("b", "Add b", bad, dependencies=["a"]), on_complete=told)
        assert second.status == "queued" and second.waiting_for == f"{first.id} to be done"

        async def mend(failure: Event) -> None:
            failures.append(failure)
            assert failure.session is not None
            mending = "[[sh: git rm -q bad]] [[edit: b.txt|x]] [[commit: mend]] [[done: mended]]"
            assert await failure.session.resume(message=mending, max_retries=1)
            assert not await failure.session.resume(message="again", max_retries=1)

        orchestrator.on("ci-failed", second, mend)
        orchestrator.on("checks-settled", None, land)
        ended = await orchestrator.wait(60)

    assert [(one.session.id, one.success, one.session.status) for one in ended] == [
        (first.id, True, "merged"),
        (second.id, True, "merged"),
    ]
    assert [one.summary for one in results] == ["did a", "did b"]
    assert [one.summary for one in ended] == ["did a", "did b"] or ended[1].summary == "mended"
    (failure,) = failures
    assert failure.trigger == "ci-failed" and failure.session == second and "exit code 1" in failure.logs
    assert (app.repo / "b.txt").exists() and not (app.repo / "bad").exists()
    made = {one["session"]: one["data"] for one in app.events() if one["type"] == "session-created"}
    assert {one["groupLimit"] for one in made.values()} == {2} and len({one["group"] for one in made.values()}) == 1


async def test_a_dependency_without_a_session_is_refused_and_ordered_by_spawn_all(app: Sandbox) -> None:
    tasks = [
        Task("b", "Second", DONE.format("b"), dependencies=["First"]),
        Task("a", "First", "[[done: nothing to do]]"),
    ]
    async with Orchestrator("app") as orchestrator:
        with pytest.raises(UsageError, match="'First', which has no session yet"):
            await orchestrator.spawn(tasks[0])
        sessions = await orchestrator.spawn_all(tasks)
        assert [one.title for one in sessions] == ["First", "Second"]
        ended = await orchestrator.wait(30, until="idle")
        assert [one.success for one in ended] == [True, True]
        assert ended[1].pr is not None and ended[1].pr.state == "open"
        with pytest.raises(UsageError, match="'nowhere', which is no task"):
            await orchestrator.spawn_all([Task("c", "Third", dependencies=["nowhere"])])


async def test_what_a_handler_raises_is_raised_by_wait(app: Sandbox) -> None:
    def fail(_: object) -> None:
        raise ValueError("no way")

    async with Orchestrator("app") as orchestrator:
        session = await orchestrator.spawn("[[done: x]]")
        orchestrator.on("agent-done", session, fail)
        with pytest.raises(HandlerError, match=f"agent-done of {session.id} failed: ValueError: no way") as caught:
            await orchestrator.wait(20)
        assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(HandlerError, match="the end of .* failed: ValueError"):
        async with Orchestrator("app") as orchestrator:
            await orchestrator.spawn("[[done: y]]", on_complete=fail)
            await asyncio.sleep(1.5)


async def test_states_of_the_agent_are_triggers(app: Sandbox) -> None:
    questions: list[str | None] = []

    async def answer(event: Event) -> None:
        assert event.session is not None
        questions.append(event.session.waiting_for)
        await event.session.answer("green")

    async with Orchestrator("app") as orchestrator:
        orchestrator.on("agent-needs-input", None, answer)
        session = await orchestrator.spawn("[[ask: Which colour?]] [[edit: c.txt|{answer}]] [[commit: c]] [[done: painted]]")
        (ended,) = await orchestrator.wait(30, until="idle")
        assert ended.summary == "painted" and questions == ["Which colour?"]
        assert "+green" in str(await session.diff())
        failing = await orchestrator.spawn("[[fail: broken]]")
        exits: list[Event] = []
        orchestrator.on("agent-exited", failing, exits.append)
        await session.stop()
        ended, lost = await orchestrator.wait(20)
        assert ended.session.status == "stopped" and not lost.success and lost.session.status == "failed"
        assert [one.trigger for one in exits] == ["agent-exited"]


async def test_a_wait_survives_a_restart_of_the_daemon(app: Sandbox) -> None:
    async with Orchestrator("app") as orchestrator:
        seen: list[str] = []
        orchestrator.on("agent-progress", None, lambda event: seen.append(event.data["step"]))
        await orchestrator.spawn("[[progress: 1/2 one]] [[wait]] [[progress: 2/2 two]] [[done: both]]", name="slow")
        waiting = asyncio.create_task(orchestrator.wait(60))
        for kill in (False, True):
            await asyncio.to_thread(app.stop, *((9,) if kill else ()))
            await asyncio.to_thread(app.start)
        await SessionManager().send("app-slow", "go on")
        await SessionManager().wait("app-slow", until="idle", timeout=30)
        assert (await SessionManager().stop("slow")).status == "stopped"
        (ended,) = await waiting
        assert ended.summary == "both" and seen == ["one", "two"]


async def test_a_cancelled_wait_leaves_the_sessions_alone(app: Sandbox) -> None:
    async with Orchestrator("app") as orchestrator:
        session = await orchestrator.spawn("[[wait]] [[done: later]]")
        with pytest.raises(TimedOut, match="did not end within 0.2 s"):
            await orchestrator.wait(0.2)
        waiting = asyncio.create_task(orchestrator.wait())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert (await session.refresh()).status == "idle"
    with pytest.raises(UsageError, match="not open"):
        orchestrator.on("agent-done", None, print)


async def test_a_custom_orchestrator(app: Sandbox) -> None:
    class CustomOrchestrator(OrchestratorAgent):
        async def breakdown_goal(self, goal: str) -> Any:
            return [
                {"title": f"{goal} one", "description": DONE.format("one"), "deps": [], "effort": "small"},
                {"title": f"{goal} two", "description": DONE.format("two"), "deps": [f"{goal} one"], "effort": "small"},
            ]

        async def plan(self, goal: str | None = None) -> Plan:
            tasks = await self.breakdown_goal(goal or "")
            return Plan(
                [
                    Task(
                        id=self.generate_id(),
                        title=task["title"],
                        description=task["description"],
                        dependencies=task["deps"],
                        estimated_effort=task["effort"],
                    )
                    for task in tasks
                ]
            )

        def select_agent(self, task: Task) -> str:
            return "other" if task.title.endswith("two") else "demo"

        async def spawn(self, task: Task) -> str:  # type: ignore[override]
            manager = SessionManager()
            session = await manager.create(
                project_id=self.project_id,
                name=self.to_session_name(task.title),
                issue=task.id,
                branch=self.to_branch_name(task.title),
                agent=self.select_agent(task),
                runtime="process",
                workspace="worktree",
            )
            return session.id

    async with CustomOrchestrator("app", max_parallel_agents=1) as orchestrator:
        orchestrator.on("checks-settled", None, land)
        ended = await orchestrator.run("Número", timeout=60)
    assert [one.session.id for one in ended] == ["app-numero-one", "app-numero-two"]
    assert [one.session.branch for one in ended] == ["feature/numero-one", "feature/numero-two"]
    assert [one.session.profile for one in ended] == [None, "other"]
    assert [one.summary for one in ended] == ["did one", "did two"]
    created = [one["data"] for one in app.events() if one["type"] == "session-created"]
    assert created[1]["after"] == ["app-numero-one"] and created[0]["groupLimit"] == 1


async def test_step_by_step_as_a_script_would(app: Sandbox) -> None:
    app.ao("issue", "new", "Add a greeting", "-m", "Say hello.")
    async with Orchestrator(tracker={"type": "github", "repo": "myorg/myrepo"}, max_parallel_agents=3) as orchestrator:
        worktree = await orchestrator.create_worktree(issue_id="1", base_branch="main")
        assert Path(worktree.path, "README.md").is_file() and worktree.branch == "feature/issue-1"
        assert worktree.session.issue == "1" and worktree.session.waiting_for == "its first message"

        async def completed(result: Result) -> None:
            assert result.success
            await orchestrator.create_pr(worktree=worktree, title="Say hello", auto_merge=True)

        agent = await orchestrator.spawn_agent(
            worktree_path=worktree.path,
            runtime=AgentRuntime.TMUX if have_tmux() else AgentRuntime.PROCESS,
            tool="other",
            context="[[edit: hello.txt|hello]] [[commit: hello]] [[done: said]]",
            on_complete=completed,
        )
        orchestrator.on_ci_failure(agent.id, lambda failure: pytest.fail(failure.logs))
        (ended,) = await orchestrator.wait(60)
        assert agent == worktree.session and agent.profile == "other" and ended.session.status == "merged"
        assert agent.runtime == ("tmux" if have_tmux() else "process")
        assert app.git("log", "-1", "--format=%s", "main").startswith("Say hello")
        with pytest.raises(Conflict, match="has its agent already"):
            await orchestrator.spawn_agent((await orchestrator.spawn("[[wait]]")).workspace_path or "", context="x")
        empty = await orchestrator.create_worktree()
        with pytest.raises(Conflict, match="has no commit yet: nothing was changed"):
            await orchestrator.create_pr(empty)


async def test_sessions_are_managed(app: Sandbox) -> None:
    manager = SessionManager()
    session = await manager.create(
        project_id="app",
        name="fix-auth-bug",
        issue="GH-456",
        branch="fix/auth-validation",
        agent="demo",
        runtime="process",
        workspace="worktree",
        prompt="[[progress: 1/2 looking]] [[wait]] [[edit: f|x]] [[commit: f]] [[done: ok]]",
    )
    assert isinstance(session, Session) and session.id == "app-fix-auth-bug"
    assert session.workspace_path and Path(session.workspace_path).is_dir()
    await session.wait(until="idle", timeout=20)
    status = await manager.get_status("fix-auth-bug")
    assert (status.agent, status.state, status.current_task) == ("demo", "idle", "looking")
    assert status.branch == "fix/auth-validation" and status.workspace_path == session.workspace_path
    assert status.last_activity is not None and status.last_activity.tzinfo is not None
    assert (await manager.send(session.id, "go on")).message_id
    async for event in session.events(follow=True):
        if event.type == "agent-done":
            assert event.data["summary"] == "ok" and event.session == session
            break
    assert [one.id for one in await manager.list("app")] == [session.id]
    stopped = await manager.stop(session.id)
    assert stopped.status == "stopped" and stopped.over
    assert "agent-done" in [one.type async for one in session.events()]
    assert (await manager.restore(session.id)).status != "stopped"
    with pytest.raises(TimedOut, match=r"after 0\.1 s"):
        await manager.wait(session.id, timeout=0.1)
    with pytest.raises(NotFound, match="no session nobody"):
        await manager.get("nobody")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"project": "nowhere"}, "no project nowhere: known: app"),
        ({"tracker": {"type": "github", "repo": "a/b"}}, "no project has the repository a/b: register it: ao start https"),
        ({"max_parallel_agents": 0}, "max_parallel_agents is 0"),
    ],
)
async def test_a_wrong_start_says_what_to_do(app: Sandbox, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(AoError, match=problem) as caught:
        async with Orchestrator(**given):
            pass
    assert "\n" not in str(caught.value)


async def test_the_project_is_found_by_its_folder(app: Sandbox) -> None:
    for wanted in (app.repo, str(app.repo), None):
        async with Orchestrator(wanted) as orchestrator:
            assert orchestrator.project_id == "app"


async def test_the_daemon_is_started_when_it_is_needed(app: Sandbox) -> None:
    await asyncio.to_thread(app.stop)
    assert await SessionManager().list() == []
    assert app.daemon_pid() is not None
