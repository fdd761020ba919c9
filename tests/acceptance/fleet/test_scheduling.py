"""Limits, dependencies, profiles and automatic assignment of issues, with a real daemon and scripted agents."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import wait_for_session

SAMPLES = Path(__file__).parents[2] / "samples"
SLOTS, TASKS = 8, 30


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        yield sandbox


def test_thirty_tasks_run_on_eight_slots_in_order_of_their_dependencies(box: Sandbox) -> None:
    box.repository(
        config=f"defaults: {{agent: demo, runtime: process}}\norchestrator: {{maxParallelAgents: {SLOTS}}}\n"
    )
    box.start()
    chance = random.Random(8)
    before: dict[str, list[str]] = {}
    for number in range(TASKS):
        name = f"t{number:02}"
        before[name] = chance.sample([*before], chance.randint(0, min(number, 2)))
        script = f"[[sleep: {chance.uniform(0.05, 0.4):.2f}]] [[exit: 0]]"
        body = {"name": name, "title": name, "prompt": script, "after": before[name]}
        box.request("POST", "/api/sessions", body)
    box.wait_until(lambda: all(item["exitCode"] == 0 for item in box.sessions()), "all to be done", 120)

    running: set[str] = set()
    done: set[str] = set()
    max_running, idle_seconds, last = 0, 0.0, 0.0
    log = [item for name in before for item in box.events(f"app-{name}")]
    for event in sorted(log, key=lambda item: int(item["seq"])):
        name, now = str(event["session"]).removeprefix("app-"), _seconds(event["time"])
        created = {item["session"] for item in log if item["type"] == "session-created" and item["seq"] < event["seq"]}
        startable = [
            item
            for item in before
            if f"app-{item}" in created and item not in running | done and done.issuperset(before[item])
        ]
        idle_seconds += (now - last) if startable and len(running) < SLOTS and last else 0.0
        last = now
        if event["type"] == "session-admitted":
            assert done.issuperset(before[name]), f"{name} was admitted before {before[name]}"
            running.add(name)
        elif event["type"] == "agent-exited":
            running.discard(name)
            done.add(name)
        max_running = max(max_running, len(running))
    assert max_running <= SLOTS and len(done) == TASKS
    assert idle_seconds / TASKS < 0.5, f"slots were idle for {idle_seconds:.1f} s while sessions could start"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_no_issue_is_assigned_twice_even_after_crashes(box: Sandbox) -> None:
    auto = "defaults: {agent: demo, runtime: process}\norchestrator: {autoAssign: true, maxParallelAgents: 30}\n"
    box.repository(config=auto)
    box.start()
    chance = random.Random(4)
    count = 0
    for _ in range(3):
        for _ in range(4):
            count += 1
            box.request("POST", "/api/issues", {"title": f"Issue {count}", "body": "[[sleep: 300]]"})
        time.sleep(chance.uniform(0.0, 0.15))  # somewhere between the issue and its agent
        pid = box.daemon_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        box.start()
    box.wait_until(lambda: len(box.sessions()) >= count, "every issue to be taken", 60)
    box.wait_until(lambda: all(session["pid"] for session in box.sessions()), "every agent to run", 60)
    issues = sorted(int(session["issue"]) for session in box.sessions())
    assert issues == list(range(1, count + 1))
    assert_refused(box.ao("new", "3", check=False), 1, "works on issue 3 already")


PROFILES = """
defaults: {agent: demo, runtime: process}
orchestrator: {maxParallelAgents: 3}
agents:
  pages: {tool: demo, skills: [react-development, house-style], filters: {labels: [ui], paths: ["src/ui/**"]}, maxParallelAgents: 1}
  python: {tool: demo, filters: {languages: [python], excludeLabels: [ui]}}
  judge: {tool: demo, role: reviewer}
