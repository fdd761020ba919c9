"""Planning with real agents: one makes the plan with its CLI, others work on the tasks, and the changes are merged.

The scripted model's log shows what was requested; the repository and the user's home show the results.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.model import (
    JsonAction,
    ModelRequest,
    ScriptedModel,
    ScriptedReply,
    as_argument,
    failure_reply,
    text_reply,
    usage_limit_reply,
)
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import LABS, AgentLab
from tests.agents.test_claude_code import TOKEN

TIMEOUT = 75.0
REQUEST_TEXT, RETRY_TEXT = "Make a plan for this goal", "This plan cannot be used"

Answer = dict[str, Any]


@pytest.fixture(params=["claude-code", "codex"])
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- plans -------------------------------------------------------------------------------------------------------------


def task(name: str, description: str, *after: str, file: str | None = None) -> Answer:
    return {
        "id": name,
        "title": f"Make {name}",
        "description": description,
        "acceptance": [f"{name} is there"],
        "dependencies": list(after),
        "effort": "small",
        "labels": [],
        "files": [file or f"{name}.txt"],
        "profile": None,
        "priority": 0,
        "issue": None,
    }


def answer(*tasks: Answer, notes: Sequence[str] = ()) -> Answer:
    return {"tasks": list(tasks), "notes": list(notes)}


CYCLIC = answer(task("a", "one", "b"), task("b", "two", "a"))
GOOD = answer(task("a", "one"), task("b", "two", "a"), notes=["in order"])


def planning_requests(model: ScriptedModel) -> list[ModelRequest]:
    """Return the requests to the model by agents that make a plan."""
    return [request for request in model.requests if any(REQUEST_TEXT in text for text in request.user_messages)]


def request_count(request: ModelRequest) -> int:
    """Return how many times a plan was requested in this conversation."""
    return sum(text.startswith((REQUEST_TEXT, RETRY_TEXT)) for text in request.user_messages)


def answer_plan_requests(model: ScriptedModel, *replies: ScriptedReply) -> None:
    """Make the model answer plan requests with these replies in order, and further ones with the last."""

    def rule(request: ModelRequest) -> ScriptedReply | None:
        number = request_count(request)
        return replies[min(number, len(replies)) - 1] if number else None

    model.rule = rule


def plan_replies(*plans: Answer) -> tuple[ScriptedReply, ...]:
    """Return replies with the plans in the agent's schema."""
    return tuple(ScriptedReply(calls=(JsonAction(plan),)) for plan in plans)


# -- what is there -----------------------------------------------------------------------------------------------------


def configure(box: Sandbox, **settings_changes: Any) -> None:
    file = box.repo / "agent-orchestrator.yaml"
    settings = json.loads(file.read_text())
    project = {**settings["projects"]["app"], **settings_changes.pop("project", {})}
    file.write_text(json.dumps({**settings, **settings_changes, "projects": {"app": project}}))


def leftover_checkouts(box: Sandbox) -> list[Path]:
    """Return the checkouts that planning left behind."""
    return list((box.home.path / "planning").glob("*/*"))


def plan(box: Sandbox, name: str = "P1") -> Answer:
    shown_plan: Answer = box.json("plan", name)
    return shown_plan


def refused_line(box: Sandbox, goal: str = "Make it") -> str:
    """Ask for a plan that fails; return the line with the reason."""
    process = box.ao("plan", goal, "--apply", check=False)
    line = process.stderr.splitlines()[-1]
    assert (process.returncode, process.stdout) == (1, "")
    assert line.startswith("ao: P1 failed: ") and "Traceback" not in process.stderr
    failed_plan = plan(box)
    assert (failed_plan["state"], failed_plan["tasks"], failed_plan["error"]) == (
        "failed",
        [],
        line.removeprefix("ao: P1 failed: "),
    )
    assert box.json("issues")["issues"] == [] and box.sessions() == [] and leftover_checkouts(box) == []
    return line


def status_of(box: Sandbox, session: str) -> str:
    return next((str(row["status"]) for row in box.sessions() if row["id"] == session), "")


def event_position(events: Sequence[Answer], kind: str, session: str) -> int:
    """Return the index of the first event of this type and session."""
    return next(n for n, event in enumerate(events) if (event["type"], event.get("session")) == (kind, session))


# -- from a goal to merged changes -------------------------------------------------------------------------------------


