"""The Python API with a real daemon and the demo agent: spawning, following, handlers, waiting and interruptions."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
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
from agent_orchestrator.testing.terminals import wait_until_true
from tests.acceptance.planning import goal, task

pytestmark = pytest.mark.anyio

CONFIG = """\
defaults: {agent: demo, runtime: process}
projects:
  NAME: {path: ., repo: myorg/NAME, scm: local, tracker: local, ci: {command: "test ! -e bad"}}
agents:
  other: {tool: demo}
reactions: {ci-failed: {auto: false}}
"""
DONE = "[[edit: {0}.txt|x]] [[commit: add {0}]] [[done: did {0}]]"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("api")) as box:
        box.repository("none")
        box.start()
        yield box


@pytest.fixture
def app(daemon: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """Create a new repository whose project has the repository's name, and make it the current folder."""
    name = f"app{sum(1 for _ in daemon.folder.iterdir())}"
    daemon.repository(name, config=CONFIG.replace("NAME", name))
    monkeypatch.chdir(daemon.repo)
    monkeypatch.setenv("AO_HOME", str(daemon.home.path))
    return daemon


def events(app: Sandbox, kind: str) -> list[dict[str, Any]]:
    """Return the data of the events of one kind in this test's project."""
    events = app.request("GET", f"/api/events?after=0&limit=10000&project={app.repo.name}&type={kind}")["events"]
    return [event["data"] for event in events]


async def merge_when_green(event: Event) -> None:
    """Merge every change whose checks have passed."""
    session = event.session
    if session is not None and session.pr and all(check.state == "success" for check in session.pr.checks):
        await session.merge()


async def test_tasks_with_dependencies_are_spawned_handled_and_waited_for(app: Sandbox) -> None:
    results: list[Result] = []
    failures: list[Event] = []
    async with Orchestrator(app.repo.name, max_parallel_agents=2) as orchestrator:
        first = await orchestrator.spawn(Task("a", "Add a", DONE.format("a")), on_complete=results.append)

        async def append_result(result: Result) -> None:
            await asyncio.sleep(0)
            results.append(result)

        bad = "[[edit: bad|x]] [[commit: spoil]] [[done: did b]]"
        second = await orchestrator.spawn(Task("b", "Add b", bad, dependencies=["a"]), on_complete=append_result)
        assert second.status == "queued" and second.waiting_for == f"{first.id} to be done"

        async def fix(failure: Event) -> None:
            failures.append(failure)
            assert failure.session is not None
            fix_message = "[[sh: git rm -q bad]] [[edit: b.txt|x]] [[commit: mend]] [[done: mended]]"
            assert await failure.session.resume(message=fix_message, max_retries=1)
            assert not await failure.session.resume(message="again", max_retries=1)

        orchestrator.on("ci-failed", second, fix)
        orchestrator.on("checks-settled", None, merge_when_green)
        outcomes = await orchestrator.wait(60)

    assert [(item.session.id, item.success, item.session.status) for item in outcomes] == [
        (first.id, True, "merged"),
        (second.id, True, "merged"),
    ]
    assert [item.summary for item in results] == ["did a", "did b"]
    assert [item.summary for item in outcomes] == ["did a", "mended"]
    (failure,) = failures
    assert failure.trigger == "ci-failed" and failure.session == second and "exit code 1" in failure.logs
    assert (app.repo / "b.txt").exists() and not (app.repo / "bad").exists()
    created = events(app, "session-created")
    assert {item["groupLimit"] for item in created} == {2} and len({item["group"] for item in created}) == 1


async def test_spawn_all_orders_dependencies_that_spawn_refuses(app: Sandbox) -> None:
    tasks = [
        Task("b", "Second", DONE.format("b"), dependencies=["First"]),
        Task("a", "First", "[[done: nothing to do]]"),
    ]
    async with Orchestrator(app.repo.name) as orchestrator:
        with pytest.raises(UsageError, match="'First', which has no session yet"):
            await orchestrator.spawn(tasks[0])
        sessions = await orchestrator.spawn_all(tasks)
        assert [entry.title for entry in sessions] == ["First", "Second"]
        await wait_until_true(lambda: sessions[1].pr is not None and sessions[1].pr.state == "open")
        results = await orchestrator.wait(60, until="idle")
        assert [entry.success for entry in results] == [True, True]
        assert results[1].pr is not None and results[1].pr.state == "open"
        with pytest.raises(UsageError, match="'nowhere', which is no task"):
            await orchestrator.spawn_all([Task("c", "Third", dependencies=["nowhere"])])


