"""The life of a session: creation, messages, questions, stop and restore, also across crashes of the daemon."""

from __future__ import annotations

import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox


def test_a_task_becomes_commits_on_its_own_branch(box: Sandbox) -> None:
    created = box.json("new", "Write the notes")
    assert created["id"] == "app-write-the-notes"
    assert created["branch"] == "feature/write-the-notes"
    done = box.wait_until(
        lambda: (now := box.session(created["id"]))["status"] == "review_pending" and now, "its change"
    )
    assert done["column"] == "In review"
    assert done["evidence"]["source"] == "pr"
    assert (done["pr"]["number"], done["pr"]["state"], done["pr"]["head"]) == (1, "open", done["head"])
    assert box.git("log", "--oneline", "main..feature/write-the-notes")
    assert box.git("status", "--porcelain") == "?? agent-orchestrator.yaml"
    link = box.repo / ".worktrees" / "write-the-notes"
    assert link.is_symlink() and link.resolve() == Path(done["workspacePath"]).resolve()


def test_a_message_is_acknowledged_once(box: Sandbox) -> None:
    box.ao("new", "[[say: ready]]", "--name", "w")
    answer = box.json("send", "w", "hello [[edit: a.txt|one]]", "--wait")
    assert answer["state"] == "acknowledged"
    file = Path(box.session("w")["workspacePath"]) / "a.txt"
    box.wait_until(lambda: file.exists() and file.read_text() == "one\n", "the message to be acted on")
    received = [event for event in box.events("w") if event["type"] == "agent-ack"]
    assert [event["data"]["message"] for event in received] == [answer["messageId"]]


def test_a_question_waits_for_its_answer(box: Sandbox) -> None:
    box.ao("new", "ask [[ask: Which database?]] [[edit: db.txt|x]]", "--name", "q")
    box.wait_until(lambda: box.session("q")["status"] == "needs_input", "the question")
    assert "Which database?" in box.ao("status").stdout
    box.ao("answer", "q", "postgres")
    box.wait_until(lambda: box.session("q")["status"] == "idle", "the answer to be used")


def test_agents_survive_a_crash_of_the_daemon(box: Sandbox) -> None:
    box.ao("new", "[[say: ready]]", "--name", "w")
    before = box.wait_until(lambda: (now := box.session("w"))["activity"] == "idle" and now)
    box.stop(signal.SIGKILL)
    box.start()
    after = box.session("w")
    assert (after["pid"], after["status"]) == (before["pid"], before["status"])
    assert box.json("send", "w", "[[edit: late.txt|y]]", "--wait")["state"] == "acknowledged"


def test_stop_saves_uncommitted_work_and_restore_brings_it_back(box: Sandbox) -> None:
    box.ao("new", "[[write: draft.txt|not committed]] [[wait]]", "--name", "d")
    path = Path(box.wait_until(lambda: (now := box.session("d"))["activity"] == "idle" and now)["workspacePath"])
    output = box.ao("stop", "d").stdout
    assert "refs/ao/rescue/app-d" in output and "ao restore" in output
    assert not path.exists()
    assert box.session("d")["status"] == "stopped"
    box.ao("restore", "d")
    assert (path / "draft.txt").read_text().strip() == "not committed"


def test_unread_launch_files_are_removed_with_the_session(process_box: Sandbox) -> None:
    process_box.ao("new", "[[wait]]", "--name", "before")
    process_box.ao("new", "[[wait]]", "--name", "work", "--after", "before", "--no-wait")
    folder = process_box.home.session("app-work")
    leftover_files = [folder / f"{kind}.{process_box.daemon_pid()}.x" for kind in ("launch", "spec", "message")]
    folder.mkdir(parents=True, exist_ok=True)
    for path in leftover_files:
        path.write_text("A_SECRET=1\n")
    process_box.ao("stop", "work")
    assert [path.name for path in leftover_files if path.exists()] == []


def test_a_restore_during_a_stop_waits_for_the_stop(box: Sandbox) -> None:
    box.ao(
        "new",
        "[[write: draft.txt|kept]] [[sh: trap '' TERM; touch up; sleep 1; sleep 1; sleep 1000]]",
        "--name",
        "slow",
    )
    path = Path(box.session("slow")["workspacePath"])
    box.wait_until((path / "up").exists, "it to be deaf")
    with ThreadPoolExecutor() as threads:
        stopping = threads.submit(box.ao, "stop", "slow")
        box.wait_until(
            lambda: [event for event in box.events("app-slow") if event["type"] == "stop-requested"], "the stop"
        )
        assert box.json("restore", "slow")["id"] == "app-slow"
        stopping.result()
    order = [event["type"] for event in box.events("app-slow")]
    assert order.index("session-stopped") < order.index("restore-requested")
    box.wait_until((path / "draft.txt").exists, "its work")


