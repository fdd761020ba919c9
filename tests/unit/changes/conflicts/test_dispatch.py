"""Tasks that are about the same file do not start together while others wait."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.config.scope import Limit
from agent_orchestrator.fleet.scheduling.slots import StartDecision, admit
from tests.unit.core.test_around_the_flow import PLENTY, at_work, waiting

TWO = [Limit(frozenset({"app"}), 2, "file")]
LOGIN = frozenset({"login.py"})


def test_one_that_would_collide_lets_another_go_first() -> None:
    sessions = [at_work("a"), waiting("b", 1.0), waiting("c", 2.0)]
    expected = {"a": LOGIN, "b": LOGIN | {"x.py"}, "c": frozenset({"other.py"})}
    waits = "a free place (2 of 2 agents at work); a works on login.py too"
    assert admit(sessions, TWO, PLENTY, expected=expected) == [StartDecision("c"), StartDecision("b", waits)]


def test_two_that_wait_do_not_start_together_either() -> None:
    sessions = [waiting("a", 1.0), waiting("b", 2.0), waiting("c", 3.0)]
    started = admit(sessions, TWO, PLENTY, expected={"a": LOGIN, "b": LOGIN, "c": frozenset()})
    assert [verdict.session for verdict in started if not verdict.reason] == ["a", "c"]


def test_nobody_waits_for_a_file_alone() -> None:
    expected = {"a": LOGIN, "b": LOGIN}
    assert admit([at_work("a"), waiting("b")], TWO, PLENTY, expected=expected) == [StartDecision("b")]


def test_files_of_another_project_are_other_files() -> None:
    elsewhere = replace(at_work("a"), project="other")
    sessions = [elsewhere, waiting("b", 1.0), waiting("c", 2.0)]
    one = [Limit(frozenset({"app"}), 1, "file")]
    verdicts = admit(sessions, one, PLENTY, expected={"a": LOGIN, "b": LOGIN})
    assert [verdict.session for verdict in verdicts if not verdict.reason] == ["b"]
