"""External text is cleaned wherever it enters and wherever it is shown."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.changes.checks.summary import strip_escapes
from agent_orchestrator.cli import out
from agent_orchestrator.core.events import MessageQueued
from agent_orchestrator.errors import UsageError
from agent_orchestrator.fleet.plans.validation import _CONTROL
from agent_orchestrator.fleet.reactions.message_variables import _fenced, _file_of
from agent_orchestrator.protocols.forge import (
    MAX_FORGE_TEXT_LENGTH,
    Author,
    PullRequestCheck,
    PullRequestComment,
    PullRequestReview,
    PullRequestState,
    TrackerComment,
    TrackerIssue,
)
from agent_orchestrator.protocols.text import clean_text, neutralize_forge_commands, one_line, quote_file_name
from agent_orchestrator.sessions.creation.names import normalize_branch, slug, suggested_branch, validate_name
from tests.acceptance.changes.test_hostile_text import NAMES, TEXTS, control_characters


@pytest.mark.parametrize("name", TEXTS)
def test_every_text_of_a_forge_is_cleaned(name: str) -> None:
    text = TEXTS[name]
    who = Author(text)
    pull = PullRequestState(1, "p", text, text, "open", False, "b", "h", "main", "m", blocked=text, labels=(text,))
    check = PullRequestCheck("1", text, "failure", text, text)
    texts = [who.name, pull.title, pull.url, pull.blocked, *pull.labels, check.name, check.url or "", check.summary]
    texts += [
        PullRequestReview("1", "commented", who, text, "h", 0.0).body,
        PullRequestComment("1", text, who, 0.0).body,
    ]
    issue = TrackerIssue("1", text, text, text, labels=(text,), assignee=text, author=who, attachments=(text,))
    texts += [issue.title, issue.body, issue.url or "", *issue.labels, issue.assignee or "", *issue.attachments]
    texts += [
        TrackerComment("1", who, text, 0.0).body,
        MessageQueued("m", text).text,
        strip_escapes(text),
        out.clean(text),
    ]
    assert [text_field for text_field in texts if control_characters(text_field)] == []
    assert not [
        text_field
        for text_field in (who.name, pull.title, check.name, issue.title, *issue.labels)
        if "\n" in text_field
    ]
    assert not any((pull.url, check.url, issue.url)), "what is no address is none"


def test_a_very_long_text_is_cut() -> None:
    long, who = "a" * (MAX_FORGE_TEXT_LENGTH + 1), Author("somebody")
    texts = [TrackerIssue("1", "t", long, None, author=who).body, TrackerComment("1", who, long, 0.0).body]
    texts += [
        PullRequestComment("1", long, who, 0.0).body,
        PullRequestReview("1", "commented", who, long, "h", 0.0).body,
    ]
    assert {len(value) for value in texts} == {MAX_FORGE_TEXT_LENGTH + len("\n\n… (cut)")}
    assert TrackerIssue("1", "t", long[1:], None, author=who).body == long[1:]


@given(st.text())
def test_cleaned_text_has_no_control_characters(text: str) -> None:
    for cleaned in (
        clean_text(text),
        out.clean(clean_text(text)),
        strip_escapes(text).encode(errors="replace").decode(),
    ):
        assert control_characters(cleaned) == []
    assert clean_text(clean_text(text)) == clean_text(text)
    line = one_line(text)
    assert "\n" not in line and control_characters(line) == []
    assert control_characters(_CONTROL.sub("", text)) == []


@given(st.text())
def test_a_quotation_cannot_be_ended_from_inside(text: str) -> None:
    for line in _fenced(text).split("\n"):
        assert line.startswith("> ") or not text.strip("\r\n\x0b\x0c\x85\u2028\u2029") or line == ""
    assert all(line.startswith("> ") for line in _fenced(text).splitlines())


@given(st.text(min_size=1))
def test_a_file_name_is_shown_as_one_word(name: str) -> None:
    quoted = quote_file_name(name)
    assert "\n" not in quoted and control_characters(quoted.encode(errors="replace").decode()) == []
    assert quoted == name or json.loads(quoted) == name[:500] + ("…" if len(name) > 500 else "")


@given(st.text())
def test_a_checks_log_stays_in_its_folder(name: str) -> None:
    folder = Path("/home/sessions/x/checks")
    file = folder / f"{_file_of(name)}-12345678.log"
    assert file.parent == folder and file.resolve().parent == folder


@pytest.mark.parametrize(
    "name", ["../../../../../home/user/.ssh/x", "/etc/cron.d/x", "build / test (3.11)", "..", ".", ""]
)
def test_names_of_checks_with_slashes_are_escaped(name: str) -> None:
    assert "/" not in _file_of(name) and ".." not in _file_of(name)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_derived_branch_names_are_valid_for_git(name: str) -> None:
    for make in (normalize_branch, suggested_branch):
        try:
            branch = make(name)
        except UsageError:
            continue
        if branch is not None:
            assert not branch.startswith("-") and control_characters(branch) == [] and ".." not in branch
            subprocess.run(["git", "check-ref-format", f"refs/heads/{branch}"], check=True)
    short = slug(name)
    assert validate_name(short) == short
    try:
        assert validate_name(name).isascii()
    except UsageError:
        pass


@pytest.mark.parametrize(
    "text",
    [
        *("fixes #1", "Closes: #2", "resolved acme/app#3", "Implements ABC-4", "fix GH-5"),
        *("closing https://github.com/acme/app/issues/6", "@maintainer", "(@acme/everybody)"),
        *("/approve", "done\n/merge", "  /assign me", "> /close", "/lgtm cancel", "/run-all", "a\n/target_branch main"),
        *(
            "Do it [skip ci]",
            "[CI skip] Do it",
            "[no ci]",
            "[skip actions]",
            "[ci-skip]",
            "***NO_CI***",
            "x\n\nskip-checks: true",
        ),
    ],
)
def test_commands_in_text_for_a_forge_are_neutralized(text: str) -> None:
    handed = neutralize_forge_commands(text)
    assert handed != text and handed.replace("\u200c", "") == text


@pytest.mark.parametrize(
    "text",
    [
        "it fixes the bug",
        "mail me@example.com",
        "close the door",
        "issue #1",
        "/usr/bin/env",
        "either/or",
        "[skip]",
        "[a ci]",
    ],
)
def test_text_without_commands_is_unchanged(text: str) -> None:
    assert neutralize_forge_commands(text) == text
