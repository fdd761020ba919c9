"""Invariants that must hold after every round, checked against independent evidence. Each check returns its problems as text."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import evidence
from tests.faults.play import FaultWorld

FINAL_MESSAGE_STATES = {"delivered", "acknowledged", "failed"}
ENDED_STATUSES = {"stopped", "failed", "merged", "closed", "exited", "interrupted"}
TEMPORARY_PREFIXES = ("launch.", "spec.", "message.")
"""Prefixes of files with an environment or a message, which are read once and removed."""
RECOVERY_SECONDS = 3.0
"""Seconds in which postponed writes and removals are done once the disk can be written again."""
LOGGED_FAULT = re.compile(r"Traceback|unexpectedly|level=error|\bERROR\b")
NO_COMMIT = "0" * 40

Sessions = dict[str, Any]


def check_all(world: FaultWorld) -> list[str]:
    """Return the problems of all invariants."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    while (
        states_are_true(world, sessions := _sessions_by_id(world), evidence.agent_records(world))
        and time.monotonic() < deadline
    ):
        time.sleep(0.1)  # an end that could not be recorded at once is recorded a second later
    truth = evidence.agent_records(world)
    wrong: list[str] = []
    for name, rule in RULES.items():
        wrong += [f"{name}: {line}" for line in rule(world, sessions, truth)]
    return wrong


def _sessions_by_id(world: FaultWorld) -> Sessions:
    return {session["id"]: session for session in world.box.sessions()}


def work_is_never_lost(world: FaultWorld, sessions: Sessions, truth: list[Any]) -> list[str]:
    """Check that what an agent wrote or committed is in its workspace, on its branch, on the base, or under a ref of ours."""
    wrong = [f"{session} was accepted and is gone" for session in world.accepted.sessions if session not in sessions]
    refs = evidence.git(world, "for-each-ref", "--format=%(refname)").split()
    written = {(record["session"], record["path"]): record["text"] for record in truth if record["event"] == "wrote"}
    candidates: dict[tuple[str, str], list[str]] = {}
    for (session, path), text in written.items():
        if path == "broken.txt":
            continue  # its agent removes it after the check has failed
        folder = sessions.get(session, {}).get("workspacePath")
        if folder and _read_text(Path(folder) / path) == f"{text}\n":
            continue
        branch = sessions.get(session, {}).get("branch")
        branch_refs = {
            f"refs/heads/{branch}",
            f"refs/remotes/origin/{branch}",
            "refs/heads/main",
            "refs/remotes/origin/main",
        }
        session_refs = [ref for ref in refs if ref in branch_refs or (ref.startswith("refs/ao/") and session in ref)]
        candidates[session, path] = [f"{ref}:{path}" for ref in session_refs]
    contents = evidence.blob_contents(world, [name for names in candidates.values() for name in names])
    for (session, path), names in candidates.items():
        if not any(contents[name] == f"{written[session, path]}\n" for name in names):
            status = sessions.get(session, {}).get("status")
            wrong.append(f"{path} of {session} ({status}) is neither in its workspace nor in any of {names}")
    subjects = set(evidence.git(world, "log", "--all", "--format=%s%n%b").splitlines())
    for record in truth:
        if record["event"] == "committed" and record["subject"].startswith("commit mark"):
            is_in_history = any(record["subject"] in line for line in subjects)
            if not is_in_history and not _content_is_on_base(world, record["subject"].removeprefix("commit "), written):
                wrong.append(f"{record['subject']!r} of {record['session']} is in no history")
    return wrong


