"""Limits, dependencies, profiles and issues that are taken by themselves, with the daemon and scripted agents."""

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


def test_thirty_tasks_on_eight_places(box: Sandbox) -> None:
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
        wanted = {"name": name, "title": name, "prompt": script, "after": before[name]}
        box.request("POST", "/api/sessions", wanted)
    box.until(lambda: all(one["exitCode"] == 0 for one in box.sessions()), "all to be done", 120)

    running: set[str] = set()
    done: set[str] = set()
    most, idle, last = 0, 0.0, 0.0
    log = [one for name in before for one in box.events(f"app-{name}")]
    for event in sorted(log, key=lambda one: int(one["seq"])):
        name, now = str(event["session"]).removeprefix("app-"), _seconds(event["time"])
        made = {one["session"] for one in log if one["type"] == "session-created" and one["seq"] < event["seq"]}
        could = [
            one for one in before if f"app-{one}" in made and one not in running | done and done.issuperset(before[one])
        ]
        idle += (now - last) if could and len(running) < SLOTS and last else 0.0
        last = now
        if event["type"] == "session-admitted":
            assert done.issuperset(before[name]), f"{name} was let in before {before[name]}"
            running.add(name)
        elif event["type"] == "agent-exited":
            running.discard(name)
            done.add(name)
        most = max(most, len(running))
    assert most <= SLOTS and len(done) == TASKS
    assert idle / TASKS < 0.5, f"places were idle for {idle:.1f} s while somebody could have had them"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_no_issue_is_ever_taken_twice(box: Sandbox) -> None:
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
    box.until(lambda: len(box.sessions()) >= count, "every issue to be taken", 60)
    box.until(lambda: all(one["pid"] for one in box.sessions()), "every agent to run", 60)
    taken = sorted(int(one["issue"]) for one in box.sessions())
    assert taken == list(range(1, count + 1))
    assert_refused(box.ao("new", "3", check=False), 1, "works on issue 3 already")


PROFILES = """
defaults: {agent: demo, runtime: process}
orchestrator: {maxParallelAgents: 3}
agents:
  pages: {tool: demo, skills: [react-development, house-style], filters: {labels: [ui], paths: ["src/ui/**"]}, maxParallelAgents: 1}
  python: {tool: demo, filters: {languages: [python], excludeLabels: [ui]}}
  judge: {tool: demo, role: reviewer}
"""


def test_an_issue_goes_to_the_profile_that_it_is_for(box: Sandbox) -> None:
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
    found = {one["issue"]: (one["profile"], one["matchedBy"]) for one in box.json("backlog")["entries"]}
    assert found == {
        1: ("pages", "paths src/ui/**"),
        2: ("python", "languages python"),
        3: ("pages", "labels ui; skills react-development"),
    }
    assert "paths src/ui/**" in box.ao("backlog").stdout
    assert [box.json("new", number)["profile"] for number in ("1", "2")] == ["pages", "python"]
    third = box.json("new", "3")
    assert (third["profile"], third["status"]) == ("pages", "queued")
    assert third["waitingFor"] == "a free place for pages (1 of 1 agents at work)"
    assert box.json("new", "nothing of an issue [[wait]]")["profile"] is None
    rules = box.request("GET", "/api/sessions/app-mend-the-button/prompt")["system"]
    assert "You are a specialist in react-development." in rules
    assert "house-style (.claude/skills/house-style/SKILL.md)" in rules
    waits = {one["issue"]: one["reasons"] for one in box.json("backlog")["entries"]}
    assert waits[3] == [f"app-a-react-page is to work on it and waits for {third['waitingFor']}"]


