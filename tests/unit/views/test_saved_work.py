"""The sentence that says where a session's work is saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_orchestrator.core.facts import SessionFacts, SessionWorkspace
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.views.saved_work import WorkState, saved_work_sentence
from tests.unit.core.event_strategies import created

HEAD = "abc1234def"


def facts(**more: object) -> SessionFacts:
    session_facts = reduce(None, created())
    assert session_facts is not None
    workspace = SessionWorkspace("/w", "c0", "/g")
    return replace(session_facts, workspace=workspace, head=HEAD, **more)  # type: ignore[arg-type]


HERE = WorkState(has_workspace=True, ahead=2)
LOOSE = WorkState(has_workspace=True, uncommitted=("a", "b"), ahead=2)
NOTHING = WorkState(has_workspace=True, ahead=0)
CLONE = SessionWorkspace("/w", "c0", "/g", shared=False)
MERGED_PULL_REQUEST = PullRequest(1, "x", "main", state="merged", merge_commit="fed4321abc")


@pytest.mark.parametrize(
    ("session", "work", "expected"),
    [
        (facts(pushed_head=HEAD), LOOSE, "work safe: pushed abc1234, 2 files uncommitted"),
        (facts(pushed_head=HEAD), HERE, "work safe: pushed abc1234"),
        (facts(), HERE, "work safe: committed abc1234 on feature/x in your repository"),
        (
            facts(pushed_head="0123456789"),
            HERE,
            "work safe: committed abc1234 on feature/x in your repository, 0123456 pushed",
        ),
        (
            replace(facts(), workspace=CLONE),
            LOOSE,
            "only in the workspace: 2 commits up to abc1234, 2 files uncommitted",
        ),
        (
            replace(facts(published_head=HEAD), workspace=CLONE),
            HERE,
            "work safe: committed abc1234 on feature/x in your repository",
        ),
        (
            replace(facts(), head="c0"),
            WorkState(has_workspace=True, uncommitted=("a",), ahead=0),
            "only in the workspace: 1 file uncommitted, nothing committed yet",
        ),
        (replace(facts(), head="c0"), NOTHING, "no work yet: nothing committed, nothing changed"),
        (replace(facts(), workspace=None, head=None), WorkState(), "no work yet: its workspace is not made"),
        (facts(pr=MERGED_PULL_REQUEST), WorkState(), "work safe: landed on main as fed4321"),
        (
            facts(pushed_head=HEAD, rescues=("refs/ao/rescue/app-x",)),
            WorkState(ahead=2),
            "work safe: pushed abc1234, the rest saved as refs/ao/rescue/app-x",
        ),
    ],
)
def test_the_sentence_names_where_the_work_is_saved(session: SessionFacts, work: WorkState, expected: str) -> None:
    assert saved_work_sentence(session, work) == expected