def test_exits_and_crashes_are_shown_with_their_exit_code(box: Sandbox) -> None:
    box.ao("new", "[[exit: 3]]", "--name", "three", check=False)
    failed = box.wait_until(lambda: (now := box.session("three"))["status"] == "failed" and now)
    assert (failed["exitCode"], failed["activity"]) == (3, "exited")
    box.ao("new", "[[exit: 0]]", "--name", "zero", check=False)
    assert box.wait_until(lambda: (now := box.session("zero"))["status"] == "exited" and now)["exitCode"] == 0
    box.ao("new", "[[crash]]", "--name", "crash", check=False)
    assert box.wait_until(lambda: (now := box.session("crash"))["status"] == "failed" and now)["exitCode"] == 137


def test_commits_of_a_clone_reach_the_main_repository(process_box: Sandbox) -> None:
    created = process_box.json(
        "new", "[[edit: a.txt|x]] [[commit: from a clone]]", "--name", "c", "--workspace", "clone"
    )
    branch = created["branch"]
    process_box.wait_until(
        lambda: "from a clone" in process_box.git("log", "-1", "--format=%s", branch), "the commit to arrive"
    )
    process_box.wait_until(
        lambda: process_box.session("c")["head"] == process_box.git("rev-parse", branch), "it to be known"
    )


def test_a_session_on_another_branch_is_restored_on_that_branch(process_box: Sandbox) -> None:
    process_box.ao(
        "new", "[[sh: git checkout -q -b aside]] [[write: a|1]] [[commit: a]] [[done: a]]", "--name", "moved"
    )
    path = Path(
        process_box.wait_until(lambda: (now := process_box.session("moved"))["status"] == "review_pending" and now)[
            "workspacePath"
        ]
    )
    result = process_box.ao("merge", "moved", check=False)
    assert result.returncode == 1 and "its workspace is on branch aside, not on feature/moved" in result.stderr
    assert "branch aside checked out: refs/ao/rescue/app-moved" in process_box.ao("stop", "moved").stdout
    process_box.ao("restore", "moved")
    assert process_box.git("symbolic-ref", "--short", "HEAD", cwd=path) == "aside" and (path / "a").read_text() == "1\n"


def test_a_missing_branch_is_recreated_at_its_last_known_commit(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: b|1]] [[commit: b]] [[sh: git branch -m better]] [[done: b]]", "--name", "named")
    session = process_box.wait_until(
        lambda: (now := process_box.session("named"))["status"] == "review_pending" and now
    )
    assert "git branch -m feature/named" in process_box.ao("merge", "named", check=False).stderr
    assert (
        f"commits: up to {session['head'][:8]}; branch feature/named is gone" in process_box.ao("stop", "named").stdout
    )
    assert "branch feature/named was gone: it was made anew" in process_box.ao("restore", "named").stdout
    assert process_box.git("rev-parse", "feature/named") == session["head"]


def test_commits_made_after_a_merge_do_not_count_as_merged(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: c|1]] [[commit: c]] [[write: left|x]] [[done: c]]", "--name", "late")
    path = Path(
        process_box.wait_until(lambda: (now := process_box.session("late"))["status"] == "review_pending" and now)[
            "workspacePath"
        ]
    )
    process_box.ao("merge", "late")
    process_box.wait_until(
        lambda: not path.exists() and not process_box.git("branch", "--list", "feature/late"),
        "the branch to be removed",
    )
    process_box.ao("restore", "late")
    assert (path / "left").read_text() == "x\n", "the file that was not committed before the merge"
    process_box.json("send", "late", "[[commit: late]]", "--wait")
    process_box.wait_until(lambda: "not landed" in process_box.ao("why", "late").stdout, "the commit to be seen")
    result = process_box.ao("merge", "late", check=False)
    assert result.returncode == 1 and "has landed, but not what was committed since" in result.stderr
    assert "left" not in process_box.git("ls-tree", "--name-only", "main").split()


def test_a_workspace_unknown_to_its_repository_is_refused_with_a_remedy(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: draft|x]] [[wait]]", "--name", "lost")
    path = Path(
        process_box.wait_until(lambda: (now := process_box.session("lost"))["activity"] == "idle" and now)[
            "workspacePath"
        ]
    )
    shutil.rmtree(process_box.repo / ".git" / "worktrees" / "lost")
    result = process_box.ao("stop", "lost", check=False)
    assert result.returncode == 1 and "its files stay as they are" in result.stderr and (path / "draft").exists()
    result = process_box.ao("restore", "lost", check=False)
    assert result.returncode == 1 and "app-lost could not be stopped" in result.stderr, result
    assert "ao shutdown, then ao doctor --repair" in result.stderr
    process_box.stop()
    process_box.ao("doctor", "--repair")
    process_box.start()
    assert "1 untracked file: refs/ao/rescue/app-lost" in process_box.ao("stop", "lost").stdout
    process_box.ao("restore", "lost")
    assert (path / "draft").read_text() == "x\n"


