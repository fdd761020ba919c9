"""Moving an issue through the states of its tracker."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.jira.issues import (
    JiraIssues,
    JiraStatus,
    JiraTransition,
    is_in_state,
    next_transition,
)
from agent_orchestrator.plugins.forges.linear.issues import (
    LinearIssues,
    LinearState,
    comment_id_of,
    is_our_comment_id,
    target_state,
)

KINDS = ["triage", "backlog", "unstarted", "started", "started", "completed", "canceled"]
NAMES = ["Triage", "Backlog", "Todo", "Doing", "Code Review", "Done", "Canceled"]
STATES = [LinearState(name, name, kind, place) for place, (name, kind) in enumerate(zip(NAMES, KINDS, strict=True))]
AT = {state.name: state for state in STATES}


@pytest.mark.parametrize(
    ("now", "target", "expected"),
    [
        ("Todo", "in_progress", "Doing"),
        ("Doing", "in_progress", None),
        ("Code Review", "in_progress", "Doing"),
        ("Doing", "in_review", "Code Review"),
        ("Code Review", "in_review", None),
        ("Code Review", "closed", "Done"),
        ("Done", "closed", None),
        ("Canceled", "closed", None),
        ("Done", "open", "Todo"),
        ("Backlog", "open", None),
        ("Triage", "open", None),
        ("Canceled", "in_progress", "Doing"),
    ],
)
def test_linear_states_are_chosen_by_their_type(now: str, target: str, expected: str | None) -> None:
    state = target_state(STATES, AT[now], target, {})
    assert (state.name if state else None) == expected


def test_linear_states_may_be_configured_by_name() -> None:
    names = {"in_review": "doing", "closed": "Canceled"}
    assert target_state(STATES, AT["Todo"], "in_review", names) is AT["Doing"]
    assert target_state(STATES, AT["Todo"], "in_progress", names) is AT["Code Review"]
    assert target_state(STATES, AT["Done"], "closed", names) is AT["Canceled"]
    assert target_state(STATES, AT["Canceled"], "closed", names) is None
    with pytest.raises(UsageError, match="no state 'Nowhere'") as caught:
        target_state(STATES, AT["Todo"], "in_review", {"in_review": "Nowhere"})
    assert "Code Review" in caught.value.remedy


def test_without_a_review_state_an_issue_stays_in_progress() -> None:
    few = [state for state in STATES if state.name != "Code Review"]
    assert target_state(few, AT["Todo"], "in_review", {}) is AT["Doing"]
    assert target_state(few, AT["Doing"], "in_review", {}) is None
    with pytest.raises(UsageError, match="no state of the type started"):
        target_state([AT["Todo"]], AT["Todo"], "in_progress", {})
    with pytest.raises(UsageError, match="no state"):
        target_state(STATES, AT["Todo"], "nonsense", {})


TODO, DOING, REVIEW, DONE = (
    JiraStatus("To Do", "new"),
    JiraStatus("Doing", "indeterminate"),
    JiraStatus("In review", "indeterminate"),
    JiraStatus("Done", "done"),
)


def test_jira_statuses_are_recognized_by_their_category() -> None:
    assert is_in_state(TODO, "open", {})
    assert is_in_state(DOING, "in_progress", {})
    assert not is_in_state(REVIEW, "in_progress", {})
    assert is_in_state(REVIEW, "in_review", {})
    assert not is_in_state(DOING, "in_review", {})
    assert is_in_state(DONE, "closed", {})
    assert is_in_state(DOING, "in_review", {"in_review": "doing"})
    assert not is_in_state(DOING, "in_progress", {"in_review": "doing"})
    with pytest.raises(UsageError):
        is_in_state(DONE, "nonsense", {})


def transitions(*to: JiraStatus) -> list[JiraTransition]:
    return [JiraTransition(str(number), status) for number, status in enumerate(to)]


def test_jira_transitions_approach_the_target_and_never_go_back() -> None:
    nothing: frozenset[str] = frozenset()
    step = next_transition(TODO, transitions(DOING, REVIEW, DONE), "closed", {}, nothing)
    assert step is not None and step.to is DONE
    step = next_transition(TODO, transitions(DOING), "closed", {}, frozenset({"to do"}))
    assert step is not None and step.to is DOING
    step = next_transition(DOING, transitions(TODO, REVIEW), "closed", {}, frozenset({"to do", "doing"}))
    assert step is not None and step.to is REVIEW
    with pytest.raises(UsageError, match="Jira offers To Do"):
        next_transition(DOING, transitions(TODO), "closed", {}, frozenset({"to do", "doing"}))
    with pytest.raises(UsageError, match="Jira offers Doing"):
        next_transition(REVIEW, transitions(DOING), "closed", {}, frozenset({"doing", "in review"}))
    with pytest.raises(UsageError, match="Jira offers nothing"):
        next_transition(DONE, [], "open", {}, nothing)
    assert next_transition(DOING, transitions(TODO, DONE), "in_review", {}, nothing) is None
    assert next_transition(TODO, transitions(DONE), "in_review", {}, nothing) is None


@given(st.text(), st.text())
def test_our_comments_have_recognizable_ids(issue: str, key: str) -> None:
    number = comment_id_of(issue, key)
    assert number == comment_id_of(issue, key) != comment_id_of(issue, key + "x")
    assert is_our_comment_id(number)
    assert uuid.UUID(number).version == 4
    assert not is_our_comment_id(str(uuid.uuid4()))
    assert not is_our_comment_id(key)


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({}, r"tracker\.url"),
        ({"url": "ftp://x"}, r"tracker\.url"),
        ({"url": "https://x.example"}, r"tracker\.project"),
        ({"url": "https://x.example", "project": "no key"}, r"tracker\.project"),
        ({"url": "https://x.example", "project": "APP", "api": 4}, r"tracker\.api"),
        ({"url": "https://x.example", "project": "APP", "states": "x"}, r"tracker\.states"),
        ({"url": "https://x.example", "project": "APP", "token": "a b"}, r"tracker\.token"),
    ],
)
def test_errors_in_the_jira_configuration_are_named(config: dict[str, object], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        JiraIssues(config, LocalHost())


def test_errors_in_the_linear_configuration_are_named() -> None:
    with pytest.raises(UsageError, match=r"tracker\.team"):
        LinearIssues({}, LocalHost())
    with pytest.raises(UsageError, match=r"tracker\.apiUrl"):
        LinearIssues({"team": "LIN", "apiUrl": "x"}, LocalHost())


def test_both_trackers_are_created_by_name() -> None:
    registry = PluginRegistry()
    assert isinstance(registry.create("tracker", "linear", {"team": "LIN"}, LocalHost()), LinearIssues)
    jira = registry.create("tracker", "jira", {"url": "acme.atlassian.net", "project": "app"}, LocalHost())
    assert isinstance(jira, JiraIssues)
