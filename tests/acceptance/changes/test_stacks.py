"""Stacked branches, through the public surface: a session starts on another one's branch, and follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import refused
from tests.acceptance.session_states import PLENTY, Json, checked, messages, status, until

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


def begin(box: Sandbox, name: str, script: str, on: str = "", **more: object) -> None:
    stack = {"after": [on], "stack": True} if on else {}
    body = {"name": name, "title": f"Work on {name}", "prompt": script, **stack, **more}
    box.request("POST", "/api/sessions", body)


def change(box: Sandbox, name: str, on: str = "", path: str = "", **more: object) -> Json:
    """A session whose change is done, green and waits for a review."""
    begin(box, name, f"[[edit: {path or name}.txt|{name}]] [[commit: {name}]] [[done: made]]", on, **more)
    return checked(box, name)


def own(box: Sandbox, session: Json) -> list[str]:
    """What a change's own commits are, the newest first."""
    return box.git("log", "--format=%s", f"{session['base']}..{session['branch']}").split()


def followed(box: Sandbox, name: str, base: str = "main") -> Json:
    """The session, once it stands on the newest commit of a base."""

    def so() -> Json:
        now = box.session(name)
        tip, fork = box.git("rev-parse", base), box.git("merge-base", base, now["branch"])
        known = now["head"] == box.git("rev-parse", now["branch"])
        return now if now["base"] == base and tip == fork and known else {}

    return box.until(so, f"{name} to stand on {base}", PLENTY)


def test_it_starts_on_the_branch_below_and_follows_it_to_the_base(box: Sandbox) -> None:
    begin(box, "low", "[[wait]] [[edit: low.txt|low]] [[commit: low]] [[done: made]]")
    status(box, "low", "idle")
    begin(box, "high", "[[edit: high.txt|high]] [[commit: high]] [[done: made]]", "low")
    waits = until(box, "high", lambda now: now["waitingFor"] == "commits of app-low to stand on", "to say why it waits")
    assert waits["status"] == "queued"
    box.ao("send", "low", "go on")
    low, high = checked(box, "low"), checked(box, "high")
    assert high["pr"]["base"] == high["base"] == low["branch"] and high["stack"] == "app-low"
    assert own(box, high) == ["high"]
    assert box.git("merge-base", low["branch"], high["branch"]) == low["head"]

    box.ao("review", "high", "--approve")
    box.ao("review", "low", "--approve")
    ready = status(box, "high", "approved")
    assert ready["why"] == "approved and green, on top of app-low" and ready["waitingFor"] == "that to land"
    refused(box.ao("merge", "high", check=False), 1, "app-high stands on app-low", "ao merge app-low")

    box.ao("merge", "low")
    high = followed(box, "high")
    assert high["pr"]["base"] == "main"
    assert box.git("diff", "--name-only", f"main...{high['branch']}") == "high.txt"
    assert (Path(high["workspacePath"]) / "low.txt").read_text() == "low\n"
    assert box.git("status", "--porcelain", cwd=Path(high["workspacePath"])) == ""
    high = status(box, "high", "mergeable")
    box.ao("merge", "high")
    assert box.git("log", "--format=%s", "main").split("\n") == ["Work on high (#2)", "Work on low (#1)", "start"]
    assert messages(box, "high") == []
    told = [one["data"] for one in box.events("app-high") if one["type"] == "base-changed"]
    assert [(one["base"], one["reason"]) for one in told] == [("main", "app-low has landed")]


def test_commits_that_nobody_has_seen_are_rewritten_and_others_get_a_merge(box: Sandbox) -> None:
    low = change(box, "low")
    change(box, "unseen", "low")
    seen = change(box, "seen", "low")
    box.ao("review", "seen", "--comment", "seen.txt:1:Good so far [[say: thanks]]")
    box.ao("merge", "low")
    unseen, after = followed(box, "unseen"), followed(box, "seen")
    assert own(box, unseen) == ["unseen"] and low["head"] not in box.git("rev-list", unseen["branch"])
    assert seen["head"] in box.git("rev-list", after["branch"])
    assert box.git("show", "-s", "--format=%s", after["branch"]) == f"Merge main into {after['branch']}"
    assert box.git("diff", "--name-only", f"main...{after['branch']}") == "seen.txt"


def test_a_whole_pile_follows_step_by_step(box: Sandbox) -> None:
    low = change(box, "low")
    middle = change(box, "middle", "low")
    change(box, "high", "middle")
    box.ao("merge", "low")
    followed(box, "middle")
    high = followed(box, "high", middle["branch"])
    assert own(box, high) == ["high"] and low["head"] not in box.git("rev-list", high["branch"])
    checked(box, "middle")
    box.ao("merge", "middle", "--strategy", "rebase")
    high = followed(box, "high")
    assert box.git("log", "--format=%s", high["branch"]).split("\n") == ["high", "middle", "Work on low (#1)", "start"]


def test_a_branch_below_that_its_agent_rewrites_takes_the_others_along(box: Sandbox) -> None:
    low = change(box, "low")
    change(box, "high", "low")
    box.ao("send", "low", "[[sh: git commit -q --amend -m again]]")
    until(box, "low", lambda now: now["head"] != low["head"], "to be rewritten")
    high = followed(box, "high", low["branch"])
    assert own(box, high) == ["high"] and low["head"] not in box.git("rev-list", high["branch"])