"""


def test_an_issue_is_assigned_to_the_matching_profile(box: Sandbox) -> None:
    repo = box.repository(config=PROFILES)
    skill = repo / ".claude" / "skills" / "house-style" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("Short sentences.\n")
    box.git("add", ".claude")
    box.git("commit", "-q", "-m", "how we write")
    box.start()
    box.ao("issue", "new", "Mend the button", "-m", "It is in src/ui/Button.tsx. [[sleep: 300]]")
    box.ao("issue", "new", "Faster", "-m", "See app/slow.py. [[sleep: 300]]")
    box.ao("issue", "new", "A react page", "--label", "ui", "-m", "[[say: x]]")
    matches = {entry["issue"]: (entry["profile"], entry["matchedBy"]) for entry in box.json("backlog")["entries"]}
    assert matches == {
        1: ("pages", "paths src/ui/**"),
        2: ("python", "languages python"),
        3: ("pages", "labels ui; skills react-development"),
    }
    assert "paths src/ui/**" in box.ao("backlog").stdout
    assert [box.json("new", number)["profile"] for number in ("1", "2")] == ["pages", "python"]
    third = box.json("new", "3")
    assert (third["profile"], third["status"]) == ("pages", "queued")
    assert third["waitingFor"] == "a free place for pages (1 of 1 agents at work)"
    rules = box.request("GET", "/api/sessions/app-mend-the-button/prompt")["system"]
    assert "You are a specialist in react-development." in rules
    assert "house-style (.claude/skills/house-style/SKILL.md)" in rules
    reasons = {entry["issue"]: entry["reasons"] for entry in box.json("backlog")["entries"]}
    assert reasons[3] == [f"app-a-react-page is to work on it and waits for {third['waitingFor']}"]
    assert box.json("new", "nothing of an issue [[wait]]")["profile"] is None


@pytest.mark.skipif(not have_tmux(), reason="needs tmux")
def test_specialist_profiles_take_their_issues_unless_their_runtime_is_missing(tmp_path: Path) -> None:
    """One profile runs; the runtime of the other is missing, which is notified and blocks no other issue."""
    tools = tmp_path / "tools"
    tools.mkdir()
    no_engine = "#!/bin/sh\necho 'Cannot connect' >&2\nexit 1\n"
    for name in ("claude", "aider", "docker", "podman"):
        (tools / name).write_text(no_engine if name in ("docker", "podman") else "#!/bin/sh\nexec sleep 300\n")
        (tools / name).chmod(0o755)
    with Sandbox(tmp_path / "box", "tmux", env={"PATH": f"{tools}:{os.environ['PATH']}"}) as box:
        box.folder.mkdir(exist_ok=True)
        box.repository(config=(SAMPLES / "specialists.yaml").read_text())
        box.start()
        box.ao("issue", "new", "Style the page", "--label", "frontend")
        box.ao("issue", "new", "Serve it", "--label", "api", "--label", "ui", "--label", "backend")
        box.ao("issue", "new", "Colours", "--label", "ui")
        box.wait_until(
            lambda: {item["issue"] for item in box.sessions()} == {"1", "3"}, "the front end's to be taken", 60
        )
        front = wait_for_session(box, "style-the-page", lambda now: now["pid"], "its agent")
        assert (front["profile"], front["agent"], front["runtime"]) == ("frontend-specialist", "claude-code", "tmux")

        def refusal() -> str:
            """Return why the second issue was not started, or "" while it is not known."""
            [entry] = [item for item in box.json("backlog")["entries"] if item["issue"] == 2]
            assert entry["profile"] == "backend-specialist"
            return next((item for item in entry["reasons"] if "it could not be taken: " in item), "")

        assert "docker" in box.wait_until(refusal, "the back end's to be refused")
        notices = [item["data"]["title"] for item in box.events() if item["type"] == "notified"]
        assert notices.count("issue 2: backend-specialist could not take it") == 1
        assert_refused(box.ao("new", "2", check=False), 1, "no container engine answers", "docker")


def wait_for_session_status(box: Sandbox, session: str, status: str, description: str) -> None:
    """Wait until an automatically created session has this status."""
    box.wait_until(
        lambda: (session, status) in [(session["id"], session["status"]) for session in box.sessions()], description, 60
    )


def test_the_tasks_of_a_plan_start_automatically_within_its_limit(box: Sandbox) -> None:
    config = "defaults: {agent: demo, runtime: process}\nagents: {docs: {tool: demo, filters: {paths: [docs]}}}\n"
    box.repository(config=config)
    box.start()
    change = "[[wait]] [[edit: {0}.txt|x]] [[commit: {0}]] [[done: made]]"
    tasks = [
        {"id": "a", "title": "Do a", "description": change.format("a"), "priority": 1, "files": ["docs/a.md"]},
        {"id": "b", "title": "Do b", "description": "[[sleep: 300]]", "dependencies": ["a"]},
        {"id": "c", "title": "Do c", "description": "[[sleep: 300]]"},
    ]
    plan = box.request("POST", "/api/plans", {"projectId": "app", "goal": "all", "tasks": tasks})
    box.request("POST", f"/api/plans/{plan['id']}/apply", {"start": True, "groupLimit": 1})
    wait_for_session_status(box, "app-do-a", "idle", "the most urgent one to be taken first")
    assert box.session("app-do-a")["profile"] == "docs", "by the files that its plan names"
    wait_for_session_status(box, "app-do-c", "working", "the place of one that waits to be free")
    box.ao("send", "do-a", "go on")
    wait_for_session_status(box, "app-do-a", "review_pending", "a's change")

    def blocking_reasons() -> list[str]:
        return next(entry["reasons"] for entry in box.json("backlog")["entries"] if entry["title"] == "Do b")

    limit_reason = "no place is free in P1 (1 of 1 taken)"
    assert blocking_reasons() == [f"issue {box.session('do-a')['issue']} is open", limit_reason]
    box.ao("merge", "do-a")
    box.wait_until(lambda: blocking_reasons() == [limit_reason], "b to wait for c alone")
    box.ao("stop", "do-c")
    wait_for_session_status(box, "app-do-b", "working", "b to be taken")


def test_projects_share_the_limit_of_agents_on_this_machine(box: Sandbox) -> None:
    box.home.path.mkdir(parents=True)
    box.home.config.write_text("cluster: {maxParallelAgents: 2}\n")
    box.repository("zoo")
    zoo = box.repo
    box.repository()
    box.start()
    for number in range(4):
        box.ao("new", "[[sleep: 300]]", "--name", f"a{number}", "--no-wait")
    box.ao("new", "[[sleep: 300]]", "--name", "z", "--no-wait", cwd=zoo)
    reason = "a free place on this machine (2 of 2 agents at work)"
    wait_for_session(box, "zoo-z", lambda now: now["waitingFor"] == reason, "to wait")
    wait_for_session(box, "app-a3", lambda now: now["waitingFor"] == reason, "to wait")
    box.ao("stop", "a0")
    wait_for_session(box, "zoo-z", lambda now: now["pid"], "its turn, before the elder ones of the other project")
    wait_for_session(box, "app-a1", lambda now: now["pid"], "its agent")
    assert [session["name"] for session in box.sessions() if session["pid"]] == ["a1", "z"]
