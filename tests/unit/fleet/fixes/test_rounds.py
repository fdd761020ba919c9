"""The next steps of a fix run, as a pure function of its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import ActivityFact, Episode, Launch, Message, SessionFacts, SessionWorkspace
from agent_orchestrator.core.fixes import Fix, FixRequest, reduce_fixes
from agent_orchestrator.core.pull_request import CheckRun, PullRequest
from agent_orchestrator.fleet.fixes.next_steps import (
    SENDER,
    SETTLE_SECONDS,
    End,
    MakeReady,
    Measure,
    MergeFix,
    Remind,
    Settle,
    StartAgent,
    Verify,
    next_steps,
)

NOW = 1000.0
TOOLS = ({"kind": "pytest", "command": "pytest", "folder": ""}, {"kind": "ruff", "command": "ruff check", "folder": ""})


def folded(*bodies: e.Body) -> Fix:
    fixes: Any = {}
    for number, body in enumerate(bodies):
        fixes = reduce_fixes(fixes, Event(body, float(number), "daemon", str(number), "app"))
    return fixes["F1"]  # type: ignore[no-any-return]


def started(**request: Any) -> e.FixStarted:
    return e.FixStarted("F1", {"base": "main", "maxRounds": 2, "merge": True, **request})


def measured(number: int, *groups: str, problems: dict[str, str] | None = None, tools: Any = TOOLS) -> e.FixMeasured:
    described = tuple(
        {"key": key, "title": key, "count": 2, "outcome": "later" if key == "later" else ""} for key in groups
    )
    return e.FixMeasured("F1", number, "c0ffee", {"pytest": 2 * len(groups)}, problems or {}, described, tools)


def works(group: int = 1, number: int = 1) -> e.FixAgentStarted:
    return e.FixAgentStarted("F1", number, group, f"app-{group}")


def settled(outcome: str, group: int = 1, number: int = 1) -> e.FixGroupSettled:
    return e.FixGroupSettled("F1", number, group, outcome)


def test_a_request_is_stored_under_the_names_of_earlier_versions() -> None:
    request = FixRequest("main", ("make check",), 2, 4, "codex", "gpt-5", merge=False, is_one_agent_for_all=True)
    stored = {"base": "main", "commands": ["make check"], "maxRounds": 2, "maxAgents": 4, "agent": "codex"}
    assert request.to_json() == {**stored, "model": "gpt-5", "merge": False, "together": True, "dryRun": False}
    assert folded(e.FixStarted("F1", request.to_json())).request == request


def test_what_an_earlier_version_did_not_store_has_its_value_of_then() -> None:
    assert folded(e.FixStarted("F1", {})).request == FixRequest(max_rounds=1)
    assert not folded(e.FixStarted("F1", {"together": True, "dryRun": True})).request.is_one_agent_for_all


def steps(*bodies: e.Body, **sessions: SessionFacts) -> list[Any]:
    named = {name.replace("_", "-"): facts for name, facts in sessions.items()}
    return list(next_steps(folded(*bodies), named, NOW))


def session(activity: str = "idle", at: float = NOW - 60, **more: Any) -> SessionFacts:
    names: Any = {"agent": "demo", "runtime": "process", "workspace": "worktree", "branch": "b", "base": "main"}
    spec = e.SessionCreated(task="T1", name="1", title="t", prompt="p", repo="/r", path="/p", **names)
    facts = SessionFacts(
        "app-1", "app", spec, 0.0, at, admitted=True, workspace=SessionWorkspace("/p", "base", "/g"), head="base"
    )
    launch = Launch(1, {}, 0.0)
    return replace(
        facts, launch=launch, launched_run=1, activity=ActivityFact(activity, "spool", at), base_head="b0", **more
    )


def pull(**more: Any) -> PullRequest:
    name = more.pop("name", "fix-F1-1.1")
    checks = {name: CheckRun(name, "h1", more.pop("check", "success"), "x\nnot fixed:\nerror: why")}
    fields = {"draft": False, "settled_head": "h1", "checks": checks, "compared_heads": ("h1", "b0"), **more}
    return PullRequest(1, "t", "main", **fields)


def test_a_run_measures_first_and_starts_one_agent_per_cause() -> None:
    assert steps(started()) == [Measure(1)]
    fix = folded(started(), measured(1, "a", "b", "later"))
    assert next_steps(fix, {}, NOW) == [StartAgent(1, group) for group in fix.rounds[0].groups[:2]]
    assert steps(started(), measured(1, "a"), works(), settled("landed")) == [Measure(2)]


def test_a_run_ends_with_the_matching_outcome() -> None:
    assert steps(started(), measured(1)) == [End("green")]
    [end] = steps(started(), measured(1, tools=()))
    assert end.outcome == "failed" and "--command" in end.reason
    [end] = steps(started(), measured(1, problems={"ruff": "not installed"}))
    assert end.outcome == "left" and "not installed" in end.reason, "what could not be run is not green"
    [end] = steps(started(), measured(1, problems={"ruff": "x", "pytest": "y"}))
    assert end.outcome == "failed"
    assert steps(started(dryRun=True), measured(1, "a")) == [End("measured")]
    lacks = replace(measured(1, "a", problems={"ruff": "x"}), lacks="environment not set up: module a not found")
    assert steps(started(), lacks) == [End("not_set_up", lacks.lacks)], "no agent is started, whatever else fails"
    done = [
        started(),
        measured(1, "a"),
        works(),
        settled("landed"),
        measured(2, "b"),
        works(1, 2),
        settled("landed", 1, 2),
    ]
    assert steps(*done, measured(3)) == [End("green")]
    [end] = steps(*done, measured(3, "c"))
    assert end.outcome == "left" and "after 2 rounds" in end.reason
    [end] = steps(started(), measured(1, "a"), works(), settled("failed"), measured(2, "a"))
    assert end.outcome == "left" and "fixed none" in end.reason
    tried = [started(), measured(1, "a", "later"), works(), settled("failed"), measured(2, "later2", "a")]
    assert isinstance(steps(*tried)[0], StartAgent), "others still wait for their turn"
    [end] = steps(started(merge=False), measured(1, "a"), works(), settled("ready"))
    assert end == End("review", "verified, and left for you to merge: ao merge app-1")


def of_session(facts: SessionFacts, **request: Any) -> list[Any]:
    return steps(started(**request), measured(1, "a"), works(), app_1=facts)


def outcome(next_steps_found: list[Any]) -> tuple[str, str]:
    [settle] = next_steps_found
    assert isinstance(settle, Settle)
    return settle.outcome, settle.reason


def test_a_verified_change_is_merged() -> None:
    good = session(head="h1", pr=pull())
    [merge] = of_session(good)
    assert merge == MergeFix("app-1", "fix:F1:h1:b0")
    assert outcome(of_session(good, merge=False))[0] == "ready"
    [verify] = of_session(session(head="h1", pr=pull(name="ci")))
    assert verify == Verify("app-1", "fix:F1:h1"), "what passes the project's checks alone is not verified"
    assert of_session(replace(good, activity=ActivityFact("active", "spool", NOW))) == [], "not while its agent works"
    assert of_session(session(head="h1", pr=pull(compared_heads=None))) == [], "not before it is known to go together"
    assert of_session(session(head="h1", pr=pull(settled_head="h0"))) == [], "not before all checks have passed"
    merged = session(head="h1", pr=pull(state="merged", merge_commit="c1"))
    [settle] = of_session(merged)
    assert (settle.outcome, settle.commit) == ("landed", "c1")
    assert outcome(of_session(session(head="h1", pr=pull(merge_failure="no room", merge_failure_head="h1")))) == (
        "failed",
        "no room",
    )


def test_a_failed_check_goes_back_to_the_agent_until_it_is_escalated() -> None:
    red = session(head="h1", pr=pull(check="failure"))
    assert of_session(red) == [], "the rule for failed checks tells the agent"
    given_up = replace(red, episodes={"ci-failed": Episode(0.0, 2, escalated=True)})
    assert outcome(of_session(given_up)) == ("failed", "why")


def test_an_idle_agent_without_a_report_is_reminded_and_then_settled() -> None:
    draft = session(head="h1", pr=pull(draft=True, settled_head=None, checks={}))
    assert of_session(draft) == [MakeReady("app-1", "fix:F1:h1")]
    assert of_session(replace(draft, activity=ActivityFact("idle", "spool", NOW - SETTLE_SECONDS / 2))) == []
    assert of_session(session()) == [Remind("app-1")]
    reminder = Message("m", "x", SENDER, NOW - 50, "acknowledged", delivered_at=NOW - 50)
    assert of_session(session(messages=(reminder,))) == [], "it has not ended its turn since"
    assert outcome(of_session(session(at=NOW - 10, messages=(reminder,)))) == ("failed", "its agent changed nothing")
    assert outcome(of_session(session(stopped=True)))[0] == "stopped"
    crashed = replace(session(), launch=Launch(1, {}, 0.0, ended=True, code=3))
    assert outcome(of_session(crashed)) == ("failed", "its agent exited with 3")
    assert of_session(session(question="Which?")) == [], "a person is asked"