def _content_is_on_base(world: FaultWorld, mark: str, written: dict[tuple[str, str], str]) -> bool:
    """Return whether the files of a squashed commit are on the base."""
    files = {path: text for (_, path), text in written.items() if path.startswith(f"{mark}.")}
    contents = evidence.blob_contents(world, [f"{ref}:{path}" for path in files for ref in ("main", "origin/main")])
    return bool(files) and any(
        contents[f"{ref}:{path}"] == f"{text}\n" for path, text in files.items() for ref in ("main", "origin/main")
    )


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def one_daemon(world: FaultWorld, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    live = world.launcher.live()
    return [] if len(live) == 1 else [f"{len(live)} daemons run: {live}"]


def states_are_true(world: FaultWorld, sessions: Sessions, _truth: list[Any]) -> list[str]:
    wrong = []
    agents = evidence.live_agents(world)
    for session, pids in agents.items():
        session_state = sessions.get(session, {})
        if len(pids) > 1:
            wrong.append(f"{session} has {len(pids)} agents at once: {pids}")
        if session_state.get("pid") not in pids:
            wrong.append(
                f"{session}: agent {pids} lives, but {session_state.get('pid')} is shown ({session_state.get('status')})"
            )
    for session, session_state in sessions.items():
        if session_state["pid"] is not None and session not in agents:
            wrong.append(
                f"{session} is shown with pid {session_state['pid']} ({session_state['status']}), but no agent of it lives"
            )
        if session_state["status"] == "stopped" and session in agents:
            wrong.append(f"{session} is {session_state['status']}, but its agent lives")
        if session_state["status"] == "merged" and session in agents and session not in world.accepted.restored:
            wrong.append(f"{session} is merged, and its agent lives although nobody restored it")
        if session_state["workspacePath"] and not Path(session_state["workspacePath"]).is_dir():
            wrong.append(f"{session}: its workspace {session_state['workspacePath']} is not there")
    return wrong


def messages_once(world: FaultWorld, sessions: Sessions, _truth: list[Any]) -> list[str]:
    """Check that messages arrive at most once, acknowledged ones exactly once, and that a live agent has none waiting."""
    wrong = []
    messages_by_session = {
        entry: world.box.request("GET", f"/api/sessions/{entry}/messages")["messages"] for entry in sessions
    }
    # Read after the API: an agent may receive a message in between, but not undo that.
    truth = evidence.agent_records(world)
    received = Counter(entry.get("id") for entry in truth if entry["event"] == "message" and entry.get("id"))
    receivers = {entry["id"]: entry["pid"] for entry in truth if entry["event"] == "message" and entry.get("id")}
    agents = {pid for pids in evidence.live_agents(world).values() for pid in pids}
    for message, times in received.items():
        if times > 1:
            wrong.append(f"message {message} was received {times} times")
    by_id: dict[str, Any] = {}
    for session in sessions:
        for entry in messages_by_session[session]:
            by_id[entry["messageId"]] = entry
            is_running = sessions[session]["pid"] is not None and sessions[session]["status"] not in (
                "needs_input",
                "blocked",
            )
            if entry["state"] == "acknowledged" and received[entry["messageId"]] != 1:
                wrong.append(
                    f"{entry['messageId']} counts as acknowledged, but was received {received[entry['messageId']]} times"
                )
            elif (
                received[entry["messageId"]]
                and entry["state"] == "failed"
                and not _may_have_been_received(entry, receivers, agents)
            ):
                wrong.append(f"{entry['messageId']} counts as failed ({entry['reason']}), but was received")
            elif (
                is_running
                and entry["state"] not in FINAL_MESSAGE_STATES
                and entry["messageId"] in world.accepted.messages
            ):
                wrong.append(f"{entry['messageId']} to {session} is still {entry['state']} although its agent lives")
    wrong += [
        f"{message} to {to} was accepted and is not known"
        for message, to in world.accepted.messages.items()
        if message not in by_id
    ]
    return wrong


def _may_have_been_received(message: Any, receivers: dict[str, int], agents: set[int]) -> bool:
    """Return whether the receiving agent died before it could acknowledge, and the reason says that it may have been received."""
    return "send it again if it was not" in message["reason"] and receivers[message["messageId"]] not in agents


def dialogs_untouched(_world: FaultWorld, _sessions: Sessions, truth: list[Any]) -> list[str]:
    """Check that only decisions are typed into a permission dialog."""
    return [
        f"{record['session']} got {record['text']!r} into its dialog"
        for record in truth
        if record["event"] == "dialog-input"
    ]


def log_is_whole(world: FaultWorld, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    events: list[Any] = []
    while page := world.box.request("GET", f"/api/events?after={events[-1]['seq'] if events else 0}&limit=1000")[
        "events"
    ]:
        events += page
    numbers = [event["seq"] for event in events]
    keys = Counter(event["key"] for event in events)
    wrong = [] if numbers == list(range(1, len(numbers) + 1)) else ["the event log has gaps"]
    before, world.events = world.events, [(record["seq"], record["key"]) for record in events]
    if world.events[: len(before)] != before:
        wrong.append("what was in the event log is another now")
    return wrong + [f"event {key} is in the log {count} times" for key, count in keys.items() if count > 1]


def no_fault_logged(world: FaultWorld, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    return [f"the daemon's log: {line}" for line in world.new_log_text().splitlines() if LOGGED_FAULT.search(line)]


def user_work_is_untouched(world: FaultWorld, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    """Check that the person's commits, branches, stashes, tags and files in the repository are unchanged."""
    user, wrong = world.user, []
    refs = dict(
        line.split(" ", 1)[::-1]
        for line in evidence.git(world, "for-each-ref", "--format=%(objectname) %(refname)").splitlines()
    )
    for branch, commit in user.commits.items():
        now = refs.get(f"refs/heads/{branch}")
        if branch == "main":
            if now is None or not world.contains(commit, now):
                wrong.append(f"the user's commit {commit} is not on main any more ({now})")
        elif now != commit:
            wrong.append(f"the user's branch {branch} is at {now}, not at {commit}")
    for tag, commit in user.tags.items():
        if refs.get(f"refs/tags/{tag}") != commit:
            wrong.append(f"the user's tag {tag} is at {refs.get(f'refs/tags/{tag}')}, not at {commit}")
    stashes = evidence.git(world, "stash", "list", "--format=%H").split()
    wrong += [f"the user's stash {stash} is gone" for stash in user.stashes if stash not in stashes]
    for name, text in user.files.items():
        if _read_text(world.box.repo / name) != text:
            wrong.append(f"the user's file {name} is another")
    changed = evidence.git(world, "status", "--porcelain", "--untracked-files=no")
    return wrong + ([f"the user's checkout is changed: {changed!r}"] if changed else [])


def merged_as_checked(world: FaultWorld, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    """Check that every merged commit has exactly the content that was checked, and was merged once."""
    if world.style != "local":
        return []
    trees = set(world.checked.read_text().split()) if world.checked.exists() else set()
    wrong, titles = [], Counter[str]()
    for line in evidence.git(world, "log", "--first-parent", "--format=%H %T %s", "main").splitlines():
        commit, tree, subject = line.split(" ", 2)
        if subject == "start" or subject.startswith("by user-"):
            continue
        titles[subject] += 1
        if tree not in trees:
            wrong.append(f"{commit} {subject!r} landed, and its content was never checked")
    return wrong + [f"{subject!r} landed {times} times" for subject, times in titles.items() if times > 1]


def forge_agrees(world: FaultWorld, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    """Check the forge's record: one pull request per branch, opened and merged once at a checked commit; no repeated pushes or comments."""
    if world.forge is None:
        return []
    forge, wrong = world.forge, []
    pulls = forge.ask("pull_records")
    pulls_per_branch = Counter(pull["branch"] for pull in pulls)
    wrong += [f"{branch} has {times} pull requests" for branch, times in pulls_per_branch.items() if times > 1]
    for pull in pulls:
        if pull["merged"] and pull["passed"] is not True:
            wrong.append(
                f"#{pull['number']} was merged at {pull['landed']}, whose checks did not pass ({pull['passed']})"
            )
        if pull["merged"] and not pull["named"] == pull["landed"] != "":
            wrong.append(f"#{pull['number']} was merged at {pull['landed']!r}, and the request named {pull['named']!r}")
        if pull["merged"] and pull["number"] not in world.merge_requested and not pull["approved"]:
            wrong.append(f"#{pull['number']} was merged, and nobody had approved it or asked for that")
        wrong += [
            f"#{pull['number']}: {text!r} was said {n} times" for text, n in Counter(pull["comments"]).items() if n > 1
        ]
    counts = Counter(record[:4] for record in forge.ask("record"))
    for (event, action, number, who), times in counts.items():
        if event == "pull_request" and action in ("opened", "ready_for_review", "closed") and times > 1:
            wrong.append(f"{action} #{number} by {who} happened {times} times")
    pushes = Counter((ref, after) for ref, _, after in forge.ask("pushes") if after != NO_COMMIT)
    wrong += [f"{after} was pushed to {ref} {times} times" for (ref, after), times in pushes.items() if times > 1]
    return wrong + [f"inside the forge: {fault}" for fault in forge.ask("faults")]


def comments_are_delivered(world: FaultWorld, sessions: Sessions, truth: list[Any]) -> list[str]:
    """Check that comments at the forge reach the agent."""
    wrong = []
    received = [message["text"] for message in truth if message["event"] == "message"]
    for mark, session in world.accepted.comments.items():
        times = sum(f"Why {mark}?" in text for text in received)
        session_state = sessions.get(session, {})
        if (
            times == 0
            and session_state.get("pid") is not None
            and session_state["pr"]
            and session_state["pr"]["state"] == "open"
        ):
            sent = world.box.request("GET", f"/api/sessions/{session}/messages")["messages"]
            if not any(f"Why {mark}?" in message["content"] for message in sent):
                wrong.append(f"the comment {mark} never reached {session} ({session_state['status']})")
    return wrong


def _leftover_files(world: FaultWorld, live: set[str]) -> list[str]:
    home = world.box.home.path
    return [
        str(path.relative_to(home))
        for path in home.glob("sessions/*/*")
        if path.name.startswith(TEMPORARY_PREFIXES) and path.parent.name not in live
    ]


def nothing_left_behind(world: FaultWorld, sessions: Sessions, _truth: list[Any]) -> list[str]:
    """Check that there is no lock, no file with a message or environment, and no worktree without a session."""
    box = world.box
    wrong = []
    if locks := [str(path) for path in (box.repo / ".git").rglob("*.lock")]:
        wrong.append(f"locks: {locks}")
    live = {session for session, now in sessions.items() if now["pid"] is not None}
    deadline = time.monotonic() + RECOVERY_SECONDS
    while (litter := _leftover_files(world, live)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if litter:
        wrong.append(f"files with secrets or messages: {litter}")
    workspaces = {now["workspacePath"] for now in sessions.values() if now["workspacePath"]} | {str(box.repo)}
    lines = evidence.git(world, "worktree", "list", "--porcelain").splitlines()
    worktrees = {line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")}
    if unowned := worktrees - workspaces:
        wrong.append(f"worktrees that no session has: {sorted(unowned)}")
    if (
        unregistered := {workspace for workspace in workspaces if not workspace.startswith(str(box.folder / "clone"))}
        - worktrees
    ):
        wrong.append(f"workspaces that Git does not know: {sorted(unregistered)}")
    links = [str(path) for path in box.repo.glob(".worktrees/*") if path.is_symlink() and not path.exists()]
    return wrong + ([f"links to nowhere: {links}"] if links else [])


Rule = Callable[[FaultWorld, Sessions, list[Any]], list[str]]
RULES: dict[str, Rule] = {
    "work is never lost": work_is_never_lost,
    "one daemon": one_daemon,
    "states are true": states_are_true,
    "messages once": messages_once,
    "dialogs untouched": dialogs_untouched,
    "the log is whole": log_is_whole,
    "no fault logged": no_fault_logged,
    "the user's own": user_work_is_untouched,
    "landed as checked": merged_as_checked,
    "the forge agrees": forge_agrees,
    "comments heard": comments_are_delivered,
    "nothing left behind": nothing_left_behind,
}