def test_a_goal_becomes_tasks_agents_and_merged_changes(rbox: Sandbox, model: ScriptedModel, lab: AgentLab) -> None:
    configure(rbox, project={"ci": {"command": "true"}}, reactions={"approved-and-green": {"auto": True}})
    more = "[[edit: a.txt|alpha|alpha and beta]] [[sh: git add a.txt]] [[sh: git commit -m made]] [[say: Done.]]"
    expected_plan = answer(
        task("a", lab.commit("a.txt", "alpha")),
        task("b", more, "a", file="a.txt"),
        task("c", lab.commit("c.txt", "gamma")),
        notes=["a before b"],
    )
    applied_plan = rbox.json("plan", f"Make all of it. [[json: {as_argument(expected_plan)}]]", "--apply")
    assert (applied_plan["id"], applied_plan["state"], applied_plan["agent"], applied_plan["notes"]) == (
        "P1",
        "applied",
        lab.agent,
        ["a before b"],
    )
    assert applied_plan["usage"]["input"] > 0 and applied_plan["usage"]["output"] > 0
    assert leftover_checkouts(rbox) == []
    issues = rbox.json("issues")["issues"]
    assert [(issue["title"], issue["after"]) for issue in issues] == [("Make a", []), ("Make b", [1]), ("Make c", [])]
    assert [row["issue"] for row in rbox.json("plan", "P1", "--apply")["tasks"]] == [1, 2, 3], "applied twice"

    def approve(name: str) -> None:
        session = f"app-make-{name}"
        ready = ("review_pending", "mergeable")
        rbox.wait_until(lambda: status_of(rbox, session) in ready, f"{session} to be ready", TIMEOUT)
        rbox.ao("review", session, "--approve")

    rbox.wait_until(
        lambda: {"app-make-a", "app-make-c"} == {row["id"] for row in rbox.sessions()}, "both that may start"
    )
    assert [row["status"] for row in plan(rbox)["tasks"]][1] == "waiting"
    for name in ("a", "c", "b"):
        approve(name)
    rbox.wait_until(lambda: {row["status"] for row in plan(rbox)["tasks"]} == {"done"}, "all to be done", TIMEOUT)

    assert rbox.git("show", "main:a.txt") == "alpha and beta" and rbox.git("show", "main:c.txt") == "gamma"
    rbox.wait_until(
        lambda: (rbox.repo / "a.txt").exists() and (rbox.repo / "c.txt").exists(), "the main checkout to follow"
    )
    assert (rbox.repo / "a.txt").read_text() == "alpha and beta\n"
    assert rbox.git("status", "--porcelain", "--untracked-files=no") == ""
    final_plan = plan(rbox)
    assert [row["sessions"] for row in final_plan["tasks"]] == [["app-make-a"], ["app-make-b"], ["app-make-c"]]
    assert rbox.json("issues")["issues"] == []
    assert sorted(issue["number"] for issue in rbox.json("issues", "--closed")["issues"]) == [1, 2, 3]
    log = rbox.events()
    assert event_position(log, "session-created", "app-make-b") > event_position(log, "pr-merged", "app-make-a"), (
        "b did not wait for a"
    )
    works = [
        arrival
        for arrival in model.arrivals()
        if "git commit -m made" in arrival.text and REQUEST_TEXT not in arrival.text
    ]
    assert len(works) == 3, "each task reached one agent, once"
    assert leftover_checkouts(rbox) == []


# -- answers that cannot be used ---------------------------------------------------------------------------------------


def test_errors_of_a_plan_are_sent_in_the_same_conversation(rbox: Sandbox, model: ScriptedModel) -> None:
    answer_plan_requests(model, *plan_replies(CYCLIC, GOOD))
    drafted_plan = rbox.json("plan", "Make both")
    assert (drafted_plan["state"], drafted_plan["notes"]) == ("draft", ["in order"])
    assert [row["dependencies"] for row in drafted_plan["tasks"]] == [[], ["a"]]
    first, last = planning_requests(model)[0], planning_requests(model)[-1]
    assert (request_count(first), request_count(last)) == (1, 2)
    assert first.session == last.session and first.user_messages[0] == last.user_messages[0], (
        "it is another conversation"
    )
    assert "these tasks wait for one another: a → b → a" in last.user_messages[-1]
    assert drafted_plan["usage"]["output"] >= 100, "both answers are counted"
    assert leftover_checkouts(rbox) == []


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (text_reply("I would rather not."), "it is no JSON document: 'I would rather not.'"),
        (plan_replies(CYCLIC)[0], "these tasks wait for one another: a → b → a"),
    ],
    ids=["nonsense", "cyclic"],
)
def test_a_plan_that_stays_invalid_fails_with_the_reason(
    rbox: Sandbox, model: ScriptedModel, lab: AgentLab, reply: ScriptedReply, why: str
) -> None:
    configure(rbox, orchestrator={"planner": {"attempts": 2}})
    answer_plan_requests(model, reply)
    line = refused_line(rbox)
    assert f"{lab.agent} was asked 2 times" in line and why in line
    assert max(request_count(request) for request in planning_requests(model)) == 2
    assert plan(rbox)["usage"]["output"] > 0