async def test_a_group_keeps_its_limit_of_parallel_agents(app: Sandbox) -> None:
    async with (
        Orchestrator(max_parallel_agents=1, group="shared") as orchestrator,
        Orchestrator(max_parallel_agents=1, group="shared") as other,
    ):
        first = await orchestrator.spawn("[[ask: May I?]] [[done: one]]")
        await first.wait(until="idle", timeout=60)
        busy = await orchestrator.spawn("[[sleep: 60]]")
        second = await other.spawn("[[done: two]]")
        assert busy.status in ("starting", "working") and second.status == "queued", second.waiting_for
        await busy.stop()
        (results,) = await other.wait(60, until="idle")
        assert results.success


async def test_wait_raises_the_exception_of_a_handler(app: Sandbox) -> None:
    def fail(_: object) -> None:
        raise ValueError("no way")

    async with Orchestrator(app.repo.name) as orchestrator:
        session = await orchestrator.spawn("[[done: x]]")
        orchestrator.on("agent-done", session, fail)
        with pytest.raises(HandlerError, match=f"agent-done of {session.id} failed: ValueError: no way") as caught:
            await orchestrator.wait(60)
        assert isinstance(caught.value.__cause__, ValueError)
    called = asyncio.Event()

    def fail_too(_: object) -> None:
        called.set()
        raise ValueError("no way")

    with pytest.raises(HandlerError, match=r"the end of .* failed: ValueError"):
        async with Orchestrator(app.repo.name) as orchestrator:
            await orchestrator.spawn("[[done: y]]", on_complete=fail_too)
            await asyncio.wait_for(called.wait(), 60)


async def test_handlers_are_called_for_agent_states(app: Sandbox) -> None:
    questions: list[str | None] = []

    async def answer(event: Event) -> None:
        assert event.session is not None
        questions.append(event.session.waiting_for)
        await event.session.answer("green")

    async with Orchestrator(app.repo.name) as orchestrator:
        orchestrator.on("agent-needs-input", None, answer)
        painted = asyncio.Event()
        session = await orchestrator.spawn(
            "[[ask: Which colour?]] [[edit: c.txt|{answer}]] [[commit: c]] [[done: painted]]",
            on_complete=lambda _: painted.set(),
        )
        await asyncio.wait_for(painted.wait(), 60)
        (results,) = await orchestrator.wait(60, until="idle")
        assert results.summary == "painted" and questions == ["Which colour?"]
        assert "+green" in str(await session.diff())
        failing = await orchestrator.spawn("[[fail: broken]]")
        exits: list[Event] = []
        orchestrator.on("agent-exited", failing, exits.append)
        await session.stop()
        results, lost = await orchestrator.wait(60)
        assert results.session.status == "stopped" and not lost.success and lost.session.status == "failed"
        assert [item.trigger for item in exits] == ["agent-exited"]


async def test_a_wait_survives_a_restart_of_the_daemon(app: Sandbox) -> None:
    async with Orchestrator(app.repo.name) as orchestrator:
        progress_steps: list[str] = []
        orchestrator.on("agent-progress", None, lambda event: progress_steps.append(event.data["step"]))
        steps = (
            "[[progress: 1/3 one]] [[sleep: 2]] [[progress: 2/3 two]] [[wait]] [[progress: 3/3 three]] [[done: all]]"
        )
        session = await orchestrator.spawn(steps)
        waiting = asyncio.create_task(orchestrator.wait(90))
        await asyncio.to_thread(app.stop, signal.SIGKILL)
        spool = app.home.spool(session.id, 1)
        await asyncio.to_thread(app.wait_until, lambda: "two" in spool.read_text(), "something to happen meanwhile")
        await asyncio.to_thread(app.start)
        await asyncio.to_thread(app.stop)
        await asyncio.to_thread(app.start)
        await session.send("go on")
        async for event in session.events(follow=True):
            if event.type == "agent-done":
                break
        assert (await session.stop()).status == "stopped"
        (results,) = await waiting
        assert results.summary == "all" and progress_steps == ["one", "two", "three"]


