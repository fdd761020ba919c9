"""Every invariant check passes on an intact world and reports damage to its piece of evidence."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import invariants
from tests.faults.daemons import StartedDaemon
from tests.faults.play import FaultWorld


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultWorld]:
    folder = tmp_path_factory.mktemp("w", numbered=True)
    world_record = FaultWorld(folder, "plain", "process", fresh=False, seed="checks", disk=False)
    try:
        world_record.begin()
        world_record._new(0.2, 0.0)  # writes and commits
        world_record.wait_until_settled()
        world_record._send(0.0, 0.0)
        world_record.wait_until_settled()
        yield world_record
    finally:
        world_record.close()


def problems(world: FaultWorld) -> list[str]:
    return invariants.check_all(world)


def git(world: FaultWorld, *argv: str) -> str:
    return subprocess.run(
        ["git", *argv], cwd=world.box.repo, env=world.box.env, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_an_intact_world_has_no_problems(world: FaultWorld) -> None:
    assert problems(world) == []


def test_a_second_daemon_is_reported(world: FaultWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    more = StartedDaemon(1, world.launcher.ends)
    monkeypatch.setattr(world.launcher, "started", [*world.launcher.started, more])
    assert any(line.startswith("one daemon: 2 daemons run") for line in problems(world))


def test_a_damaged_event_log_is_reported(world: FaultWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    original_request = world.box.request

    def harmed(change: Any) -> Any:
        def request(method: str, path: str, *more: Any, **named: Any) -> Any:
            answer = original_request(method, path, *more, **named)
            if path.startswith("/api/events?after=0"):
                change(answer["events"])
            return answer

        return request

    for change, problem in (
        (lambda events: events.pop(2), "has gaps"),
        (lambda events: events[3].update(key=events[2]["key"]), "in the log 2 times"),
        (lambda events: events[3].update(key="another"), "is another now"),
    ):
        problems(world)
        with monkeypatch.context() as patch:
            patch.setattr(world.box, "request", harmed(change))
            assert any(line.startswith("the log is whole") and problem in line for line in problems(world)), problem
    problems(world)


def test_text_typed_into_a_dialog_is_reported(world: FaultWorld) -> None:
    truth = [{"event": "dialog-input", "session": "app-1", "text": "hello"}]
    assert invariants.dialogs_untouched(world, {}, truth)


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (("branch", "-f", "his", "HEAD~1"), "the user's branch his"),
        (("tag", "-f", "v1", "HEAD~1"), "the user's tag v1"),
        (("stash", "drop", "-q"), "the user's stash"),
        (("rm", "-q", "--cached", "his.txt"), "the user's checkout is changed"),
    ],
)
def test_changes_to_the_users_work_are_reported(world: FaultWorld, harm: tuple[str, ...], problem: str) -> None:
    user, repo = world.user, world.box.repo
    (repo / "his.txt").write_text("his\n")
    git(world, "add", "his.txt")
    git(world, "commit", "-q", "--allow-empty", "-m", "by user-1")
    head = git(world, "rev-parse", "HEAD")
    git(world, "branch", "-f", "his")
    git(world, "tag", "-f", "v1")
    (repo / "README.md").write_text("stashed\n")
    git(world, "stash", "-q")
    user.commits.update(main=head, his=head)
    user.tags["v1"] = head
    user.stashes.append(git(world, "rev-parse", "stash@{0}"))
    assert invariants.user_work_is_untouched(world, {}, []) == []
    git(world, *harm)
    try:
        assert any(problem in line for line in invariants.user_work_is_untouched(world, {}, []))
    finally:
        git(world, "reset", "-q", "--hard", head)
        user.commits.pop("his")
        user.tags.clear()
        user.stashes.clear()


def test_files_and_worktrees_left_behind_are_reported(world: FaultWorld) -> None:
    (session,) = world.accepted.sessions
    world.ask("DELETE", f"/api/sessions/{session}")
    world.wait_until_settled()
    assert problems(world) == []
    private = world.box.home.path / "sessions" / session
    tree = world.folder / "tree"
    for make, undo, problem in (
        (lambda: (world.box.repo / ".git/index.lock").touch(), (world.box.repo / ".git/index.lock").unlink, "locks"),
        (lambda: (private / "launch.1.sh").touch(), (private / "launch.1.sh").unlink, "secrets or messages"),
        (
            lambda: git(world, "worktree", "add", "-q", "--detach", str(tree)),
            lambda: git(world, "worktree", "remove", "--force", str(tree)),
            "worktrees that no session has",
        ),
    ):
        make()
        assert any(line.startswith("nothing left behind") and problem in line for line in problems(world)), problem
        undo()
    assert problems(world) == []


def test_an_unchecked_or_repeated_merge_is_reported(world: FaultWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "style", "local")
    git(world, "commit", "-q", "--allow-empty", "-m", "Change mark-9 (#1)")
    (line,) = invariants.merged_as_checked(world, {}, [])
    assert "its content was never checked" in line
    world.checked.write_text(git(world, "rev-parse", "HEAD^{tree}") + "\n")
    assert invariants.merged_as_checked(world, {}, []) == []
    git(world, "commit", "-q", "--allow-empty", "-m", "Change mark-9 (#1)")
    (line,) = invariants.merged_as_checked(world, {}, [])
    assert "landed 2 times" in line


PULL = {
    "number": 1, "branch": "feature/a", "head": "h2", "merged": True, "named": "h2", "landed": "h2", "passed": True,
    "approved": ["h1"], "comments": ["one", "two"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "record", "pushes", "problem"),
    [
        ({}, [], [], ""),
        ({"passed": False}, [], [], "whose checks did not pass"),
        ({"passed": None}, [], [], "whose checks did not pass"),
        ({"named": ""}, [], [], "the request named ''"),
        ({"named": "h1"}, [], [], "the request named 'h1'"),
        ({"approved": []}, [], [], "nobody had approved it"),
        ({"comments": ["one", "one"]}, [], [], "was said 2 times"),
        ({}, [("pull_request", "opened", "1", "dev", "")] * 2, [], "happened 2 times"),
        ({}, [], [("refs/heads/a", "x", "y")] * 2, "was pushed to refs/heads/a 2 times"),
    ],
)
def test_wrong_records_at_the_forge_are_reported(
    change: dict[str, Any], record: list[Any], pushes: list[Any], problem: str
) -> None:
    answers = {"pull_records": [{**PULL, **change}], "record": record, "pushes": pushes, "faults": []}
    forge: Any = SimpleNamespace(ask=lambda what: answers[what])
    town: Any = SimpleNamespace(forge=forge, merge_requested=set())
    wrong = invariants.forge_agrees(town, {}, [])
    assert (wrong == []) if not problem else any(problem in line for line in wrong)
    twice = {**answers, "pull_records": [PULL, {**PULL, "number": 2}]}
    town.forge = SimpleNamespace(ask=lambda what: twice[what])
    assert any("has 2 pull requests" in line for line in invariants.forge_agrees(town, {}, []))


def test_an_undelivered_comment_is_reported() -> None:
    sent: list[Any] = []
    box = SimpleNamespace(request=lambda *_: {"messages": sent})
    town: Any = SimpleNamespace(box=box, accepted=SimpleNamespace(comments={"mark-1": "app-1"}))
    now = {"app-1": {"pid": 7, "status": "review", "pr": {"state": "open"}}}
    assert "never reached app-1" in invariants.comments_are_delivered(town, now, [])[0]
    assert invariants.comments_are_delivered(town, now, [{"event": "message", "text": "Why mark-1? because"}]) == []


def test_wrong_session_states_are_reported(world: FaultWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"pid": None, "status": "idle", "workspacePath": None}
    for session, live, problem in (
        ({**base, "pid": 7}, {}, "no agent of it lives"),
        (base, {"app-1": [7]}, "lives, but None is shown"),
        ({**base, "pid": 7}, {"app-1": [7, 8]}, "2 agents at once"),
        ({**base, "pid": 7, "status": "stopped"}, {"app-1": [7]}, "is stopped, but its agent lives"),
        ({**base, "pid": 7, "status": "merged"}, {"app-1": [7]}, "although nobody restored it"),
        ({**base, "workspacePath": "/no/such/folder"}, {}, "is not there"),
    ):
        monkeypatch.setattr("tests.faults.evidence.live_agents", lambda _world, live=live: live)
        assert any(problem in line for line in invariants.states_are_true(world, {"app-1": session}, [])), problem


def test_lost_work_is_reported(world: FaultWorld) -> None:
    written = [{"event": "wrote", "session": "app-1", "path": "a.txt", "text": "work"}]
    assert any("a.txt of app-1" in line for line in invariants.work_is_never_lost(world, {}, written))
    committed = [{"event": "committed", "session": "app-1", "subject": "commit mark-99"}]
    assert any("is in no history" in line for line in invariants.work_is_never_lost(world, {}, committed))
