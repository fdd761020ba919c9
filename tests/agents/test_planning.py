"""From a goal to a fleet with real agents: one plans by its own CLI, others carry the plan out, and it lands.

The scripted model's log is the evidence for what was asked; the repository and the user's home for what came of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.model import Json, Reply, Request, ScriptedModel, as_argument, fail, say, usage_limit
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import LABS, Lab
from tests.agents.test_claude_code import TOKEN

PLENTY = 75.0
ASKED, AGAIN = "Make a plan for this goal", "This plan cannot be used"

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


def planning(model: ScriptedModel) -> list[Request]:
    """What was asked by agents that plan."""
    return [request for request in model.requests if any(ASKED in text for text in request.users)]


def asked(request: Request) -> int:
    """How many times a plan was asked for in this conversation."""
    return sum(text.startswith((ASKED, AGAIN)) for text in request.users)


def answering(model: ScriptedModel, *replies: Reply) -> None:
    """Let the model answer the first request for a plan with the first of these, and so on; the last one from then on."""

    def rule(request: Request) -> Reply | None:
        number = asked(request)
        return replies[min(number, len(replies)) - 1] if number else None

    model.rule = rule


def shaped(*plans: Answer) -> tuple[Reply, ...]:
    """Answers as the agent's schema wants them."""
    return tuple(Reply(calls=(Json(plan),)) for plan in plans)


# -- what is there -----------------------------------------------------------------------------------------------------


def configure(box: Sandbox, **more: Any) -> None:
    file = box.repo / "agent-orchestrator.yaml"
    settings = json.loads(file.read_text())
    project = {**settings["projects"]["app"], **more.pop("project", {})}
    file.write_text(json.dumps({**settings, **more, "projects": {"app": project}}))


def scratch(box: Sandbox) -> list[Path]:
    """Copies of the repository that should be gone."""
    return list((box.home.path / "planning").glob("*/*"))


def plan(box: Sandbox, name: str = "P1") -> Answer:
    found: Answer = box.json("plan", name)
    return found


def refused(box: Sandbox, goal: str = "Make it") -> str:
    """The one line that says why there is no plan."""
    done = box.ao("plan", goal, "--apply", check=False)
    line = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith("ao: P1 failed: ") and "Traceback" not in done.stderr
    found = plan(box)
    assert (found["state"], found["tasks"], found["error"]) == ("failed", [], line.removeprefix("ao: P1 failed: "))
    assert box.json("issues")["issues"] == [] and box.sessions() == [] and scratch(box) == []
    return line


def status_of(box: Sandbox, session: str) -> str:
    return next((str(row["status"]) for row in box.sessions() if row["id"] == session), "")


def place(events: Sequence[Answer], kind: str, session: str) -> int:
    """Where in the log something happened first."""
    return next(n for n, one in enumerate(events) if (one["type"], one.get("session")) == (kind, session))


# -- from a goal to merged changes -------------------------------------------------------------------------------------