async def test_a_cancelled_wait_does_not_stop_sessions(app: Sandbox) -> None:
    async with Orchestrator(app.repo.name) as orchestrator:
        session = await orchestrator.spawn("[[wait]] [[done: later]]")
        with pytest.raises(TimedOut, match=r"did not end within 0\.2 s"):
            await orchestrator.wait(0.2)
        waiting = asyncio.create_task(orchestrator.wait())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert (await session.wait(until="idle", timeout=60)).status == "idle"
    with pytest.raises(UsageError, match="not open"):
        orchestrator.on("agent-done", None, print)


async def test_an_orchestrator_subclass_can_plan_and_select_agents(app: Sandbox) -> None:
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

    async with CustomOrchestrator(app.repo.name, max_parallel_agents=1) as orchestrator:
        orchestrator.on("checks-settled", None, merge_when_green)
        results = await orchestrator.run("Número", timeout=60)
    assert [result.session.name for result in results] == ["numero-one", "numero-two"]
    assert [result.session.branch for result in results] == ["feature/numero-one", "feature/numero-two"]
    assert [result.session.profile for result in results] == [None, "other"]
    assert [result.summary for result in results] == ["did one", "did two"]
    created = events(app, "session-created")
    assert created[1]["after"] == [results[0].session.id] and created[0]["groupLimit"] == 1


async def test_a_script_can_create_worktrees_and_pull_requests_step_by_step(app: Sandbox) -> None:
    app.ao("issue", "new", "Add a greeting", "-m", "Say hello.")
    async with Orchestrator(
        tracker={"type": "github", "repo": f"myorg/{app.repo.name}"}, max_parallel_agents=3
    ) as orchestrator:
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
        (results,) = await orchestrator.wait(60)
        assert agent == worktree.session and agent.profile == "other" and results.session.status == "merged"
        assert agent.runtime == ("tmux" if have_tmux() else "process")
        assert app.git("log", "-1", "--format=%s", "main").startswith("Say hello")
        with pytest.raises(Conflict, match="has its agent already"):
            await orchestrator.spawn_agent((await orchestrator.spawn("[[wait]]")).workspace_path or "", context="x")
        empty = await orchestrator.create_worktree()
        with pytest.raises(Conflict, match="has no commit yet: nothing was changed"):
            await orchestrator.create_pr(empty)


async def test_the_session_manager_creates_sends_stops_and_restores(app: Sandbox) -> None:
    manager = SessionManager()
    session = await manager.create(
        project_id=app.repo.name,
        name="fix-auth-bug",
        issue="GH-456",
        branch="fix/auth-validation",
        agent="demo",
        runtime="process",
        workspace="worktree",
        prompt="[[progress: 1/2 looking]] [[wait]] [[edit: f|x]] [[commit: f]] [[done: ok]]",
    )
    assert isinstance(session, Session) and session.id == f"{app.repo.name}-fix-auth-bug"
    assert session.workspace_path and Path(session.workspace_path).is_dir()
    await session.wait(until="idle", timeout=60)
    status = await manager.get_status("fix-auth-bug")
    assert (status.agent, status.state, status.current_task) == ("demo", "idle", "looking")
    assert status.branch == "fix/auth-validation" and status.workspace_path == session.workspace_path
    assert status.last_activity is not None and status.last_activity.tzinfo is not None
    assert (await manager.send(session.id, "go on")).message_id
    async for event in session.events(follow=True):
        if event.type == "agent-done":
            assert event.data["summary"] == "ok" and event.session == session
            break
    assert [entry.id for entry in await manager.list(app.repo.name)] == [session.id]
    stopped = await manager.stop(session.id)
    assert stopped.status == "stopped" and stopped.over
    assert "agent-done" in [entry.type async for entry in session.events()]
    assert (await manager.restore(session.id)).status != "stopped"
    with pytest.raises(TimedOut, match=r"after 0\.1 s"):
        await manager.wait(session.id, timeout=0.1)
    with pytest.raises(NotFound, match="no session nobody"):
        await manager.get("nobody")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"project": "nowhere"}, "no project nowhere: known: .*app"),
        (
            {"tracker": {"type": "github", "repo": "a/b"}},
            "no project has the repository a/b: register it: ao start https",
        ),
        ({"max_parallel_agents": 0}, "max_parallel_agents is 0"),
    ],
)
async def test_invalid_orchestrator_arguments_are_refused_with_a_remedy(
    app: Sandbox, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AoError, match=problem) as caught:
        async with Orchestrator(**arguments):
            pass
    assert "\n" not in str(caught.value)


