"""The recap of an absence: short, most important first, and only what still holds."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Body, Event
from agent_orchestrator.core.facts import ActivityFact, Launch, SessionFacts, SessionWorkspace
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.views.recap import MAX_RECAP_LINES, RESTART_REASON, recap_lines

HOUR = 3600.0
NOW = 100 * HOUR


def facts(name: str, state: str = "working", *, live: bool = True) -> SessionFacts:
    spec = e.SessionCreated(
        name=name,
        task="T1",
        title=name,
        prompt="",
        agent="demo",
        runtime="process",
        workspace="worktree",
        repo="/r",
        path="/w",
        branch=name,
        base="main",
    )
    launch = Launch(1, {}, 0.0, ended=not live)
    session_facts = SessionFacts(f"app-{name}", "app", spec, 0.0, 0.0, base="main", launch=launch)
    return replace(session_facts, activity=ActivityFact(state))


SESSIONS = {item.id: item for item in (facts("a"), facts("b", "waiting_input"), facts("c", live=False), facts("d"))}


def events_of_night(*entries: tuple[str | None, Body, str]) -> list[Event]:
    return [
        Event(body, NOW - 8 * HOUR + number * HOUR, "t", str(number), "app", session, seq=number, actor=actor)
        for number, (session, body, actor) in enumerate(entries, 1)
    ]


def texts(*happened: tuple[str | None, Body, str]) -> dict[str, str]:
    return {line.kind: line.text for line in recap_lines(events_of_night(*happened), SESSIONS, NOW)}


def test_merged_changes_name_who_requested_the_merge() -> None:
    merged = e.PrMerged("c", "b", "h")
    lines = texts(
        ("app-a", e.MergeRequested(), "local anna"),
        ("app-b", e.MergeRequested(), "rule approved-and-green"),
        ("app-a", merged, "daemon"),
        ("app-b", merged, "daemon"),
        ("app-c", merged, "daemon"),
    )
    assert lines["merged"] == "3 landed: app-a by anna; app-b by rule approved-and-green; app-c by the forge"


def test_an_answered_question_is_not_listed_as_waiting() -> None:
    lines = texts(("app-a", e.AgentAsk("x?"), ""), ("app-b", e.AgentAsk("y?"), ""), ("app-b", e.AgentAsk("z?"), ""))
    assert lines == {"asked": "app-b asked you and waits: ao answer (1 more answered)"}
    assert texts(("app-a", e.AgentAsk("x?"), ""))["asked"] == "app-a asked, and was answered"


def test_a_permission_allowed_by_a_rule_is_not_listed() -> None:
    ask = e.PermissionAsked("Bash", "git commit")
    by_rule, by_person = (e.PermissionAnswered("allow", by=who) for who in ("it is Git on its own branch", "person"))
    assert "asked" not in texts(("app-a", ask, ""), ("app-a", by_rule, ""))
    lines = texts(("app-a", ask, ""), ("app-a", by_rule, ""), ("app-a", ask, ""), ("app-a", by_person, ""))
    assert lines["asked"] == "app-a asked, and was answered"
    assert texts(("app-b", ask, ""))["asked"] == "app-b asked you and waits: ao answer"


def test_an_offered_action_is_no_failure() -> None:
    assert "failed" not in texts(("app-a", e.Escalated("approved-and-green", "approved-and-green", e.OFFER_REASON), ""))
    assert "no luck" in texts(("app-a", e.Escalated("ci-failed", "ci-failed", "no luck"), ""))["failed"]


def test_usage_limits_are_summarized_with_their_end() -> None:
    met = e.AccountHeld("claude", NOW - HOUR)
    assert texts((None, met, ""), (None, e.AccountReleased("claude"), "")) == {
        "limits": "limits: claude met and over, work went on 6 h ago"
    }
    assert texts((None, met, ""))["limits"] == "limits: claude met, over since 1 h"
    later = e.AccountHeld("claude", NOW + 2 * HOUR)
    assert texts((None, met, ""), (None, e.AccountReleased("claude"), ""), (None, later, "")) == {
        "limits": "limits: claude met, for 2 h more"
    }


def test_a_restart_of_the_machine_is_distinguished_from_one_of_the_daemon() -> None:
    started = (None, e.DaemonStarted("1"), "daemon")
    lost = [("app-a", e.AgentLost(RESTART_REASON), ""), ("app-c", e.AgentLost(RESTART_REASON), "")]
    assert texts(*lost, started)["restarted"] == (
        "the machine was restarted 6 h ago: 2 sessions cut short, 1 at work again"
    )
    assert texts(started, started)["restarted"] == "the daemon was started 2 times, last 6 h ago"


def test_failures_are_listed_with_their_last_reason() -> None:
    lines = texts(
        ("app-a", e.SessionFailed("prepare", "no such branch"), ""),
        ("app-a", e.SessionFailed("launch", "no such agent"), ""),
        ("app-b", e.LandingFailed("a conflict in x.py", "conflict"), ""),
        ("app-c", e.LandingFailed("taken back", "called-off"), ""),
        (None, e.ReadingFailed("github", "no route", "wait", 0.0), ""),
    )
    assert lines == {
        "failed": "3 failed: app-a (launch: no such agent); app-b (could not land: a conflict in x.py); and 1 more"
    }


def test_fixed_or_merged_sessions_are_not_listed_as_failed() -> None:
    refused = e.LandingFailed("a conflict in x.py", "conflict")
    escalated = e.Escalated("ci-failed", "ci-failed", "2 attempts did not settle it")
    happened = events_of_night(
        ("app-a", refused, ""),
        ("app-b", refused, ""),
        ("app-d", escalated, ""),
        ("app-d", e.PrMerged("c", "b", "h"), ""),
    )
    reopened = replace(SESSIONS["app-a"], pr=PullRequest(1, "x", "main"))
    waits = replace(SESSIONS["app-b"], pr=PullRequest(2, "y", "main", merge_failure="a conflict in x.py"))
    lines = recap_lines(happened, {**SESSIONS, "app-a": reopened, "app-b": waits}, NOW)
    assert [line.text for line in lines if line.kind == "failed"] == [
        "1 failed: app-b (could not land: a conflict in x.py)"
    ]


def test_moves_of_the_base_are_counted_by_head() -> None:
    moved = [(f"app-{name}", e.BaseMoved(head), "") for head in ("1", "2") for name in "abd"]
    assert texts(*moved)["bases"] == "base moved: main of app (2 times), for 3 sessions"


def test_the_initial_base_and_the_own_merge_are_no_moves() -> None:
    begun = replace(SESSIONS["app-a"], workspace=SessionWorkspace("/w", "1", "/w/.git"))
    happened = events_of_night(
        ("app-a", e.BaseMoved("1"), ""),
        ("app-a", e.BaseMoved("2"), ""),
        ("app-a", e.PrMerged("2", "1", "h"), "daemon"),
    )
    assert [line.kind for line in recap_lines(happened, {begun.id: begun}, NOW)] == ["merged"]
    others = [*happened, *events_of_night(("app-d", e.BaseMoved("2"), ""))]
    assert recap_lines(others, {**SESSIONS, begun.id: begun}, NOW)[-1].text == "base moved: main of app, for 1 session"


def test_the_recap_is_short_whatever_happened() -> None:
    everything: list[tuple[str | None, Body, str]] = [
        ("app-a", e.PrMerged("c", "b", "h"), "local anna"),
        ("app-b", e.AgentAsk("x?"), ""),
        ("app-c", e.SessionFailed("launch", "x" * 500), ""),
        (None, e.DaemonStarted("1"), ""),
        (None, e.AccountHeld("claude", NOW - HOUR), ""),
        ("app-a", e.BudgetExceeded("day", "1", "2"), ""),
        ("app-d", e.BaseMoved("1"), ""),
        ("app-d", e.PrOpened(1, "t", "main"), ""),
        ("app-d", e.MachineWoke(7200.0), ""),
    ]
    lines = recap_lines(events_of_night(*everything), SESSIONS, NOW)
    assert len(lines) == MAX_RECAP_LINES and [line.kind for line in lines][:3] == ["merged", "asked", "failed"]
    assert max(len(line.text) for line in lines) < 140
    assert recap_lines([], SESSIONS, NOW) == []