@pytest.mark.skipif(not have_tmux(), reason="needs tmux")
def test_the_specialists_take_what_is_theirs(tmp_path: Path) -> None:
    """The profiles of a first document: one runs, the other's runtime is not there, which is told and keeps nobody up."""
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
        box.until(lambda: {one["issue"] for one in box.sessions()} == {"1", "3"}, "the front end's to be taken", 60)
        front = wait_for_session(box, "style-the-page", lambda now: now["pid"], "its agent")
        assert (front["profile"], front["agent"], front["runtime"]) == ("frontend-specialist", "claude-code", "tmux")

        def refusal() -> str:
            """Why the second was not taken; it is tried again now and then."""
            [entry] = [one for one in box.json("backlog")["entries"] if one["issue"] == 2]
            assert entry["profile"] == "backend-specialist"
            return next((one for one in entry["reasons"] if "it could not be taken: " in one), "")

        assert "docker" in box.until(refusal, "the back end's to be refused")
        notices = [one["data"]["title"] for one in box.events() if one["type"] == "notified"]
        assert notices.count("issue 2: backend-specialist could not take it") == 1
        assert_refused(box.ao("new", "2", check=False), 1, "no container engine answers", "docker")


def taken(box: Sandbox, session: str, status: str, what: str) -> None:
    """Wait for a session that is made by itself."""
    box.until(lambda: (session, status) in [(one["id"], one["status"]) for one in box.sessions()], what, 60)


def test_a_plan_is_worked_off_by_itself_one_of_its_tasks_at_a_time(box: Sandbox) -> None:
    config = "defaults: {agent: demo, runtime: process}\nagents: {docs: {tool: demo, filters: {paths: [docs]}}}\n"
    box.repository(config=config)
    box.start()
    change = "[[wait]] [[edit: {0}.txt|x]] [[commit: {0}]] [[done: made]]"
    tasks = [
        {"id": "a", "title": "Do a", "description": change.format("a"), "priority": 1, "files": ["docs/a.md"]},
        {"id": "b", "title": "Do b", "description": "[[sleep: 300]]", "dependencies": ["a"]},
        {"id": "c", "title": "Do c", "description": "[[sleep: 300]]"},
    ]
    made = box.request("POST", "/api/plans", {"projectId": "app", "goal": "all", "tasks": tasks})
    box.request("POST", f"/api/plans/{made['id']}/apply", {"start": True, "groupLimit": 1})
    taken(box, "app-do-a", "idle", "the most urgent one to be taken first")
    assert box.session("app-do-a")["profile"] == "docs", "by the files that its plan names"
    taken(box, "app-do-c", "working", "the place of one that waits to be free")
    box.ao("send", "do-a", "go on")
    taken(box, "app-do-a", "review_pending", "a's change")

    def waits() -> list[str]:
        return next(one["reasons"] for one in box.json("backlog")["entries"] if one["title"] == "Do b")

    full = "no place is free in P1 (1 of 1 taken)"
    assert waits() == [f"issue {box.session('do-a')['issue']} is open", full]
    box.ao("merge", "do-a")
    box.until(lambda: waits() == [full], "b to wait for c alone")
    box.ao("stop", "do-c")
    taken(box, "app-do-b", "working", "b to be taken")


def test_a_machine_bears_only_so_many_and_projects_share(box: Sandbox) -> None:
    box.home.path.mkdir(parents=True)
    box.home.config.write_text("cluster: {maxParallelAgents: 2}\n")
    box.repository("zoo")
    zoo = box.repo
    box.repository()
    box.start()
    for number in range(4):
        box.ao("new", "[[sleep: 300]]", "--name", f"a{number}", "--no-wait")
    box.ao("new", "[[sleep: 300]]", "--name", "z", "--no-wait", cwd=zoo)
    wait = "a free place on this machine (2 of 2 agents at work)"
    wait_for_session(box, "zoo-z", lambda now: now["waitingFor"] == wait, "to wait")
    wait_for_session(box, "app-a3", lambda now: now["waitingFor"] == wait, "to wait")
    box.ao("stop", "a0")
    wait_for_session(box, "zoo-z", lambda now: now["pid"], "its turn, before the elder ones of the other project")
    wait_for_session(box, "app-a1", lambda now: now["pid"], "its agent")
    assert [one["name"] for one in box.sessions() if one["pid"]] == ["a1", "z"]
