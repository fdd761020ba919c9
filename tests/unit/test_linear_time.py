"""Parsers of untrusted text take time proportional to its length, not to its square.

Each takes a fraction of a second; with a pattern that restarts at every character it would take many seconds or minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from agent_orchestrator.changes.merge.commit_message import parse_person
from agent_orchestrator.core.turn_text.questions import find_question
from agent_orchestrator.plugins.agents.claude_code.transcript import typed_text
from agent_orchestrator.plugins.agents.goose.listener import FAILURE_TEXT
from agent_orchestrator.plugins.agents.shared.forge_commands import forge_calls
from agent_orchestrator.plugins.forges.github import issues
from agent_orchestrator.plugins.forges.gitlab import issues as gitlab
from agent_orchestrator.plugins.forges.gitlab import merge_requests as gitlab_scm
from agent_orchestrator.plugins.forges.jira.document_format import to_adf
from agent_orchestrator.plugins.forges.linear import issues as linear
from agent_orchestrator.plugins.forges.shared.comment_marks import split_mark

READERS: dict[str, tuple[Callable[[str], object], int, tuple[str, ...]]] = {
    "Jira's document": (to_adf, 100_000, ("[", "[a](", "**a", "`a\n", "http://.", "- ", " ", "#", "1. ", "```\n")),
    "pictures at GitHub": (
        lambda text: list(issues._ATTACHMENT_URL.finditer(text)),
        200_000,
        ("![", "<img ", "<img src=", "https://", "https://a/files/1"),
    ),
    "pictures at GitLab": (
        lambda text: list(gitlab._ATTACHMENT_URL.finditer(text)),
        200_000,
        ("![", "<img ", "<img src=", "](/uploads/"),
    ),
    "pictures at Linear": (
        lambda text: list(linear._ATTACHMENT_URL.finditer(text)),
        200_000,
        ("![", "https://uploads.linear.app/"),
    ),
    "a log at GitLab": (
        lambda text: gitlab_scm._RUNNER_MARKS.sub(b"", text.encode()),
        256 << 10,
        ("section_start:1:", "section_start:1", "\x1b[0;", "2026-01-01T00:00:00.1"),
    ),
    "our mark in a comment": (split_mark, 200_000, (" ", "\t\n", "<!-- ao:", "<!-- ao:a --> ")),
    "a question": (find_question, 500_000, ("```a\n", "* ", "a\n```", ". ", '?")')),
    "a shell command": (forge_calls, 200_000, ('\\"', "env ", "A=b ", "'", "gh/")),
    "what a person typed": (
        typed_text,
        500_000,
        ("<command-name>", "<command-name>a</command-name><command-args>", " "),
    ),
    "who wrote it": (parse_person, 100_000, (" ", "a ", "<", "<a>")),
    "an agent's error": (FAILURE_TEXT.search, 16_384, ("Ran into this error: ", " ", "\n")),
}


@pytest.mark.parametrize(
    ("reader", "unit"), [(reader, unit) for reader, (_, _, units) in READERS.items() for unit in units]
)
def test_parsing_takes_linear_time(reader: str, unit: str) -> None:
    read, size, _ = READERS[reader]
    text = unit * (size // len(unit))
    begun = time.thread_time()
    for each in (text, f'"{text}x', f"x{text}?"):
        read(each)
    assert time.thread_time() - begun < 8


def test_our_mark_is_split_from_a_comment() -> None:
    assert split_mark("said \n\n<!-- ao:a%20b --> \n") == ("said", "a b")
    assert split_mark("a <!-- ao:x --> b") == ("a <!-- ao:x --> b", "")


def test_an_unclosed_fence_is_text() -> None:
    assert find_question("```py\nx = 1\n```\nShall I go on?") == "Shall I go on?"
    assert find_question("Shall I go on?\n\n```py\nx = 1\n```") == "Shall I go on?"
    assert find_question("```py\nShall I go on?**") == "```py\nShall I go on?**"


def test_a_label_is_read_from_the_nearest_bracket() -> None:
    (block,) = to_adf("see [a [b](https://c.example/d)")["content"]
    link = {"type": "link", "attrs": {"href": "https://c.example/d"}}
    assert block["content"] == [
        {"type": "text", "text": "see [a "},
        {"type": "text", "text": "b", "marks": [link]},
    ]
