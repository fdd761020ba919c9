"""Admission by predicted conflicts: tasks about the same file do not start together while others wait."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.config.config_set import ParallelLimit
from agent_orchestrator.fleet.scheduling.start_decision import StartDecision, decide_starts
from tests.unit.core.test_admission_and_views import PLENTY, waiting_session, working_session

TWO = [ParallelLimit(frozenset({"app"}), 2, "file")]
LOGIN = frozenset({"login.py"})


def test_a_session_with_a_predicted_conflict_lets_another_start_first() -> None:
    sessions = [working_session("a"), waiting_session("b", 1.0), waiting_session("c", 2.0)]
    expected = {"a": LOGIN, "b": LOGIN | {"x.py"}, "c": frozenset({"other.py"})}
    waits = "a free place (2 of 2 agents at work); a works on login.py too"
    assert decide_starts(sessions, TWO, PLENTY, expected=expected) == [StartDecision("c"), StartDecision("b", waits)]


def test_two_waiting_sessions_with_a_predicted_conflict_do_not_start_together() -> None:
    sessions = [waiting_session("a", 1.0), waiting_session("b", 2.0), waiting_session("c", 3.0)]
    started = decide_starts(sessions, TWO, PLENTY, expected={"a": LOGIN, "b": LOGIN, "c": frozenset()})
    assert [verdict.session for verdict in started if not verdict.reason] == ["a", "c"]


def test_a_predicted_conflict_alone_delays_no_session() -> None:
    expected = {"a": LOGIN, "b": LOGIN}
    assert decide_starts([working_session("a"), waiting_session("b")], TWO, PLENTY, expected=expected) == [
        StartDecision("b")
    ]


def test_files_of_another_project_are_other_files() -> None:
    elsewhere = replace(working_session("a"), project="other")
    sessions = [elsewhere, waiting_session("b", 1.0), waiting_session("c", 2.0)]
    limit = [ParallelLimit(frozenset({"app"}), 1, "file")]
    verdicts = decide_starts(sessions, limit, PLENTY, expected={"a": LOGIN, "b": LOGIN})
    assert [verdict.session for verdict in verdicts if not verdict.reason] == ["b"]
