"""Parsers of screens take linear time for any content."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from agent_orchestrator.plugins.agents import gemini
from agent_orchestrator.plugins.agents.claude_code import dialogs

HOSTILE = {
    "spaces": ("", " ", "x"),
    "no words": ("", "#", "x"),
    "dots": ("", "·", "x"),
    "spaces behind a word": ("a", " ", "x"),
    "no words behind a question": ("? a  b", "#", "x"),
    "edges behind a question": ("? a ", "│ ", "x"),
    "questions": ("Allow ", "?", "x"),
    "empty lines": ("", "\n", "x"),
    "retries": ("", "a · Retrying in ", "x"),
}


@pytest.mark.parametrize("read", [gemini.dialog_report, dialogs.retried_error])
@pytest.mark.parametrize("name", HOSTILE)
def test_parsing_a_screen_takes_linear_time(read: Callable[[str], object], name: str) -> None:
    """Each takes a fraction of a second; where work grows with the square of the length, many."""
    before, unit, after = HOSTILE[name]
    screen = before + unit * (200_000 // len(unit)) + after
    begun = time.thread_time()
    read(screen)
    assert time.thread_time() - begun < 4


@pytest.mark.parametrize(
    ("screen", "expected"),
    [
        ("✻ 529 overloaded · Retrying in 6s · attempt 5/10\n", "529 overloaded, attempt 5/10"),
        ("  ⎿ API Error · Retrying in 1s\n\n❯ \n", "API Error"),
        ("✻ API Error\n  · Retrying in 6s ·\n  attempt 1/10\n", "API Error, attempt 1/10"),
        ("one · Retrying in 1s\ntwo · Retrying in 2s\n", "two"),
        ("· Retrying in 1s · attempt 1/10", ""),
        ("Retrying in 6s", ""),
    ],
)
def test_the_last_retry_is_reported(screen: str, expected: str) -> None:
    assert dialogs.retried_error(screen) == expected


@pytest.mark.parametrize(
    ("head", "question"),
    [
        ("│ ? Shell  git log  -1   │", "Shell git log  -1"),
        ("? Edit a.py: x => y    │", "Edit a.py: x => y"),
        ("? Which one is it? │", "Which one is it?"),
        ("  ? Shell", "Shell"),
    ],
)
def test_a_dialogs_head_is_a_tool_and_what_for(head: str, question: str) -> None:
    expected = gemini.dialog_report(f"{head}\n│ ● 1. Yes │\n")
    assert getattr(expected, "detail", None) == question