# -- what keeps an agent from planning ---------------------------------------------------------------------------------


def without_login(box: Sandbox) -> None:
    box.stop()
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        box.env.pop(name, None)
    box.start()


def test_an_agent_that_is_not_logged_in_is_named_with_a_remedy(
    rbox: Sandbox, model: ScriptedModel, lab: AgentLab
) -> None:
    without_login(rbox)
    line = refused_line(rbox)
    words = {"claude-code": "Not logged in", "codex": "OPENAI_API_KEY"}[lab.agent]
    assert lab.agent in line and words in line and line.endswith("it may have to be logged in")
    assert model.requests == []


def test_a_refused_login_is_reported(rbox: Sandbox, model: ScriptedModel, lab: AgentLab) -> None:
    answer_plan_requests(model, failure_reply(401, "invalid x-api-key"))
    line = refused_line(rbox)
    words = {"claude-code": "Invalid API key", "codex": "401 Unauthorized: invalid x-api-key"}[lab.agent]
    assert lab.agent in line and words in line and line.endswith("it may have to be logged in")


class TestAtTheLimit:
    """Claude Code reports when a limit ends only with a login instead of an API key."""

    @pytest.fixture
    def lab(self, agent: str, installed: dict[str, object]) -> AgentLab:
        if agent not in installed:
            pytest.skip(f"{agent} is not installed")
        return with_login(LABS[agent])

    def test_a_usage_limit_is_reported_with_its_reset(self, rbox: Sandbox, model: ScriptedModel, lab: AgentLab) -> None:
        ends = datetime.now(UTC).timestamp() + 3600
        answer_plan_requests(model, usage_limit_reply(ends))
        line = refused_line(rbox)
        reset_times = {
            f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M} UTC" for timestamp in (ends, ends + 60)
        }
        assert any(
            f"the usage limit of {lab.agent} is reached; it resets at {time_text}" in line for time_text in reset_times
        ), line


def with_login(lab: AgentLab) -> AgentLab:
    def env(url: str) -> dict[str, str]:
        variables = dict(lab.env(url))
        if variables.pop("ANTHROPIC_API_KEY", None):
            variables["CLAUDE_CODE_OAUTH_TOKEN"] = TOKEN
        return variables

    return replace(lab, env=env)


# -- the user's own files ----------------------------------------------------------------------------------------------


def test_planning_leaves_no_paths_in_the_users_files(rbox: Sandbox, model: ScriptedModel, lab: AgentLab) -> None:
    answer_plan_requests(model, *plan_replies(CYCLIC, GOOD))
    user_files = {".codex/config.toml", ".gitconfig"}
    before = {name: (rbox.user_home / name).read_bytes() for name in user_files if (rbox.user_home / name).exists()}
    for number in range(3):
        assert rbox.json("plan", f"Make both, for the {number}th time")["state"] == "draft"
        (rbox.repo / "README.md").write_text(f"# another base, {number}\n")
        rbox.git("commit", "-qam", "on")
    assert {name: (rbox.user_home / name).read_bytes() for name in before} == before
    state = rbox.user_home / ".claude.json"
    assert lab.agent != "claude-code" or "planning" not in state.read_text()
    transcript_folders = [folder.name for folder in (rbox.user_home / ".claude" / "projects").glob("*-planning-*")]
    assert len(transcript_folders) <= 1, "each planning has a folder of transcripts of its own"
    assert leftover_checkouts(rbox) == []


# -- agents with our tools ---------------------------------------------------------------------------------------------


_UNKNOWN = {"claude-code": "No such tool available", "codex": "unsupported call"}
"""What an agent prints about a tool that it was not given."""


def tool(name: str, **arguments: Any) -> str:
    """Return a directive that makes the model call one of our tools."""
    return f"[[tool: mcp__ao__{name} {as_argument(arguments)}]]"


