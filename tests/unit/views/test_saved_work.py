"""The sentence that says where a session's work is saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_orchestrator.core.facts import SessionFacts, Workspace
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.views.saved_work import WorkState, saved_work_sentence
from tests.unit.core.event_strategies import created

HEAD = "abc1234def"


def facts(**more: object) -> SessionFacts:
    session_facts = reduce(None, created())
    assert session_facts is not None
    workspace = Workspace("/w", "c0", "/g")
    return replace(session_facts, place=workspace, head=HEAD, **more)  # type: ignore[arg-type]


HERE = WorkState(present=True, ahead=2)
LOOSE = WorkState(present=True, uncommitted=("a", "b"), ahead=2)
NOTHING = WorkState(present=True, ahead=0)
CLONE = Workspace("/w", "c0", "/g", shared=False)
MERGED_PULL_REQUEST = PullRequest(1, "x", "main", state="merged", landed="fed4321abc")


@pytest.mark.parametrize(
    ("session", "work", "expected"),
    [
        (facts(pushed=HEAD), LOOSE, "work safe: pushed abc1234, 2 files uncommitted"),
        (facts(pushed=HEAD), HERE, "work safe: pushed abc1234"),
        (facts(), HERE, "work safe: committed abc1234 on feature/x in your repository"),
        (
            facts(pushed="0123456789"),
            HERE,
            "work safe: committed abc1234 on feature/x in your repository, 0123456 pushed",
        ),
        (replace(facts(), place=CLONE), LOOSE, "only in the workspace: 2 commits up to abc1234, 2 files uncommitted"),
        (
            replace(facts(published=HEAD), place=CLONE),
            HERE,
            "work safe: committed abc1234 on feature/x in your repository",
        ),
        (
            replace(facts(), head="c0"),
            WorkState(present=True, uncommitted=("a",), ahead=0),
            "only in the workspace: 1 file uncommitted, nothing committed yet",
        ),
        (replace(facts(), head="c0"), NOTHING, "no work yet: nothing committed, nothing changed"),
        (replace(facts(), place=None, head=None), WorkState(), "no work yet: its workspace is not made"),
        (facts(pr=MERGED_PULL_REQUEST), WorkState(), "work safe: landed on main as fed4321"),
        (
            facts(pushed=HEAD, rescues=("refs/ao/rescue/app-x",)),
            WorkState(ahead=2),
            "work safe: pushed abc1234, the rest saved as refs/ao/rescue/app-x",
        ),
    ],
)
def test_the_sentence_names_where_the_work_is_saved(session: SessionFacts, work: WorkState, expected: str) -> None:
    assert saved_work_sentence(session, work) == expected
