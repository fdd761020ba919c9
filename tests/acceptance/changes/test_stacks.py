"""Stacked branches: a session starts on the branch of another session and is rebased when that changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import (
    TIMEOUT,
    Json,
    rule_messages,
    wait_for_checks,
    wait_for_session,
    wait_for_status,
)

CONFIG = """
defaults: {agent: demo, runtime: process}
ci: {command: "true"}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def create_stacked_session(box: Sandbox, name: str, script: str, on: str = "", **more: object) -> None:
    stack = {"after": [on], "stack": True} if on else {}
    body = {"name": name, "title": f"Work on {name}", "prompt": script, **stack, **more}
    box.request("POST", "/api/sessions", body)


def create_checked_change(box: Sandbox, name: str, on: str = "", path: str = "", **more: object) -> Json:
    """Create a session and wait until its change has passed its checks and waits for a review."""
    create_stacked_session(
        box, name, f"[[edit: {path or name}.txt|{name}]] [[commit: {name}]] [[done: made]]", on, **more
    )
    return wait_for_checks(box, name)


def own_subjects(box: Sandbox, session: Json) -> list[str]:
    """Return the subjects of a change's own commits, newest first."""
    return box.git("log", "--format=%s", f"{session['base']}..{session['branch']}").split()


def wait_until_rebased(box: Sandbox, name: str, base: str = "main") -> Json:
    """Wait until a session's branch is based on the newest commit of a base branch, and return the session."""

    def rebased_session() -> Json:
        now = box.session(name)
        tip, fork = box.git("rev-parse", base), box.git("merge-base", base, now["branch"])
        is_head_recorded = now["head"] == box.git("rev-parse", now["branch"])
        return now if now["base"] == base and tip == fork and is_head_recorded else {}

    return box.wait_until(rebased_session, f"{name} to stand on {base}", TIMEOUT)


def test_a_stacked_session_starts_on_the_branch_below_and_moves_to_the_base_after_its_merge(box: Sandbox) -> None:
    create_stacked_session(box, "low", "[[wait]] [[edit: low.txt|low]] [[commit: low]] [[done: made]]")
    wait_for_status(box, "low", "idle")
    create_stacked_session(box, "high", "[[edit: high.txt|high]] [[commit: high]] [[done: made]]", "low")
    waiting = wait_for_session(
        box, "high", lambda now: now["waitingFor"] == "commits of app-low to stand on", "to say why it waits"
    )
    assert waiting["status"] == "queued"
    box.ao("send", "low", "go on")
    low, high = wait_for_checks(box, "low"), wait_for_checks(box, "high")
    assert high["pr"]["base"] == high["base"] == low["branch"] and high["stack"] == "app-low"
    assert own_subjects(box, high) == ["high"]
    assert box.git("merge-base", low["branch"], high["branch"]) == low["head"]

    box.ao("review", "high", "--approve")
    box.ao("review", "low", "--approve")
    ready = wait_for_status(box, "high", "approved")
    assert ready["why"] == "approved and green, on top of app-low" and ready["waitingFor"] == "that to land"
    assert_refused(box.ao("merge", "high", check=False), 1, "app-high stands on app-low", "ao merge app-low")

    box.ao("merge", "low")
    high = wait_until_rebased(box, "high")
    assert high["pr"]["base"] == "main"
    assert box.git("diff", "--name-only", f"main...{high['branch']}") == "high.txt"
    assert (Path(high["workspacePath"]) / "low.txt").read_text() == "low\n"
    assert box.git("status", "--porcelain", cwd=Path(high["workspacePath"])) == ""
    high = wait_for_status(box, "high", "mergeable")
    box.ao("merge", "high")
    assert box.git("log", "--format=%s", "main").split("\n") == ["Work on high (#2)", "Work on low (#1)", "start"]
    assert rule_messages(box, "high") == []
    base_changes = [event["data"] for event in box.events("app-high") if event["type"] == "base-changed"]
    assert [(event["base"], event["reason"]) for event in base_changes] == [("main", "app-low has landed")]