def worker_with_tools(box: Sandbox, model: ScriptedModel, lab: AgentLab) -> None:
    """Start a session `s` and wait until it has our tools: workers do not wait for them, and Codex loads them later."""
    box.ao("new", "Begin. [[say: Ready.]]", "--name", "s")
    for number in range(20):
        box.wait_until(lambda: box.session("s")["activity"] == "idle", "it to be idle", lab.start_timeout)
        box.ao("send", "s", f"Look {number}. {tool('my_session')} [[say: Seen.]]")
        answers = box.wait_until(lambda number=number: tool_results(model, f"Look {number}."), "the tool's answer", 40)  # type: ignore[misc]
        if '"id":"app-s"' in answers[0]:
            box.wait_until(lambda: box.session("s")["activity"] == "idle", "it to be idle", 40)
            return
    raise AssertionError(answers)


def test_a_worker_reports_progress_and_asks_a_person(rbox: Sandbox, model: ScriptedModel, lab: AgentLab) -> None:
    steps = tool("report_progress", step="Reading the code", done=2, total=5)
    worker_with_tools(rbox, model, lab)
    rbox.ao("send", "s", f"Go on. {steps} [[hang: half]] [[say: Going on.]]")
    model.wait_for(lambda exchange: exchange.held == "half", 40)
    now = rbox.wait_until(lambda: (row := rbox.session("s"))["progress"]["total"] and row, "its progress", 10)
    assert (now["progress"]["done"], now["progress"]["total"]) == (2, 5)
    rbox.wait_until(lambda: rbox.session("s")["status"] == "working", "the working status, while its model answers", 20)
    model.release("half")
    rbox.wait_until(lambda: rbox.session("s")["activity"] == "idle", "the end of its turn", 40)
    rbox.ao("send", "s", f"Decide. {tool('ask_person', question='Which database shall it be?')} [[say: I wait.]]")
    rbox.wait_until(lambda: rbox.session("s")["status"] == "needs_input", "its question", 40)
    assert "Which database shall it be?" in rbox.session("s")["waitingFor"]
    assert "go on with your task" in tool_results(model, "Go on.")[0]
    rbox.ao("send", "s", "Take SQLite. [[say: Taken.]]")
    rbox.wait_until(lambda: model.count("Take SQLite.") == 1, "the answer to reach it", 40)
    rbox.wait_until(lambda: rbox.session("s")["status"] != "needs_input", "the question to be answered", 40)


def test_a_worker_cannot_control_other_sessions(rbox: Sandbox, model: ScriptedModel, lab: AgentLab) -> None:
    worker_with_tools(rbox, model, lab)
    calls = tool("spawn_session", prompt="another") + tool("stop_session", session="app-s")
    rbox.ao("send", "s", f"Try. {calls} [[say: Tried.]]")
    rbox.wait_until(lambda: len(tool_results(model, "Try.")) == 2, "the answers of the tools", 40)
    assert all(_UNKNOWN[lab.agent] in text for text in tool_results(model, "Try.")), tool_results(model, "Try.")
    assert [row["id"] for row in rbox.sessions()] == ["app-s"] and rbox.session("s")["status"] != "stopped"


def test_a_coordinator_without_permission_cannot_merge(rbox: Sandbox, model: ScriptedModel, lab: AgentLab) -> None:
    rbox.ao("new", lab.commit("made.txt", "hello"), "--name", "s")
    rbox.wait_until(lambda: rbox.session("s")["status"] in ("review_pending", "mergeable"), "its change", TIMEOUT)
    calls = tool("get_session", session="app-s") + tool("merge_session", session="app-s")
    rbox.ao("orchestrator", f"Merge it. {calls} [[say: Tried.]]")
    rbox.wait_until(
        lambda: len(tool_results(model, "Merge it.")) == 2, "the answers of the tools", 2 * lab.start_timeout
    )
    session_answer, refusal = tool_results(model, "Merge it.")
    assert '"status":"review_pending"' in session_answer and _UNKNOWN[lab.agent] in refusal
    assert rbox.session("s")["pr"]["state"] == "open"
    assert "made.txt" not in rbox.git("ls-tree", "--name-only", "main").split()


def tool_results(model: ScriptedModel, text: str) -> tuple[str, ...]:
    """Return the tool results in the conversation of the agent that got this text, at most those so far."""
    return max(
        (request.tool_results for request in model.requests if text in request.last_user_message), key=len, default=()
    )