def test_a_workspace_with_unsaved_work_in_the_way_follows_once_it_is_out_of_the_way(box: Sandbox) -> None:
    change(box, "low")
    begin(box, "high", "[[edit: high.txt|high]] [[commit: high]] [[done: made]] [[wait]] [[say: I see]]", "low")
    high = checked(box, "high")
    folder = Path(high["workspacePath"])
    (folder / "low.txt").write_text("unsaved\n")
    (folder / "beside.txt").write_text("beside\n")
    box.ao("send", "low", "[[edit: low.txt|more]] [[commit: more]]")
    until(box, "low", lambda now: "more" in own(box, now), "the next commit")
    low = checked(box, "low")
    box.ao("merge", "low")
    [asked] = box.until(lambda: messages(box, "high"), "the agent to be asked", PLENTY)
    assert f"git rebase --onto main {low['head']}" in asked
    until(box, "high", lambda now: now["activity"] == "idle" and now["status"] == "conflicted", "its turn's end")
    assert box.git("rev-parse", high["branch"]) == high["head"] and (folder / "low.txt").read_text() == "unsaved\n"
    (folder / "low.txt").write_text("low\n")
    box.ao("send", "high", "[[say: it is clean]]")
    followed(box, "high")
    assert (folder / "low.txt").read_text() == "low\nmore\n" and (folder / "beside.txt").read_text() == "beside\n"
    status(box, "high", "review_pending")


def test_a_workspace_stays_as_it_is_while_its_agent_waits_for_a_permission(box: Sandbox) -> None:
    """What it was about to write was made for the files that it saw: written over others, it would take back what they brought."""
    change(box, "low")
    begin(box, "high", "[[edit: high.txt|high]] [[commit: high]] [[block: Write low.txt?]] [[wait]]", "low")
    before = status(box, "high", "blocked")
    change(box, "beside", "low")
    box.ao("review", "low", "--approve")
    box.ao("merge", "low")
    until(box, "high", lambda now: now["base"] == "main", "its base")
    followed(box, "beside")
    assert box.session("high")["head"] == before["head"]
    assert not [event for event in box.events("app-high") if event["type"] in ("branch-rebased", "rebase-refused")]
    box.ao("answer", "high", "--allow")
    followed(box, "high")


def test_what_conflicts_is_the_agents_matter(box: Sandbox) -> None:
    low = change(box, "low")
    solve = "git rebase --onto main HEAD~1; echo both > high.txt; git add -A; git -c core.editor=true rebase --continue"
    begin(box, "high", f"[[edit: high.txt|high]] [[commit: high]] [[done: made]] [[wait]] [[sh: {solve}]]", "low")
    high = checked(box, "high")
    (box.repo / "high.txt").write_text("somebody else's\n")
    box.git("add", "high.txt")
    box.git("commit", "-q", "-m", "in the way")
    until(box, "low", lambda now: now["pr"]["mergeable"] == "yes", "to be compared again")
    box.ao("merge", "low")
    [asked] = box.until(lambda: messages(box, "high"), "the agent to be asked", PLENTY)
    assert "high.txt" in asked and f"git rebase --onto main {low['head']}" in asked
    assert high["head"] in box.git("reflog", "--format=%H", high["branch"])
    assert own(box, followed(box, "high")) == ["high"]
    checked(box, "high")


def test_when_the_one_below_is_given_up_a_person_is_told(box: Sandbox) -> None:
    change(box, "low")
    change(box, "high", "low")
    box.request("POST", "/api/sessions/low/close")
    high = until(box, "high", lambda now: now["base"] == "main" and now["pr"]["base"] == "main", "to be for main")
    assert own(box, high) == ["high", "low"]
    [told] = [one["data"] for one in box.events("app-high") if one["type"] == "notified"]
    assert told["message"] == "it stands on app-low, which was given up: the commits of that are part of its change now"


def test_in_clones_too_and_across_a_crash(box: Sandbox) -> None:
    change(box, "low", workspace="clone")
    high = change(box, "high", "low", workspace="clone")
    assert own(box, high) == ["high"]
    box.ao("merge", "low")
    box.stop(9)
    box.start()
    high = followed(box, "high")
    assert own(box, high) == ["high"]
    checked(box, "high")
    box.ao("merge", "high")
    assert (box.repo / "high.txt").read_text() == "high\n"


def test_what_cannot_be(box: Sandbox) -> None:
    change(box, "low")
    for argv, says, remedy in (
        (("--stack",), "stands on one other", "--after S --stack"),
        (("--stack", "--after", "low", "--base", "main"), "--stack and --base", "leave one of them out"),
        (("--stack", "--after", "low", "--branch", "b"), "--stack and --branch", "leave one of them out"),
    ):
        refused(box.ao("new", "[[done: x]]", *argv, check=False), 2, says, remedy)
    box.ao("merge", "low")
    late = box.json("new", "[[wait]]", "--name", "late", "--after", "low", "--stack")
    assert late["base"] == "main" and late["stack"] is None