def test_unreviewed_commits_are_rebased_and_reviewed_ones_get_a_merge_commit(box: Sandbox) -> None:
    low = create_checked_change(box, "low")
    create_checked_change(box, "unseen", "low")
    reviewed = create_checked_change(box, "seen", "low")
    box.ao("review", "seen", "--comment", "seen.txt:1:Good so far [[say: thanks]]")
    box.ao("merge", "low")
    unreviewed, updated = wait_until_rebased(box, "unseen"), wait_until_rebased(box, "seen")
    assert own_subjects(box, unreviewed) == ["unseen"] and low["head"] not in box.git("rev-list", unreviewed["branch"])
    assert reviewed["head"] in box.git("rev-list", updated["branch"])
    assert box.git("show", "-s", "--format=%s", updated["branch"]) == f"Merge main into {updated['branch']}"
    assert box.git("diff", "--name-only", f"main...{updated['branch']}") == "seen.txt"


def test_a_stack_of_three_is_rebased_step_by_step(box: Sandbox) -> None:
    low = create_checked_change(box, "low")
    middle = create_checked_change(box, "middle", "low")
    create_checked_change(box, "high", "middle")
    box.ao("merge", "low")
    wait_until_rebased(box, "middle")
    high = wait_until_rebased(box, "high", middle["branch"])
    assert own_subjects(box, high) == ["high"] and low["head"] not in box.git("rev-list", high["branch"])
    wait_for_checks(box, "middle")
    box.ao("merge", "middle", "--strategy", "rebase")
    high = wait_until_rebased(box, "high")
    assert box.git("log", "--format=%s", high["branch"]).split("\n") == ["high", "middle", "Work on low (#1)", "start"]


def test_branches_are_rebased_when_the_branch_below_is_rewritten(box: Sandbox) -> None:
    low = create_checked_change(box, "low")
    create_checked_change(box, "high", "low")
    box.ao("send", "low", "[[sh: git commit -q --amend -m again]]")
    wait_for_session(box, "low", lambda now: now["head"] != low["head"], "to be rewritten")
    high = wait_until_rebased(box, "high", low["branch"])
    assert own_subjects(box, high) == ["high"] and low["head"] not in box.git("rev-list", high["branch"])


def test_a_rebase_blocked_by_unsaved_files_is_done_once_they_are_out_of_the_way(box: Sandbox) -> None:
    create_checked_change(box, "low")
    create_stacked_session(
        box, "high", "[[edit: high.txt|high]] [[commit: high]] [[done: made]] [[wait]] [[say: I see]]", "low"
    )
    high = wait_for_checks(box, "high")
    folder = Path(high["workspacePath"])
    (folder / "low.txt").write_text("unsaved\n")
    (folder / "beside.txt").write_text("beside\n")
    box.ao("send", "low", "[[edit: low.txt|more]] [[commit: more]]")
    wait_for_session(box, "low", lambda now: "more" in own_subjects(box, now), "the next commit")
    low = wait_for_checks(box, "low")
    box.ao("merge", "low")
    [request] = box.wait_until(lambda: rule_messages(box, "high"), "the agent to be asked", TIMEOUT)
    assert f"git rebase --onto main {low['head']}" in request
    wait_for_session(
        box, "high", lambda now: now["activity"] == "idle" and now["status"] == "conflicted", "its turn's end"
    )
    assert box.git("rev-parse", high["branch"]) == high["head"] and (folder / "low.txt").read_text() == "unsaved\n"
    (folder / "low.txt").write_text("low\n")
    box.ao("send", "high", "[[say: it is clean]]")
    wait_until_rebased(box, "high")
    assert (folder / "low.txt").read_text() == "low\nmore\n" and (folder / "beside.txt").read_text() == "beside\n"
    wait_for_status(box, "high", "review_pending")


