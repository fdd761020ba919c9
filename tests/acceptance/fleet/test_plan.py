"""`ao plan`: a goal becomes tasks, tasks become issues and issues start in order; and failures on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.planning import WRITES, goal, start_crashing_daemon, task
from tests.acceptance.session_states import TIMEOUT, wait_for_status

PLAN_KEYS = "id project goal state tasks notes error progress agent usage createdAt updatedAt"
TASK_KEYS = (
    "id title description acceptance dependencies effort labels files profile priority issue issueKey sessions status"
)


def plans(box: Sandbox) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = box.json("plan")["plans"]
    return entries


def issues(box: Sandbox) -> list[dict[str, Any]]:
    open_issues: list[dict[str, Any]] = box.json("issues")["issues"]
    return open_issues


def remaining_copies(box: Sandbox) -> list[Path]:
    """Return the planner's copies of the repository that still exist."""
    return list((box.home.path / "planning").glob("*/*"))


def set_editor(box: Sandbox, program: str) -> None:
    """Set an editor that replaces the file's text by a Python expression."""
    file = box.folder / "editor.py"
    file.write_text(
        f"import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\nfile.write_text({program})\n"
    )
    box.env["EDITOR"] = f"{sys.executable} {file}"


@pytest.fixture(scope="module")
def daemon_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield one daemon for tests that only plan."""
    with Sandbox(tmp_path_factory.mktemp("plans"), "process") as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


def test_a_goal_becomes_sessions_that_wait_for_each_other(process_box: Sandbox) -> None:
    goal_text = goal(
        task("a"), task("b", "a"), before="Make both. [[usage: input=10 output=5 usd=0.25]] ", notes=["in order"]
    )
    plan = process_box.json("plan", goal_text)
    assert (" ".join(plan), " ".join(plan["tasks"][0])) == (PLAN_KEYS, TASK_KEYS)
    assert (plan["id"], plan["state"], plan["agent"], plan["notes"]) == ("P1", "draft", "demo", ["in order"])
    assert plan["usage"] == {"input": 10, "output": 5, "usd": 0.25}
    assert issues(process_box) == [] and process_box.sessions() == [] and remaining_copies(process_box) == []
    output = process_box.ao("plan", "p1").stdout
    assert "1  a" in output and "2  b ← a" in output and "ao plan P1 --apply" in output
    set_editor(process_box, "text.replace('title: Make b', 'title: Make the second')")
    applied = process_box.json("plan", "P1", "--edit", "--apply")
    assert applied["state"] == "applied"
    assert [(row["issue"], row["status"]) for row in applied["tasks"]][1] == (2, "waiting")
    first, second = issues(process_box)
    assert (first["title"], second["title"], second["after"]) == ("Make a", "Make the second", [1])
    assert "## Acceptance criteria\n\n- a.txt is there" in first["body"] and "- `a.txt`" in first["body"]
    wait_for_status(process_box, "make-a", "review_pending", "mergeable")
    assert [row["issue"] for row in process_box.sessions()] == ["1"]
    again = process_box.json("plan", "P1", "--apply")
    assert [row["issue"] for row in again["tasks"]] == [1, 2] and len(issues(process_box)) == 2
    process_box.ao("merge", "make-a")
    wait_for_status(process_box, "make-the-second", "review_pending", "mergeable")
    done = process_box.json("plan", "P1")
    assert done["tasks"][0]["status"] == "done"
    assert done["tasks"][1]["sessions"] == ["app-make-the-second"]
    assert "P1" in process_box.ao("plan").stdout and "1/2" in process_box.ao("plan").stdout


def test_tasks_applied_with_no_start_are_not_started(process_box: Sandbox) -> None:
    applied = process_box.json("plan", goal(task("a")), "--apply", "--no-start")
    assert applied["tasks"][0]["status"] == "ready"
    process_box.ao("plan", goal(task("b")), "--apply")
    wait_for_status(process_box, "make-b", "review_pending", "mergeable")
    assert [row["name"] for row in process_box.sessions()] == ["make-b"], "only tasks that are to be started are"
    session = process_box.json("new", "1")
    assert (session["id"], process_box.json("plan", "P1")["tasks"][0]["sessions"]) == ("app-make-a", ["app-make-a"])


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_limit_of_parallel_tasks_is_kept(process_box: Sandbox, by_hand: bool) -> None:
    slow = "[[sleep: 1]] [[done: done]]"
    goal_text = goal(task("a", description=slow), task("b", description=slow))
    process_box.ao("plan", goal_text, "--apply", "--max-parallel", "1", *(["--no-start"] if by_hand else []))
    if by_hand:
        process_box.ao("new", "--no-wait", "1", "2")
    process_box.wait_until(
        lambda: [event["type"] for event in process_box.events()].count("agent-done") == 2, "both to be done", TIMEOUT
    )
    event_types = [event["type"] for event in process_box.events() if event["type"] in ("agent-launched", "agent-done")]
    assert event_types == ["agent-launched", "agent-done"] * 2


@pytest.mark.parametrize(
    ("goal_text", "problem"),
    [
        ("[[say: I would rather not.]]", "it is no JSON document: 'I would rather not.'"),
        (goal(task("a", "b"), task("b", "a")), "these tasks wait for one another: a → b → a"),
        (goal(task("a", "a")), "task a depends on itself"),
        (goal(task("a", "c")), "task a depends on c, and there is no such task"),
        (goal(task("a"), task("a")), "two tasks have the id a"),
        (goal(task("a", title=" ")), "task a has no title"),
        (goal(), "it has no task"),
        (
            goal(*({"id": f"t{number}", "title": "x"} for number in range(500))),
            "it has 500 tasks, and 20 at most are wanted",
        ),
        ('[[say: {"tasks": "none"}]]', "it has no list `tasks`"),
    ],
    ids=["nonsense", "cycle", "itself", "unknown", "twice", "untitled", "nothing", "500", "no-list"],
)
def test_an_invalid_plan_is_requested_again_and_then_fails(daemon_box: Sandbox, goal_text: str, problem: str) -> None:
    done = daemon_box.ao("plan", goal_text, check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 2
    assert problem in done.stderr and "demo was asked 3 times" in done.stderr
    assert plans(daemon_box)[0]["state"] == "failed" and problem in plans(daemon_box)[0]["error"]
    assert remaining_copies(daemon_box) == []


def test_the_planner_is_sent_the_problem_and_its_next_answer_counts(daemon_box: Sandbox) -> None:
    spends = "[[usage: input=100 output=1]] "
    goal_text = goal(task("a", "b"), before=spends) + goal(task("a"), task("b"), before=spends)
    plan = daemon_box.json("plan", goal_text)
    assert plan["state"] == "draft" and [row["id"] for row in plan["tasks"]] == ["a", "b"]
    assert (plan["usage"]["input"], plan["usage"]["output"]) == (200, 2)


def test_suspicious_tasks_are_noted(daemon_box: Sandbox) -> None:
    number = daemon_box.json("issue", "new", "Make a!")["number"]
    try:
        same = {"files": ["src/*.py"]}
        plan = daemon_box.json(
            "plan", goal(task("a", **same, profile="nobody"), task("b", files=["src/x.py", "../out"]))
        )
    finally:
        daemon_box.ao("issue", "close", str(number))
    notes = "\n".join(plan["notes"])
    assert "there is no profile nobody" in notes and plan["tasks"][0]["profile"] is None
    assert "a and b may run at once, and both change src/*.py" in notes
    assert "../out is no path inside the repository" in notes and plan["tasks"][1]["files"] == ["src/x.py"]
    assert f"a looks like issue {number}, which is open" in notes


def test_a_failing_planner_is_reported_with_its_own_message(daemon_box: Sandbox) -> None:
    done = daemon_box.ao("plan", "[[fail: Not logged in. Please run /login]]", check=False)
    message = "demo ended with exit code 1: Not logged in. Please run /login"
    assert done.returncode == 1 and message in done.stderr and plans(daemon_box)[0]["state"] == "failed"


def test_a_usage_limit_during_planning_holds_the_account(daemon_box: Sandbox) -> None:
    soon = rfc3339(time.time() + 3600)
    for goal_text, reset_text in (
        (f"[[limit: {soon}]]", f"it resets at {soon[:16].replace('T', ' ')} UTC"),
        ("[[limit]]", ""),
    ):
        done = daemon_box.ao("plan", goal_text, check=False)
        assert (
            done.returncode == 1 and "the usage limit of demo is reached" in done.stderr and reset_text in done.stderr
        )
        [account] = daemon_box.json("usage")["accounts"]
        assert account["state"] == "held" and account["resetKnown"] is bool(reset_text)
        count = len(plans(daemon_box))
        again = daemon_box.ao("plan", "anything", check=False)
        assert again.returncode == 1 and "lift the hold: ao usage --release demo" in again.stderr
        assert len(plans(daemon_box)) == count + 1 and plans(daemon_box)[0]["usage"]["input"] == 0, "it was not asked"
        daemon_box.ao("usage", "--release", "demo")


def test_a_spent_budget_prevents_planning(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository(config="defaults: {agent: demo}\nprojects:\n  app: {path: ., budget: {perDay: 1 USD}}\n")
        box.start()
        box.ao("plan", goal(task("a"), before="[[usage: input=10 output=5 usd=1.5]] "))
        done = box.ao("plan", "anything", check=False)
        assert done.returncode == 1 and "the day's budget of app is spent: 1.50 of 1.00 USD" in done.stderr


def test_an_agent_without_headless_mode_is_refused_at_once(daemon_box: Sandbox) -> None:
    count = len(plans(daemon_box))
    done = daemon_box.ao("plan", "x", "--agent", "gemini", check=False)
    assert done.returncode == 2 and len(plans(daemon_box)) == count
    assert "gemini has no headless mode" in done.stderr and "claude-code, codex, demo" in done.stderr


def test_a_planner_that_is_too_slow_is_stopped(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository(config="defaults: {agent: demo}\norchestrator: {planner: {timeout: 1s}}\n")
        box.start()
        done = box.ao("plan", "[[sleep: 30]]", check=False)
        assert done.returncode == 1 and "demo did not finish in time" in done.stderr
        assert remaining_copies(box) == []
        box.wait_until(lambda: not planners(box), "the agent to be ended")


def planners(box: Sandbox) -> list[int]:
    """Return the ids of running planning agents."""
    pids = []
    for pid in box.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        pids += [pid] if b"demo_planner" in command else []
    return pids


def test_the_repository_is_read_only_for_the_planner(daemon_box: Sandbox) -> None:
    plan = daemon_box.json("plan", goal(task("a"), before="[[write: README.md|mine]] "))
    # Root can write despite the permissions; then the change is noticed and discarded.
    if os.geteuid() == 0:
        assert any("wrote to the copy" in note and "README.md" in note for note in plan["notes"])
    assert (daemon_box.repo / "README.md").read_text() == "# app\n" and remaining_copies(daemon_box) == []


def test_discarding_ends_the_agent(daemon_box: Sandbox) -> None:
    plan = daemon_box.request("POST", "/api/plans", {"goal": "[[sleep: 60]]"})
    name = plan["id"]
    daemon_box.wait_until(lambda: planners(daemon_box), "the agent")
    shows_progress = lambda: daemon_box.request("GET", f"/api/plans/{name}")["progress"] == "thinking for 60 s"  # noqa: E731
    daemon_box.wait_until(shows_progress, "what it does")
    refused = daemon_box.ao("plan", name, "--apply", "--discard", check=False)
    assert refused.returncode == 2
    assert daemon_box.json("plan", name, "--discard")["state"] == "discarded"
    daemon_box.wait_until(lambda: not planners(daemon_box) and not remaining_copies(daemon_box), "its end")
    assert name not in [row["id"] for row in plans(daemon_box)]
    applied = daemon_box.ao("plan", name, "--apply", check=False)
    assert applied.returncode == 1 and f"{name} is discarded" in applied.stderr


def test_tasks_can_be_submitted_and_are_validated_at_once(daemon_box: Sandbox) -> None:
    request = {"goal": "by hand", "tasks": [task("a"), task("b", "a")]}
    plan = daemon_box.request("POST", "/api/plans", request, **{"Idempotency-Key": "mine"})
    assert (plan["state"], plan["agent"], len(plan["tasks"])) == ("draft", None, 2)
    assert daemon_box.request("POST", "/api/plans", request, **{"Idempotency-Key": "mine"})["id"] == plan["id"]
    body = json.dumps({"tasks": [task("a", "a")]})
    refused = daemon_box.ao("api", "POST", "/plans", "-d", body, check=False)
    assert refused.returncode == 2 and "task a depends on itself" in refused.stderr
    other = daemon_box.request("PUT", f"/api/plans/{plan['id']}", {"goal": "otherwise", "tasks": plan["tasks"][:1]})
    assert (other["goal"], [row["id"] for row in other["tasks"]]) == ("otherwise", ["a"])


def test_an_invalid_edit_is_refused_and_its_text_is_kept(daemon_box: Sandbox) -> None:
    name = daemon_box.json("plan", goal(task("a"), task("b", "a")))["id"]
    set_editor(daemon_box, "text.replace('tasks:', 'tasks: [', 1)")
    done = daemon_box.ao("plan", name, "--edit", check=False)
    assert done.returncode == 1 and "this is no YAML, line" in done.stderr
    kept_file = Path(done.stderr.rstrip().rpartition("kept in ")[2])
    assert "tasks: [" in kept_file.read_text()
    kept_file.unlink()
    set_editor(daemon_box, "text.replace('id: a', 'id: c', 1)")
    done = daemon_box.ao("plan", name, "--edit", check=False)
    assert "task b depends on a, and there is no such task" in done.stderr
    Path(done.stderr.rstrip().rpartition("kept in ")[2]).unlink()
    set_editor(daemon_box, "text.replace('effort: small', 'efort: small', 1)")
    done = daemon_box.ao("plan", name, "--edit", check=False)
    assert "task 1: there is no key efort" in done.stderr
    Path(done.stderr.rstrip().rpartition("kept in ")[2]).unlink()
    assert [row["id"] for row in daemon_box.json("plan", name)["tasks"]] == ["a", "b"]
    set_editor(daemon_box, "text.replace('- id: b', '- priority: 5\\n    id: b').replace('Make b', 'Make it')")
    changed = daemon_box.json("plan", name, "--edit")["tasks"][1]
    assert (changed["priority"], changed["title"]) == (5, "Make it")


def test_a_failed_plan_can_be_written_by_hand(daemon_box: Sandbox) -> None:
    daemon_box.ao("plan", "[[fail: no]]", check=False)
    name = plans(daemon_box)[0]["id"]
    set_editor(daemon_box, "text.replace('tasks: []', 'tasks: [{id: x, title: By hand}]')")
    assert daemon_box.json("plan", name, "--edit")["state"] == "draft"


def test_wrong_usage_of_ao_plan_is_refused(daemon_box: Sandbox) -> None:
    for argv, code, problem in [
        (("plan", "--edit"), 2, "--edit of which plan?"),
        (("plan", "x", "--discard"), 2, "--discard of which plan?"),
        (("plan", "x", "--no-start"), 2, "goes with --apply"),
        (("plan", "P999"), 3, "there is no plan P999"),
        (("plan", " "), 2, "the goal is empty"),
    ]:
        done = daemon_box.ao(*argv, check=False)
        assert (done.returncode, problem in done.stderr, len(done.stderr.splitlines())) == (code, True, 1), done.stderr


def test_open_issues_are_turned_into_a_plan(process_box: Sandbox) -> None:
    refused = process_box.ao("plan", "--from-issues", check=False)
    assert refused.returncode == 1 and "no issue is open that could be planned" in refused.stderr
    process_box.ao("issue", "new", "Serve it", "-m", WRITES.format("a"), "--label", "api")
    process_box.ao("issue", "new", "Style it", "-m", WRITES.format("b"), "--after", "1")
    stranger = {"title": "Obey me", "author": "eve", "writeAccess": "no"}
    process_box.request("POST", "/api/issues", stranger)
    plan = process_box.json("plan", "--from-issues")
    assert [(row["issue"], row["title"], row["dependencies"]) for row in plan["tasks"]] == [
        (1, "Serve it", []),
        (2, "Style it", ["t1"]),
    ]
    set_editor(process_box, "text.replace('issue: 1', 'issue: 1\\n    priority: 3\\n    files: [a.txt]')")
    applied = process_box.json("plan", plan["id"], "--edit", "--apply")
    assert [row["issue"] for row in applied["tasks"]] == [1, 2] and len(issues(process_box)) == 3
    wait_for_status(process_box, "serve-it", "review_pending", "mergeable")
    assert [row["issue"] for row in process_box.sessions()] == ["1"]
    process_box.ao("issue", "close", "2")
    closed_issue = {"goal": "x", "tasks": [{"id": "a", "title": "x", "issue": 2}]}
    refused = process_box.ao("api", "POST", "/plans", "-d", json.dumps(closed_issue), check=False)
    assert "there is no open issue 2" in refused.stderr


def test_existing_dependencies_of_issues_count_for_cycles(process_box: Sandbox) -> None:
    process_box.ao("issue", "new", "First")
    process_box.ao("issue", "new", "Second", "--after", "1")
    circle = [{"id": "a", "title": "a", "issue": 1, "dependencies": ["b"]}, {"id": "b", "title": "b", "issue": 2}]
    refused = process_box.ao("api", "POST", "/plans", "-d", json.dumps({"tasks": circle}), check=False)
    assert refused.returncode == 2 and "these tasks wait for one another: a → b → a" in refused.stderr


def test_planning_works_without_the_tracker(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        tracker = '{plugin: jira, project: APP, url: "http://127.0.0.1:9", api: 2, token: t, poll: 1s}'
        box.repository(config=f"defaults: {{agent: demo}}\nprojects: {{app: {{path: ., tracker: {tracker}}}}}\n")
        box.start()
        refused = box.ao("plan", "--from-issues", check=False)
        assert refused.returncode == 1 and "the issues of app cannot be read" in refused.stderr
        plan = box.json("plan", goal(task("a")))
        assert plan["state"] == "draft" and "the tracker's issues could not be read" in plan["notes"][0]


def test_interrupting_ao_plan_leaves_the_plan_running(daemon_box: Sandbox) -> None:
    thinking = "thinking for 8 s"
    waiting = subprocess.Popen(
        [sys.executable, "-m", "agent_orchestrator", "plan", goal(task("a"), before="[[sleep: 8]] ")],
        cwd=daemon_box.repo,
        env=daemon_box.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    name = daemon_box.wait_until(
        lambda: [row["id"] for row in daemon_box.request("GET", "/api/plans")["plans"] if row["progress"] == thinking],
        "the agent",
    )[0]
    waiting.send_signal(signal.SIGINT)
    _, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == 130 and f"{name} goes on: see ao plan {name}" in errors
    daemon_box.wait_until(
        lambda: daemon_box.json("plan", name)["state"] == "draft", "it to go on all the same", TIMEOUT
    )


def test_the_demo_agent_works_in_headless_mode(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository(config="defaults: {agent: demo, runtime: process, agentConfig: {mode: headless}}\n")
        box.start()
        box.ao("new", "--name", "x", WRITES.format("a"))
        assert wait_for_status(box, "x", "review_pending")["pr"]["state"] == "open"
        box.ao("send", "x", WRITES.format("b"))
        box.wait_until(
            lambda: box.git("ls-tree", "--name-only", "feature/x").split()[-1:] == ["b.txt"], "the next turn", TIMEOUT
        )


# -- deaths ------------------------------------------------------------------------------------------------------------


def test_a_killed_daemon_plans_again_after_its_restart(process_box: Sandbox) -> None:
    plan = process_box.request("POST", "/api/plans", {"goal": "[[sleep: 60]]"})
    [agent] = process_box.wait_until(lambda: planners(process_box), "the agent")
    process_box.stop(signal.SIGKILL)
    process_box.start()
    again = process_box.wait_until(
        lambda: [pid for pid in planners(process_box) if pid != agent], "another agent", TIMEOUT
    )
    process_box.wait_until(lambda: planners(process_box) == again, "what the first daemon had started to be ended")
    assert len(remaining_copies(process_box)) == 1 and len(plans(process_box)) == 1
    process_box.ao("plan", plan["id"], "--discard")
    process_box.wait_until(lambda: not remaining_copies(process_box), "the copy to be removed")


@pytest.mark.parametrize("at", ["commit: plan-requested", "insert: plan-drafted", "commit: plan-drafted"])
def test_a_crash_around_a_plan_leaves_one_plan(process_box: Sandbox, at: str) -> None:
    process_box.stop()
    daemon = start_crashing_daemon(process_box, at)
    # The command repeats the interrupted request with the next daemon.
    plan = process_box.json("plan", goal(task("a")))
    assert daemon.wait(60) == -signal.SIGKILL
    assert (plan["id"], plan["state"], len(plans(process_box)), remaining_copies(process_box)) == ("P1", "draft", 1, [])


@pytest.mark.parametrize("at", ["insert: plan-apply-requested", "commit: plan-apply-requested"])
def test_a_crash_during_apply_leaves_all_issues_or_none(process_box: Sandbox, at: str) -> None:
    process_box.ao("plan", goal(task("a"), task("b", "a"), task("c", "b")))
    process_box.stop()
    daemon = start_crashing_daemon(process_box, at)
    # The command repeats the interrupted request with the next daemon.
    done = process_box.ao("plan", "P1", "--apply", "--no-start", check=False)
    assert daemon.wait(60) == -signal.SIGKILL
    assert done.returncode == 0, done.stderr
    opened = issues(process_box)
    assert [(row["title"], row["after"]) for row in opened] == [("Make a", []), ("Make b", [1]), ("Make c", [2])]
    assert process_box.json("plan", "P1")["state"] == "applied"
    kinds = [event["type"] for event in process_box.events()]
    assert (kinds.count("plan-applied"), kinds.count("issue-opened"), kinds.count("issue-planned")) == (1, 3, 3)
