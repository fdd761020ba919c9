"""Attachments of messages: the lines around a comment, errors of checks, and comments with their thread."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import CheckRun, Comment, PullRequest, Review
from agent_orchestrator.fleet.reactions.message_variables import (
    MAX_CHECKS,
    MAX_LENGTH,
    AttachmentCollector,
    comments_text,
    errors_text,
    hunk_around,
)
from tests.parts import make_core
from tests.unit.core.test_facts_properties import begun

DIFF = """\
diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,4 +1,5 @@
 one
-two
+TWO
+more
 three
 four
@@ -40,2 +41,3 @@ def f():
 x
+y
 z
"""


def test_the_lines_around_a_comment_are_those_of_its_hunk() -> None:
    assert hunk_around(DIFF, 2, 1).splitlines() == ["     2 - two", "→    2 + TWO", "     3 + more"]
    assert hunk_around(DIFF, 42, 1).splitlines() == ["    41   x", "→   42 + y", "    43   z"]
    assert hunk_around(DIFF, 20) == ""
    assert hunk_around("", 1) == ""


@given(st.text(max_size=300), st.integers(-5, 50))
def test_any_text_has_a_hunk_or_none(text: str, line: int) -> None:
    assert isinstance(hunk_around(text, line), str)


@given(st.integers(1, 60), st.integers(0, 9000))
def test_each_failing_check_gets_a_share_of_the_space(count: int, size: int) -> None:
    facts = replace(begun(), head="h")
    runs = {f"c{n}": CheckRun(f"c{n}", "h", "failure", "x" * size, f"/log/{n}") for n in range(count)}
    text = errors_text(facts, PullRequest(1, "x", "main", checks=runs))
    assert all(f"c{n} (failure):" in text and f"whole log: /log/{n}" in text for n in range(count))
    assert len(text) <= MAX_LENGTH + 400 * count


def test_of_thousands_of_checks_the_first_are_shown_and_the_rest_counted() -> None:
    facts = replace(begun(), head="h")
    runs = {f"c{n}": CheckRun(f"c{n}", "h", "failure", "x\n" * 500, f"/log/{n}") for n in range(5000)}
    text = errors_text(facts, PullRequest(1, "x", "main", checks=runs))
    assert text.count("whole log:") == MAX_CHECKS
    assert text.endswith(f"\n\nand {5000 - MAX_CHECKS} more: ao checks {facts.id}")
    assert len(text) < 4 * MAX_LENGTH


def test_a_review_request_is_shown_with_author_location_and_thread() -> None:
    first = Comment("c-1", "why?", "ann", 1.0, "a.py", 2, head="h")
    mine = Comment("c-2", "because", "demo", 2.0, "a.py", 2, thread="c-1", by_agent=True)
    again = Comment("c-3", "do it\nplease", "critic", 3.0, "a.py", 2, thread="c-1", review="v", kind="agent", head="h")
    review = Review(
        "v", "changes_requested", "h", "critic", "not yet", 3.0, kind="agent", reviewer="app-r", is_sufficient=False
    )
    pr = PullRequest(1, "x", "main", reviews=(review,), comments=(first, mine, again))
    assert comments_text(pr, [], "changes-requested", {"c-3": "→ 2 + TWO"}) == (
        "critic (agent):\n> not yet\n\n"
        "a.py:2 critic (agent) (comment c-3):\n| → 2 + TWO\nin answer to:\n> > ann: why?\n> > demo (you): because\n"
        "> do it\n> please"
    )


@pytest.mark.anyio
async def test_the_name_of_a_check_cannot_lead_its_log_elsewhere(tmp_path: Path) -> None:
    """The name of a forge's check is untrusted."""
    core, log = make_core(tmp_path / "home"), tmp_path / "log"
    log.write_text("it failed")
    gathering = AttachmentCollector(core)
    facts = cast("SessionFacts", SimpleNamespace(id="app-x"))
    for name in ("../../../outside", f"{tmp_path}/outside", "build / test (3.11)", ".."):
        run = cast("CheckRun", SimpleNamespace(name=name, head="0123456789", log=str(log)))
        copy = Path(await gathering._log(facts, run, keep=True))
        assert copy.resolve().parent == core.home.session("app-x") / "checks" and copy.read_text() == "it failed"
    assert {path.name for path in tmp_path.iterdir()} == {"home", "log"}