def test_files_removed_in_a_kept_workspace_stay_removed(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: draft|x]] [[wait]]", "--name", "kept")
    path = Path(
        process_box.wait_until(lambda: (now := process_box.session("kept"))["activity"] == "idle" and now)[
            "workspacePath"
        ]
    )
    assert "refs/ao/rescue/app-kept" in process_box.ao("stop", "--keep", "kept").stdout
    process_box.ao("restore", "kept")
    process_box.json("send", "kept", "[[sh: rm draft]]", "--wait")
    process_box.wait_until(lambda: not (path / "draft").exists(), "the file to be removed")
    process_box.ao("stop", "kept")
    process_box.ao("restore", "kept")
    assert path.is_dir() and not (path / "draft").exists()
    assert process_box.git("show", "refs/ao/restored/app-kept:draft") == "x", "it is still kept as a ref"


def test_a_deleted_workspace_is_recreated_after_a_stop(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: draft|x]] [[wait]]", "--name", "gone")
    path = Path(
        process_box.wait_until(lambda: (now := process_box.session("gone"))["activity"] == "idle" and now)[
            "workspacePath"
        ]
    )
    process_box.ao("stop", "--keep", "gone")
    shutil.rmtree(path)
    assert (
        "make it anew: ao stop app-gone, then ao restore app-gone"
        in process_box.ao("restore", "gone", check=False).stderr
    )
    output = process_box.ao("stop", "gone").stdout
    assert "1 untracked file: refs/ao/rescue/app-gone" in output and "the workspace was gone already" in output
    process_box.ao("restore", "gone")
    assert (path / "draft").read_text() == "x\n"


def test_simultaneous_undos_create_one_revert(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: d|1]] [[commit: d]] [[done: d]]", "--name", "taken")
    process_box.wait_until(lambda: process_box.session("taken")["status"] == "review_pending", "its change")
    process_box.ao("merge", "taken")
    with ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(lambda _: process_box.ao("undo", "taken").stdout, range(4)))
    assert len(set(outputs)) == 1 and "on branch revert/app-taken" in outputs[0]


def test_a_temporarily_missing_workspace_is_not_pruned(process_box: Sandbox) -> None:
    process_box.ao("new", "[[write: only|staged]] [[sh: git add only; rm only]] [[wait]]", "--name", "away")
    path = Path(
        process_box.wait_until(lambda: (now := process_box.session("away"))["activity"] == "idle" and now)[
            "workspacePath"
        ]
    )
    path.rename(path.with_name("elsewhere"))
    output = process_box.ao("stop", "away").stdout
    assert "the workspace stays (Git still has staged files of it" in output and "git worktree prune" in output
    path.with_name("elsewhere").rename(path)
    process_box.ao("restore", "away")
    assert process_box.git("show", ":only", cwd=path) == "staged"
    path.rename(path.with_name("elsewhere"))
    process_box.ao("stop", "away")
    process_box.git("worktree", "prune", "--expire", "now")
    process_box.ao("restore", "away", check=False)
    assert "the workspace was gone already" in process_box.ao("stop", "away").stdout
    process_box.ao("restore", "away")
    assert path.is_dir()


def test_stopping_a_session_in_the_merge_queue_mentions_the_pending_merge(process_box: Sandbox) -> None:
    (process_box.repo / "mine.txt").write_text("one\n")
    process_box.git("add", "mine.txt")
    process_box.git("commit", "-q", "-m", "mine")
    process_box.ao("new", "[[write: mine.txt|two]] [[commit: two]] [[done: two]]", "--name", "waits")
    process_box.wait_until(lambda: process_box.session("waits")["status"] == "review_pending", "its change")
    (process_box.repo / "mine.txt").write_text("of the person\n")
    process_box.ao("merge", "waits", "--no-wait")
    process_box.wait_until(lambda: "stands in the way" in process_box.ao("queue").stdout, "the merge to wait")
    assert (
        "its change is still to land on main; not so: ao merge app-waits --cancel"
        in process_box.ao("stop", "waits").stdout
    )
    assert "its change is still to land on main" in process_box.ao("why", "waits").stdout
    process_box.ao("merge", "app-waits", "--cancel")
    process_box.git("checkout", "-q", "mine.txt")
    assert "still to land" not in process_box.ao("why", "waits").stdout
    assert process_box.git("show", "main:mine.txt") == "one"