def test_a_goal_becomes_tasks_agents_and_merged_changes(rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    configure(rbox, project={"ci": {"command": "true"}}, reactions={"approved-and-green": {"auto": True}})
    more = "[[edit: a.txt|alpha|alpha and beta]] [[sh: git add a.txt]] [[sh: git commit -m made]] [[say: Done.]]"
    wanted = answer(
        task("a", lab.commit("a.txt", "alpha")),
        task("b", more, "a", file="a.txt"),
        task("c", lab.commit("c.txt", "gamma")),
        notes=["a before b"],
    )
    made = rbox.json("plan", f"Make all of it. [[json: {as_argument(wanted)}]]", "--apply")
    assert (made["id"], made["state"], made["agent"], made["notes"]) == ("P1", "applied", lab.agent, ["a before b"])
    assert made["usage"]["input"] > 0 and made["usage"]["output"] > 0
    assert scratch(rbox) == []
    issues = rbox.json("issues")["issues"]
    assert [(one["title"], one["after"]) for one in issues] == [("Make a", []), ("Make b", [1]), ("Make c", [])]
    assert [row["issue"] for row in rbox.json("plan", "P1", "--apply")["tasks"]] == [1, 2, 3], "applied twice"

    def approved(name: str) -> None:
        session = f"app-make-{name}"
        ready = ("review_pending", "mergeable")
        rbox.until(lambda: status_of(rbox, session) in ready, f"{session} to be ready", PLENTY)
        rbox.ao("review", session, "--approve")

    rbox.until(lambda: {"app-make-a", "app-make-c"} == {row["id"] for row in rbox.sessions()}, "both that may start")
    assert [row["status"] for row in plan(rbox)["tasks"]][1] == "waiting"
    for name in ("a", "c", "b"):
        approved(name)
    rbox.until(lambda: {row["status"] for row in plan(rbox)["tasks"]} == {"done"}, "all to be done", PLENTY)

    assert rbox.git("show", "main:a.txt") == "alpha and beta" and rbox.git("show", "main:c.txt") == "gamma"
    rbox.until(lambda: (rbox.repo / "a.txt").exists() and (rbox.repo / "c.txt").exists(), "the main checkout to follow")
    assert (rbox.repo / "a.txt").read_text() == "alpha and beta\n"
    assert rbox.git("status", "--porcelain", "--untracked-files=no") == ""
    done = plan(rbox)
    assert [row["sessions"] for row in done["tasks"]] == [["app-make-a"], ["app-make-b"], ["app-make-c"]]
    assert rbox.json("issues")["issues"] == []
    assert sorted(one["number"] for one in rbox.json("issues", "--closed")["issues"]) == [1, 2, 3]
    log = rbox.events()
    assert place(log, "session-created", "app-make-b") > place(log, "pr-merged", "app-make-a"), "b did not wait for a"
    works = [one for one in model.arrivals() if "git commit -m made" in one.text and ASKED not in one.text]
    assert len(works) == 3, "each task reached one agent, once"
    assert scratch(rbox) == []


# -- answers that cannot be used ---------------------------------------------------------------------------------------


def test_what_is_wrong_with_a_plan_is_said_in_the_same_conversation(rbox: Sandbox, model: ScriptedModel) -> None:
    answering(model, *shaped(CYCLIC, GOOD))
    made = rbox.json("plan", "Make both")
    assert (made["state"], made["notes"]) == ("draft", ["in order"])
    assert [row["dependencies"] for row in made["tasks"]] == [[], ["a"]]
    first, last = planning(model)[0], planning(model)[-1]
    assert (asked(first), asked(last)) == (1, 2)
    assert first.session == last.session and first.users[0] == last.users[0], "it is another conversation"
    assert "these tasks wait for one another: a → b → a" in last.users[-1]
    assert made["usage"]["output"] >= 100, "both answers are counted"
    assert scratch(rbox) == []


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (say("I would rather not."), "it is no JSON document: 'I would rather not.'"),
        (shaped(CYCLIC)[0], "these tasks wait for one another: a → b → a"),
    ],
    ids=["nonsense", "cyclic"],
)
def test_a_plan_that_stays_wrong_fails_with_reasons(
    rbox: Sandbox, model: ScriptedModel, lab: Lab, reply: Reply, why: str
) -> None:
    configure(rbox, orchestrator={"planner": {"attempts": 2}})
    answering(model, reply)
    line = refused(rbox)
    assert f"{lab.agent} was asked 2 times" in line and why in line
    assert max(asked(request) for request in planning(model)) == 2
    assert plan(rbox)["usage"]["output"] > 0


# -- what keeps an agent from planning ---------------------------------------------------------------------------------


def without_login(box: Sandbox) -> None:
    box.stop()
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        box.env.pop(name, None)
    box.start()


