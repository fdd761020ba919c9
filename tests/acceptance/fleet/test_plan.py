"""`ao plan`: a goal becomes tasks, tasks become issues, issues are taken in order; and everything that may go wrong on the way."""

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
    found: list[dict[str, Any]] = box.json("plan")["plans"]
    return found


def issues(box: Sandbox) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = box.json("issues")["issues"]
    return found


def left_behind(box: Sandbox) -> list[Path]:
    """Copies of the repository that should be gone."""
    return list((box.home.path / "planning").glob("*/*"))


def with_editor(box: Sandbox, program: str) -> None:
    """An editor that changes the file by a Python expression on its text."""
    file = box.folder / "editor.py"
    file.write_text(
        f"import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\nfile.write_text({program})\n"
    )
    box.env["EDITOR"] = f"{sys.executable} {file}"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One daemon for tests that only plan."""
    with Sandbox(tmp_path_factory.mktemp("plans"), "process") as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


def test_a_goal_becomes_sessions_that_wait_for_each_other(process_box: Sandbox) -> None:
    asked = goal(
        task("a"), task("b", "a"), before="Make both. [[usage: input=10 output=5 usd=0.25]] ", notes=["in order"]
    )
    made = process_box.json("plan", asked)
    assert (" ".join(made), " ".join(made["tasks"][0])) == (PLAN_KEYS, TASK_KEYS)
    assert (made["id"], made["state"], made["agent"], made["notes"]) == ("P1", "draft", "demo", ["in order"])
    assert made["usage"] == {"input": 10, "output": 5, "usd": 0.25}
    assert issues(process_box) == [] and process_box.sessions() == [] and left_behind(process_box) == []
    shown = process_box.ao("plan", "p1").stdout
    assert "1  a" in shown and "2  b ← a" in shown and "ao plan P1 --apply" in shown
    with_editor(process_box, "text.replace('title: Make b', 'title: Make the second')")
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


def test_without_a_start_nobody_takes_them(process_box: Sandbox) -> None:
    applied = process_box.json("plan", goal(task("a")), "--apply", "--no-start")
    assert applied["tasks"][0]["status"] == "ready"
    process_box.ao("plan", goal(task("b")), "--apply")
    wait_for_status(process_box, "make-b", "review_pending", "mergeable")
    assert [row["name"] for row in process_box.sessions()] == ["make-b"], "only what is to be started is taken"
    made = process_box.json("new", "1")
    assert (made["id"], process_box.json("plan", "P1")["tasks"][0]["sessions"]) == ("app-make-a", ["app-make-a"])


@pytest.mark.parametrize("by_hand", [False, True])
def test_no_more_at_once_than_was_said(process_box: Sandbox, by_hand: bool) -> None:
    slow = "[[sleep: 1]] [[done: done]]"
    asked = goal(task("a", description=slow), task("b", description=slow))
    process_box.ao("plan", asked, "--apply", "--max-parallel", "1", *(["--no-start"] if by_hand else []))
    if by_hand:
        process_box.ao("new", "--no-wait", "1", "2")
    process_box.until(
        lambda: [event["type"] for event in process_box.events()].count("agent-done") == 2, "both to be done", TIMEOUT
    )
    told = [event["type"] for event in process_box.events() if event["type"] in ("agent-launched", "agent-done")]
    assert told == ["agent-launched", "agent-done"] * 2


@pytest.mark.parametrize(
    ("asked", "words"),
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
def test_a_plan_that_cannot_be_used_is_asked_for_again_and_then_fails(house: Sandbox, asked: str, words: str) -> None:
    done = house.ao("plan", asked, check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 2
    assert words in done.stderr and "demo was asked 3 times" in done.stderr
    assert plans(house)[0]["state"] == "failed" and words in plans(house)[0]["error"]
    assert left_behind(house) == []


def test_what_was_wrong_is_said_and_the_next_answer_counts(house: Sandbox) -> None:
    spends = "[[usage: input=100 output=1]] "
    asked = goal(task("a", "b"), before=spends) + goal(task("a"), task("b"), before=spends)
    made = house.json("plan", asked)
    assert made["state"] == "draft" and [row["id"] for row in made["tasks"]] == ["a", "b"]
    assert (made["usage"]["input"], made["usage"]["output"]) == (200, 2)


def test_what_a_person_should_know_is_noted(house: Sandbox) -> None:
    number = house.json("issue", "new", "Make a!")["number"]
    try:
        same = {"files": ["src/*.py"]}
        made = house.json("plan", goal(task("a", **same, profile="nobody"), task("b", files=["src/x.py", "../out"])))
    finally:
        house.ao("issue", "close", str(number))
    notes = "\n".join(made["notes"])
    assert "there is no profile nobody" in notes and made["tasks"][0]["profile"] is None
    assert "a and b may run at once, and both change src/*.py" in notes
    assert "../out is no path inside the repository" in notes and made["tasks"][1]["files"] == ["src/x.py"]
    assert f"a looks like issue {number}, which is open" in notes


def test_an_agent_that_cannot_is_told_of_in_its_own_words(house: Sandbox) -> None:
    done = house.ao("plan", "[[fail: Not logged in. Please run /login]]", check=False)
    words = "demo ended with exit code 1: Not logged in. Please run /login"
    assert done.returncode == 1 and words in done.stderr and plans(house)[0]["state"] == "failed"


def test_a_usage_limit_met_while_planning_holds_the_account(house: Sandbox) -> None:
    soon = rfc3339(time.time() + 3600)
    for asked, words in ((f"[[limit: {soon}]]", f"it resets at {soon[:16].replace('T', ' ')} UTC"), ("[[limit]]", "")):
        done = house.ao("plan", asked, check=False)
        assert done.returncode == 1 and "the usage limit of demo is reached" in done.stderr and words in done.stderr
        [account] = house.json("usage")["accounts"]
        assert account["state"] == "held" and account["resetKnown"] is bool(words)
        count = len(plans(house))
        again = house.ao("plan", "anything", check=False)
        assert again.returncode == 1 and "lift the hold: ao usage --release demo" in again.stderr
        assert len(plans(house)) == count + 1 and plans(house)[0]["usage"]["input"] == 0, "it was not asked"
        house.ao("usage", "--release", "demo")


def test_a_spent_budget_plans_no_more(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository(config="defaults: {agent: demo}\nprojects:\n  app: {path: ., budget: {perDay: 1 USD}}\n")
        box.start()
        box.ao("plan", goal(task("a"), before="[[usage: input=10 output=5 usd=1.5]] "))
        done = box.ao("plan", "anything", check=False)
        assert done.returncode == 1 and "the day's budget of app is spent: 1.50 of 1.00 USD" in done.stderr


def test_an_agent_without_headless_mode_is_refused_at_once(house: Sandbox) -> None:
    count = len(plans(house))
    done = house.ao("plan", "x", "--agent", "gemini", check=False)
    assert done.returncode == 2 and len(plans(house)) == count
    assert "gemini has no headless mode" in done.stderr and "claude-code, codex, demo" in done.stderr


def test_time_runs_out(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository(config="defaults: {agent: demo}\norchestrator: {planner: {timeout: 1s}}\n")
        box.start()
        done = box.ao("plan", "[[sleep: 30]]", check=False)
        assert done.returncode == 1 and "demo did not finish in time" in done.stderr
        assert left_behind(box) == []
        box.until(lambda: not planners(box), "the agent to be ended")


def planners(box: Sandbox) -> list[int]:
    """Planning agents that live."""
    found = []
    for pid in box.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found += [pid] if b"demo_planner" in command else []
    return found


def test_the_repository_is_read_only_to_whoever_plans(house: Sandbox) -> None:
    made = house.json("plan", goal(task("a"), before="[[write: README.md|mine]] "))
    # Whoever is root writes all the same; then it is seen, and thrown away.
    if os.geteuid() == 0:
        assert any("wrote to the copy" in note and "README.md" in note for note in made["notes"])
    assert (house.repo / "README.md").read_text() == "# app\n" and left_behind(house) == []


def test_discarding_ends_the_agent(house: Sandbox) -> None:
    made = house.request("POST", "/api/plans", {"goal": "[[sleep: 60]]"})
    name = made["id"]
    house.until(lambda: planners(house), "the agent")
    doing = lambda: house.request("GET", f"/api/plans/{name}")["progress"] == "thinking for 60 s"  # noqa: E731
    house.until(doing, "what it does")
    refused = house.ao("plan", name, "--apply", "--discard", check=False)
    assert refused.returncode == 2
    assert house.json("plan", name, "--discard")["state"] == "discarded"
    house.until(lambda: not planners(house) and not left_behind(house), "its end")
    assert name not in [row["id"] for row in plans(house)]
    late = house.ao("plan", name, "--apply", check=False)
    assert late.returncode == 1 and f"{name} is discarded" in late.stderr


def test_tasks_may_be_given_and_are_checked_at_once(house: Sandbox) -> None:
    given = {"goal": "by hand", "tasks": [task("a"), task("b", "a")]}
    made = house.request("POST", "/api/plans", given, **{"Idempotency-Key": "mine"})
    assert (made["state"], made["agent"], len(made["tasks"])) == ("draft", None, 2)
    assert house.request("POST", "/api/plans", given, **{"Idempotency-Key": "mine"})["id"] == made["id"]
    body = json.dumps({"tasks": [task("a", "a")]})
    refused = house.ao("api", "POST", "/plans", "-d", body, check=False)
    assert refused.returncode == 2 and "task a depends on itself" in refused.stderr
    other = house.request("PUT", f"/api/plans/{made['id']}", {"goal": "otherwise", "tasks": made["tasks"][:1]})
    assert (other["goal"], [row["id"] for row in other["tasks"]]) == ("otherwise", ["a"])


def test_the_editor_gets_what_is_wrong_and_nothing_is_lost(house: Sandbox) -> None:
    name = house.json("plan", goal(task("a"), task("b", "a")))["id"]
    with_editor(house, "text.replace('tasks:', 'tasks: [', 1)")
    done = house.ao("plan", name, "--edit", check=False)
    assert done.returncode == 1 and "this is no YAML, line" in done.stderr
    kept = Path(done.stderr.rstrip().rpartition("kept in ")[2])
    assert "tasks: [" in kept.read_text()
    kept.unlink()
    with_editor(house, "text.replace('id: a', 'id: c', 1)")
    done = house.ao("plan", name, "--edit", check=False)
    assert "task b depends on a, and there is no such task" in done.stderr
    Path(done.stderr.rstrip().rpartition("kept in ")[2]).unlink()
    with_editor(house, "text.replace('effort: small', 'efort: small', 1)")
    done = house.ao("plan", name, "--edit", check=False)
    assert "task 1: there is no key efort" in done.stderr
    Path(done.stderr.rstrip().rpartition("kept in ")[2]).unlink()
    assert [row["id"] for row in house.json("plan", name)["tasks"]] == ["a", "b"]
    with_editor(house, "text.replace('- id: b', '- priority: 5\\n    id: b').replace('Make b', 'Make it')")
    changed = house.json("plan", name, "--edit")["tasks"][1]
    assert (changed["priority"], changed["title"]) == (5, "Make it")


def test_a_failed_plan_may_be_written_by_hand(house: Sandbox) -> None:
    house.ao("plan", "[[fail: no]]", check=False)
    name = plans(house)[0]["id"]
    with_editor(house, "text.replace('tasks: []', 'tasks: [{id: x, title: By hand}]')")
    assert house.json("plan", name, "--edit")["state"] == "draft"


def test_wrong_usage(house: Sandbox) -> None:
    for words, code, said in [
        (("plan", "--edit"), 2, "--edit of which plan?"),
        (("plan", "x", "--discard"), 2, "--discard of which plan?"),
        (("plan", "x", "--no-start"), 2, "goes with --apply"),
        (("plan", "P999"), 3, "there is no plan P999"),
        (("plan", " "), 2, "the goal is empty"),
    ]:
        done = house.ao(*words, check=False)
        assert (done.returncode, said in done.stderr, len(done.stderr.splitlines())) == (code, True, 1), done.stderr


def test_the_open_issues_are_planned(process_box: Sandbox) -> None:
    refused = process_box.ao("plan", "--from-issues", check=False)
    assert refused.returncode == 1 and "no issue is open that could be planned" in refused.stderr
    process_box.ao("issue", "new", "Serve it", "-m", WRITES.format("a"), "--label", "api")
    process_box.ao("issue", "new", "Style it", "-m", WRITES.format("b"), "--after", "1")
    stranger = {"title": "Obey me", "author": "eve", "writeAccess": "no"}
    process_box.request("POST", "/api/issues", stranger)
    made = process_box.json("plan", "--from-issues")
    assert [(row["issue"], row["title"], row["dependencies"]) for row in made["tasks"]] == [
        (1, "Serve it", []),
        (2, "Style it", ["t1"]),
    ]
    with_editor(process_box, "text.replace('issue: 1', 'issue: 1\\n    priority: 3\\n    files: [a.txt]')")
    applied = process_box.json("plan", made["id"], "--edit", "--apply")
    assert [row["issue"] for row in applied["tasks"]] == [1, 2] and len(issues(process_box)) == 3
    wait_for_status(process_box, "serve-it", "review_pending", "mergeable")
    assert [row["issue"] for row in process_box.sessions()] == ["1"]
    process_box.ao("issue", "close", "2")
    gone = {"goal": "x", "tasks": [{"id": "a", "title": "x", "issue": 2}]}
    refused = process_box.ao("api", "POST", "/plans", "-d", json.dumps(gone), check=False)
    assert "there is no open issue 2" in refused.stderr


def test_issues_that_wait_already_make_no_circle(process_box: Sandbox) -> None:
    process_box.ao("issue", "new", "First")
    process_box.ao("issue", "new", "Second", "--after", "1")
    circle = [{"id": "a", "title": "a", "issue": 1, "dependencies": ["b"]}, {"id": "b", "title": "b", "issue": 2}]
    refused = process_box.ao("api", "POST", "/plans", "-d", json.dumps({"tasks": circle}), check=False)
    assert refused.returncode == 2 and "these tasks wait for one another: a → b → a" in refused.stderr


def test_a_tracker_that_is_down(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        tracker = '{plugin: jira, project: APP, url: "http://127.0.0.1:9", api: 2, token: t, poll: 1s}'
        box.repository(config=f"defaults: {{agent: demo}}\nprojects: {{app: {{path: ., tracker: {tracker}}}}}\n")
        box.start()
        refused = box.ao("plan", "--from-issues", check=False)
        assert refused.returncode == 1 and "the issues of app cannot be read" in refused.stderr
        made = box.json("plan", goal(task("a")))
        assert made["state"] == "draft" and "the tracker's issues could not be read" in made["notes"][0]


def test_who_has_enough_of_waiting_may_go(house: Sandbox) -> None:
    thinking = "thinking for 8 s"
    waiting = subprocess.Popen(
        [sys.executable, "-m", "agent_orchestrator", "plan", goal(task("a"), before="[[sleep: 8]] ")],
        cwd=house.repo,
        env=house.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    name = house.until(
        lambda: [row["id"] for row in house.request("GET", "/api/plans")["plans"] if row["progress"] == thinking],
        "the agent",
    )[0]
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 130 and f"{name} goes on: see ao plan {name}" in said
    house.until(lambda: house.json("plan", name)["state"] == "draft", "it to go on all the same", TIMEOUT)


def test_the_scripted_agent_works_headless_too(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        box.repository(config="defaults: {agent: demo, runtime: process, agentConfig: {mode: headless}}\n")
        box.start()
        box.ao("new", "--name", "x", WRITES.format("a"))
        assert wait_for_status(box, "x", "review_pending")["pr"]["state"] == "open"
        box.ao("send", "x", WRITES.format("b"))
        box.until(
            lambda: box.git("ls-tree", "--name-only", "feature/x").split()[-1:] == ["b.txt"], "the next turn", TIMEOUT
        )


# -- deaths ------------------------------------------------------------------------------------------------------------


def test_a_daemon_killed_in_the_middle_plans_again(process_box: Sandbox) -> None:
    made = process_box.request("POST", "/api/plans", {"goal": "[[sleep: 60]]"})
    [agent] = process_box.until(lambda: planners(process_box), "the agent")
    process_box.stop(signal.SIGKILL)
    process_box.start()
    again = process_box.until(lambda: [pid for pid in planners(process_box) if pid != agent], "another agent", TIMEOUT)
    process_box.until(lambda: planners(process_box) == again, "what the first daemon had started to be ended")
    assert len(left_behind(process_box)) == 1 and len(plans(process_box)) == 1
    process_box.ao("plan", made["id"], "--discard")
    process_box.until(lambda: not left_behind(process_box), "the copy to be removed")


@pytest.mark.parametrize("at", ["commit: plan-requested", "insert: plan-drafted", "commit: plan-drafted"])
def test_a_death_around_a_plan_leaves_one_plan(process_box: Sandbox, at: str) -> None:
    process_box.stop()
    daemon = start_crashing_daemon(process_box, at)
    # The command repeats what the daemon died on, by the next daemon.
    made = process_box.json("plan", goal(task("a")))
    assert daemon.wait(60) == -signal.SIGKILL
    assert (made["id"], made["state"], len(plans(process_box)), left_behind(process_box)) == ("P1", "draft", 1, [])


@pytest.mark.parametrize("at", ["insert: plan-apply-requested", "commit: plan-apply-requested"])
def test_a_death_in_the_middle_of_apply_leaves_all_or_nothing(process_box: Sandbox, at: str) -> None:
    process_box.ao("plan", goal(task("a"), task("b", "a"), task("c", "b")))
    process_box.stop()
    daemon = start_crashing_daemon(process_box, at)
    # The command repeats what the daemon died on, by the next daemon.
    done = process_box.ao("plan", "P1", "--apply", "--no-start", check=False)
    assert daemon.wait(60) == -signal.SIGKILL
    assert done.returncode == 0, done.stderr
    found = issues(process_box)
    assert [(row["title"], row["after"]) for row in found] == [("Make a", []), ("Make b", [1]), ("Make c", [2])]
    assert process_box.json("plan", "P1")["state"] == "applied"
    kinds = [event["type"] for event in process_box.events()]
    assert (kinds.count("plan-applied"), kinds.count("issue-opened"), kinds.count("issue-planned")) == (1, 3, 3)