def test_a_workspace_is_not_rebased_while_its_agent_waits_for_a_permission(box: Sandbox) -> None:
    """A pending edit was made for the files that the agent saw: applied after a rebase it would revert other changes."""
    create_checked_change(box, "low")
    create_stacked_session(
        box, "high", "[[edit: high.txt|high]] [[commit: high]] [[block: Write low.txt?]] [[wait]]", "low"
    )
    before = wait_for_status(box, "high", "blocked")
    create_checked_change(box, "beside", "low")
    box.ao("review", "low", "--approve")
    box.ao("merge", "low")
    wait_for_session(box, "high", lambda now: now["base"] == "main", "its base")
    wait_until_rebased(box, "beside")
    assert box.session("high")["head"] == before["head"]
    assert not [event for event in box.events("app-high") if event["type"] in ("branch-rebased", "rebase-refused")]
    box.ao("answer", "high", "--allow")
    wait_until_rebased(box, "high")


def test_a_conflicting_rebase_is_left_to_the_agent(box: Sandbox) -> None:
    low = create_checked_change(box, "low")
    solve = "git rebase --onto main HEAD~1; echo both > high.txt; git add -A; git -c core.editor=true rebase --continue"
    create_stacked_session(
        box, "high", f"[[edit: high.txt|high]] [[commit: high]] [[done: made]] [[wait]] [[sh: {solve}]]", "low"
    )
    high = wait_for_checks(box, "high")
    (box.repo / "high.txt").write_text("somebody else's\n")
    box.git("add", "high.txt")
    box.git("commit", "-q", "-m", "in the way")
    wait_for_session(box, "low", lambda now: now["pr"]["mergeable"] == "yes", "to be compared again")
    box.ao("merge", "low")
    [request] = box.wait_until(lambda: rule_messages(box, "high"), "the agent to be asked", TIMEOUT)
    assert "high.txt" in request and f"git rebase --onto main {low['head']}" in request
    assert high["head"] in box.git("reflog", "--format=%H", high["branch"])
    assert own_subjects(box, wait_until_rebased(box, "high")) == ["high"]
    wait_for_checks(box, "high")


def test_a_person_is_notified_when_the_branch_below_is_closed(box: Sandbox) -> None:
    create_checked_change(box, "low")
    create_checked_change(box, "high", "low")
    box.request("POST", "/api/sessions/low/close")
    high = wait_for_session(
        box, "high", lambda now: now["base"] == "main" and now["pr"]["base"] == "main", "to be for main"
    )
    assert own_subjects(box, high) == ["high", "low"]
    [notice] = [event["data"] for event in box.events("app-high") if event["type"] == "notified"]
    assert (
        notice["message"] == "it stands on app-low, which was given up: the commits of that are part of its change now"
    )


def test_stacked_clones_are_rebased_even_after_a_crash(box: Sandbox) -> None:
    create_checked_change(box, "low", workspace="clone")
    high = create_checked_change(box, "high", "low", workspace="clone")
    assert own_subjects(box, high) == ["high"]
    box.ao("merge", "low")
    box.stop(9)
    box.start()
    high = wait_until_rebased(box, "high")
    assert own_subjects(box, high) == ["high"]
    wait_for_checks(box, "high")
    box.ao("merge", "high")
    assert (box.repo / "high.txt").read_text() == "high\n"


def test_impossible_stacks_are_refused(box: Sandbox) -> None:
    create_checked_change(box, "low")
    for argv, problem, remedy in (
        (("--stack",), "stands on one other", "--after S --stack"),
        (("--stack", "--after", "low", "--base", "main"), "--stack and --base", "leave one of them out"),
        (("--stack", "--after", "low", "--branch", "b"), "--stack and --branch", "leave one of them out"),
    ):
        assert_refused(box.ao("new", "[[done: x]]", *argv, check=False), 2, problem, remedy)
    box.ao("merge", "low")
    late = box.json("new", "[[wait]]", "--name", "late", "--after", "low", "--stack")
    assert late["base"] == "main" and late["stack"] is None