def test_an_agent_that_is_not_logged_in_is_named_with_a_remedy(rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    without_login(rbox)
    line = refused(rbox)
    words = {"claude-code": "Not logged in", "codex": "OPENAI_API_KEY"}[lab.agent]
    assert lab.agent in line and words in line and line.endswith("it may have to be logged in")
    assert model.requests == []


def test_a_login_that_is_refused_is_told(rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    answering(model, fail(401, "invalid x-api-key"))
    line = refused(rbox)
    words = {"claude-code": "Invalid API key", "codex": "401 Unauthorized: invalid x-api-key"}[lab.agent]
    assert lab.agent in line and words in line and line.endswith("it may have to be logged in")


class TestAtTheLimit:
    """Claude Code says when a limit ends only to those who have a login in place of an API key."""

    @pytest.fixture
    def lab(self, agent: str, installed: dict[str, object]) -> Lab:
        if agent not in installed:
            pytest.skip(f"{agent} cannot be had here")
        return with_login(LABS[agent])

    def test_a_usage_limit_is_told_with_its_end(self, rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
        ends = datetime.now(UTC).timestamp() + 3600
        answering(model, usage_limit(ends))
        line = refused(rbox)
        when = {f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC" for at in (ends, ends + 60)}
        assert any(f"the usage limit of {lab.agent} is reached; it resets at {one}" in line for one in when), line


def with_login(lab: Lab) -> Lab:
    def env(url: str) -> dict[str, str]:
        variables = dict(lab.env(url))
        if variables.pop("ANTHROPIC_API_KEY", None):
            variables["CLAUDE_CODE_OAUTH_TOKEN"] = TOKEN
        return variables

    return replace(lab, env=env)


# -- the user's own files ----------------------------------------------------------------------------------------------


def test_plannings_leave_no_paths_in_the_users_files(rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    answering(model, *shaped(CYCLIC, GOOD))
    kept = {".codex/config.toml", ".gitconfig"}
    before = {name: (rbox.user_home / name).read_bytes() for name in kept if (rbox.user_home / name).exists()}
    for number in range(3):
        assert rbox.json("plan", f"Make both, for the {number}th time")["state"] == "draft"
        (rbox.repo / "README.md").write_text(f"# another base, {number}\n")
        rbox.git("commit", "-qam", "on")
    assert {name: (rbox.user_home / name).read_bytes() for name in before} == before
    state = rbox.user_home / ".claude.json"
    assert lab.agent != "claude-code" or "planning" not in state.read_text()
    places = [folder.name for folder in (rbox.user_home / ".claude" / "projects").glob("*-planning-*")]
    assert len(places) <= 1, "each planning has a folder of transcripts of its own"
    assert scratch(rbox) == []


# -- agents with our tools ---------------------------------------------------------------------------------------------


_UNKNOWN = {"claude-code": "No such tool available", "codex": "unsupported call"}
"""What an agent says of a tool that it was not shown."""


def tool(name: str, **arguments: Any) -> str:
    """A directive that has the model call one of our tools."""
    return f"[[tool: mcp__ao__{name} {as_argument(arguments)}]]"


def worker_with_tools(box: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    """A session `s` that has our tools: a worker does not wait for them before its first turn, and Codex's come a moment later."""
    box.ao("new", "Begin. [[say: Ready.]]", "--name", "s")
    for number in range(20):
        box.until(lambda: box.session("s")["activity"] == "idle", "it to rest", lab.start_within)
        box.ao("send", "s", f"Look {number}. {tool('my_session')} [[say: Seen.]]")
        found = box.until(lambda number=number: results(model, f"Look {number}."), "the tool's answer", 40)  # type: ignore[misc]
        if '"id":"app-s"' in found[0]:
            box.until(lambda: box.session("s")["activity"] == "idle", "it to rest", 40)
            return
    raise AssertionError(found)


def test_a_worker_says_how_far_it_is_and_asks_a_person(rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    steps = tool("report_progress", step="Reading the code", done=2, total=5)
    worker_with_tools(rbox, model, lab)
    rbox.ao("send", "s", f"Go on. {steps} [[hang: half]] [[say: Going on.]]")
    model.wait_for(lambda one: one.held == "half", 40)
    now = rbox.until(lambda: (row := rbox.session("s"))["progress"]["total"] and row, "its progress", 10)
    assert (now["progress"]["done"], now["progress"]["total"]) == (2, 5)
    rbox.until(lambda: rbox.session("s")["status"] == "working", "it to be seen at work, while its model answers", 20)
    model.release("half")
    rbox.until(lambda: rbox.session("s")["activity"] == "idle", "the end of its turn", 40)
    rbox.ao("send", "s", f"Decide. {tool('ask_person', question='Which database shall it be?')} [[say: I wait.]]")
    rbox.until(lambda: rbox.session("s")["status"] == "needs_input", "its question", 40)
    assert "Which database shall it be?" in rbox.session("s")["waitingFor"]
    assert "go on with your task" in results(model, "Go on.")[0]
    rbox.ao("send", "s", "Take SQLite. [[say: Taken.]]")
    rbox.until(lambda: model.count("Take SQLite.") == 1, "the answer to reach it", 40)
    rbox.until(lambda: rbox.session("s")["status"] != "needs_input", "it to need nobody any more", 40)


def test_a_worker_drives_nobody(rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    worker_with_tools(rbox, model, lab)
    tried = tool("spawn_session", prompt="another") + tool("stop_session", session="app-s")
    rbox.ao("send", "s", f"Try. {tried} [[say: Tried.]]")
    rbox.until(lambda: len(results(model, "Try.")) == 2, "the answers of the tools", 40)
    assert all(_UNKNOWN[lab.agent] in text for text in results(model, "Try.")), results(model, "Try.")
    assert [row["id"] for row in rbox.sessions()] == ["app-s"] and rbox.session("s")["status"] != "stopped"


def test_a_coordinator_merges_nothing_unless_it_may(rbox: Sandbox, model: ScriptedModel, lab: Lab) -> None:
    rbox.ao("new", lab.commit("made.txt", "hello"), "--name", "s")
    rbox.until(lambda: rbox.session("s")["status"] in ("review_pending", "mergeable"), "its change", PLENTY)
    tried = tool("get_session", session="app-s") + tool("merge_session", session="app-s")
    rbox.ao("orchestrator", f"Land it. {tried} [[say: Tried.]]")
    rbox.until(lambda: len(results(model, "Land it.")) == 2, "the answers of the tools", 2 * lab.start_within)
    seen, refusal = results(model, "Land it.")
    assert '"status":"review_pending"' in seen and _UNKNOWN[lab.agent] in refusal
    assert rbox.session("s")["pr"]["state"] == "open"
    assert "made.txt" not in rbox.git("ls-tree", "--name-only", "main").split()


def results(model: ScriptedModel, text: str) -> tuple[str, ...]:
    """What the tools gave back to the agent that was told this, as far as it is."""
    return max((request.results for request in model.requests if text in request.user), key=len, default=())