async def test_the_project_is_found_by_its_folder(app: Sandbox) -> None:
    for project in (app.repo, str(app.repo), None):
        async with Orchestrator(project) as orchestrator:
            assert orchestrator.project_id == app.repo.name


def test_the_synchronous_api_works_in_a_script_that_starts_the_daemon(app: Sandbox) -> None:
    app.stop()
    script = app.folder / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=app.repo, env=app.env, capture_output=True, text=True, timeout=300
    )
    assert [*done.stdout.splitlines(), done.stderr] == [
        "complete said",
        "failure True",
        "waits Which one?",
        "merged True mended",
        "status idle",
        "followed True",
        "again HandlerError True",
        "",
    ]


SCRIPT = """
import asyncio
from agent_orchestrator import AoError, Task
from agent_orchestrator.sync import Orchestrator, SessionManager

def main():
    with Orchestrator() as orchestrator:
        bad = Task("t", "Spoil it", "[[edit: bad|x]] [[commit: spoil]] [[done: said]]")
        session = orchestrator.spawn(bad, on_complete=lambda result: print("complete", result.summary))

        def mend(failure):
            print("failure", "exit code 1" in failure.logs)
            words = "[[ask: Which one?]] [[sh: git rm -q bad]] [[edit: b|x]] [[commit: mend]] [[done: mended]]"
            failure.session.resume(message=words)

        def answer(event):
            print("waits", event.session.waiting_for)
            event.session.answer("this")

        def land(event):
            if all(check.state == "success" for check in event.session.pr.checks):
                event.session.merge()

        orchestrator.on_ci_failure(session, mend)
        orchestrator.on("checks-settled", None, land)
        orchestrator.on("agent-needs-input", session, answer)
        (result,) = orchestrator.wait(60)
        print(result.session.status, result.success, result.summary)
        manager = SessionManager()
        made = manager.create(orchestrator.project_id, "named", prompt="[[wait]]").wait("idle", 60)
        print("status", manager.get_status(made.id).state)
        for event in made.events(follow=True):
            if event.type == "agent-launched":
                break
        print("followed", manager.at(made.workspace_path) == event.session)
    with Orchestrator() as orchestrator:
        orchestrator.on("agent-done", None, lambda event: 1 / 0)
        try:
            orchestrator.spawn("[[done: x]]")
            orchestrator.wait(60)
        except AoError as error:
            print("again", type(error).__name__, "agent-done" in str(error) and "ZeroDivisionError" in str(error))

async def notebook():
    main()  # a loop runs already

asyncio.run(notebook())
"""


async def test_a_goal_is_planned_and_run(app: Sandbox) -> None:
    request = goal(task("a", priority=2, labels=["x"]), task("b", "a"), notes=["in order"])
    async with Orchestrator(max_parallel_agents=1) as orchestrator:
        orchestrator.on("checks-settled", None, merge_when_green)
        plan = await orchestrator.plan(request)
        first, second = plan.tasks
        assert (first.title, first.estimated_effort, first.priority, first.labels) == ("Make a", "small", 2, ("x",))
        assert second.dependencies == (first.id,) and plan.notes == ("in order",) and plan.id
        assert "Done when:\n- a.txt is there" in first.prompt
        tasks = await orchestrator.breakdown_goal(request)
        assert [(entry.title, entry.deps) for entry in tasks] == [("Make a", ()), ("Make b", ("Make a",))]
        results = await orchestrator.run(request, timeout=60)
        assert [(entry.summary, entry.session.status) for entry in results] == [
            ("made a", "merged"),
            ("made b", "merged"),
        ]
        with pytest.raises(AoError, match="no plan came of it"):
            await orchestrator.plan(goal(task("a", "b"), task("b", "a")))


async def test_open_issues_are_planned(app: Sandbox) -> None:
    app.ao("issue", "new", "Greet", "-m", "[[edit: g|x]] [[commit: g]] [[done: greeted]]")
    async with Orchestrator() as orchestrator:
        (planned,) = (await orchestrator.plan()).tasks
        assert planned.title == "Greet" and planned.issue_id == "1"
        session = await orchestrator.spawn(planned)
        assert session.issue == "1" and session.branch == "feature/issue-1"
