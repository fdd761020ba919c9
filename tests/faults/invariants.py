"""What must hold after every round, checked against independent evidence. Each returns what is wrong, in words."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import evidence
from tests.faults.play import World

FINAL = {"delivered", "acknowledged", "failed"}
OVER = {"stopped", "failed", "merged", "closed", "exited", "interrupted"}
LITTER = ("launch.", "spec.", "message.")
"""What a terminal is started with, and what is to be typed into it: meant for one reading."""
SOON = 3.0
"""Seconds in which what could not be written is, and what could not be removed is gone, once the disk can be written again."""
FAULTS = re.compile(r"Traceback|unexpectedly|level=error|\bERROR\b")
ZERO = "0" * 40

Sessions = dict[str, Any]


def check(world: World) -> list[str]:
    """Everything that is wrong."""
    until = time.monotonic() + SOON
    while states_are_true(world, sessions := _shown(world), evidence.truth(world)) and time.monotonic() < until:
        time.sleep(0.1)  # an end that could not be recorded at first is told a second later
    truth = evidence.truth(world)
    wrong: list[str] = []
    for name, rule in RULES.items():
        wrong += [f"{name}: {line}" for line in rule(world, sessions, truth)]
    return wrong


def _shown(world: World) -> Sessions:
    return {one["id"]: one for one in world.box.sessions()}


def work_is_never_lost(world: World, sessions: Sessions, truth: list[Any]) -> list[str]:
    """What an agent wrote or committed is in its workspace, on its branch, on the base, or under a ref of ours."""
    wrong = [f"{session} was accepted and is gone" for session in world.known.sessions if session not in sessions]
    refs = evidence.git(world, "for-each-ref", "--format=%(refname)").split()
    written = {(one["session"], one["path"]): one["text"] for one in truth if one["event"] == "wrote"}
    places: dict[tuple[str, str], list[str]] = {}
    for (session, path), text in written.items():
        if path == "broken.txt":
            continue  # its agent removes it when told that it fails
        folder = sessions.get(session, {}).get("workspacePath")
        if folder and _text(Path(folder) / path) == f"{text}\n":
            continue
        branch = sessions.get(session, {}).get("branch")
        near = {f"refs/heads/{branch}", f"refs/remotes/origin/{branch}", "refs/heads/main", "refs/remotes/origin/main"}
        mine = [ref for ref in refs if ref in near or (ref.startswith("refs/ao/") and session in ref)]
        places[session, path] = [f"{ref}:{path}" for ref in mine]
    found = evidence.contents(world, [name for names in places.values() for name in names])
    for (session, path), names in places.items():
        if not any(found[name] == f"{written[session, path]}\n" for name in names):
            status = sessions.get(session, {}).get("status")
            wrong.append(f"{path} of {session} ({status}) is neither in its workspace nor in any of {names}")
    subjects = set(evidence.git(world, "log", "--all", "--format=%s%n%b").splitlines())
    for one in truth:
        if one["event"] == "committed" and one["subject"].startswith("commit mark"):
            landed = any(one["subject"] in line for line in subjects)
            if not landed and not _content_landed(world, one["subject"].removeprefix("commit "), written):
                wrong.append(f"{one['subject']!r} of {one['session']} is in no history")
    return wrong


def _content_landed(world: World, mark: str, written: dict[tuple[str, str], str]) -> bool:
    """A landing makes one commit of many: then what was written is on the base."""
    mine = {path: text for (_, path), text in written.items() if path.startswith(f"{mark}.")}
    found = evidence.contents(world, [f"{ref}:{path}" for path in mine for ref in ("main", "origin/main")])
    return bool(mine) and any(
        found[f"{ref}:{path}"] == f"{text}\n" for path, text in mine.items() for ref in ("main", "origin/main")
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def one_daemon(world: World, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    live = world.launcher.live()
    return [] if len(live) == 1 else [f"{len(live)} daemons run: {live}"]


def states_are_true(world: World, sessions: Sessions, _truth: list[Any]) -> list[str]:
    wrong = []
    agents = evidence.agents(world)
    for session, pids in agents.items():
        now = sessions.get(session, {})
        if len(pids) > 1:
            wrong.append(f"{session} has {len(pids)} agents at once: {pids}")
        if now.get("pid") not in pids:
            wrong.append(f"{session}: agent {pids} lives, but {now.get('pid')} is shown ({now.get('status')})")
    for session, now in sessions.items():
        if now["pid"] is not None and session not in agents:
            wrong.append(f"{session} is shown with pid {now['pid']} ({now['status']}), but no agent of it lives")
        if now["status"] == "stopped" and session in agents:
            wrong.append(f"{session} is {now['status']}, but its agent lives")
        if now["status"] == "merged" and session in agents and session not in world.known.restored:
            wrong.append(f"{session} is merged, and its agent lives although nobody restored it")
        if now["workspacePath"] and not Path(now["workspacePath"]).is_dir():
            wrong.append(f"{session}: its workspace {now['workspacePath']} is not there")
    return wrong


def messages_once(world: World, sessions: Sessions, _truth: list[Any]) -> list[str]:
    """At most once to the agent; acknowledged means exactly once; what lives leaves none waiting."""
    wrong = []
    listed = {one: world.box.request("GET", f"/api/sessions/{one}/messages")["messages"] for one in sessions}
    # Read after what is shown: an agent may take a message up in between, but not give it back.
    truth = evidence.truth(world)
    heard = Counter(one.get("id") for one in truth if one["event"] == "message" and one.get("id"))
    hearers = {one["id"]: one["pid"] for one in truth if one["event"] == "message" and one.get("id")}
    agents = {pid for pids in evidence.agents(world).values() for pid in pids}
    for message, times in heard.items():
        if times > 1:
            wrong.append(f"message {message} was received {times} times")
    shown: dict[str, Any] = {}
    for session in sessions:
        for one in listed[session]:
            shown[one["messageId"]] = one
            live = sessions[session]["pid"] is not None and sessions[session]["status"] not in (
                "needs_input",
                "blocked",
            )
            if one["state"] == "acknowledged" and heard[one["messageId"]] != 1:
                wrong.append(
                    f"{one['messageId']} counts as acknowledged, but was received {heard[one['messageId']]} times"
                )
            elif heard[one["messageId"]] and one["state"] == "failed" and not _doubted(one, hearers, agents):
                wrong.append(f"{one['messageId']} counts as failed ({one['reason']}), but was received")
            elif live and one["state"] not in FINAL and one["messageId"] in world.known.messages:
                wrong.append(f"{one['messageId']} to {session} is still {one['state']} although its agent lives")
    wrong += [
        f"{message} to {to} was accepted and is not known"
        for message, to in world.known.messages.items()
        if message not in shown
    ]
    return wrong


def _doubted(message: Any, hearers: dict[str, int], agents: set[int]) -> bool:
    """The agent that heard it died before it could say so, and the reason says that it may have been heard."""
    return "send it again if it was not" in message["reason"] and hearers[message["messageId"]] not in agents


def dialogs_untouched(_world: World, _sessions: Sessions, truth: list[Any]) -> list[str]:
    """Nothing but a decision is ever typed into a permission dialog."""
    return [f"{one['session']} got {one['text']!r} into its dialog" for one in truth if one["event"] == "dialog-input"]


def log_is_whole(world: World, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    events: list[Any] = []
    while page := world.box.request("GET", f"/api/events?after={events[-1]['seq'] if events else 0}&limit=1000")[
        "events"
    ]:
        events += page
    numbers = [event["seq"] for event in events]
    keys = Counter(event["key"] for event in events)
    wrong = [] if numbers == list(range(1, len(numbers) + 1)) else ["the event log has gaps"]
    before, world.events = world.events, [(one["seq"], one["key"]) for one in events]
    if world.events[: len(before)] != before:
        wrong.append("what was in the event log is another now")
    return wrong + [f"event {key} is in the log {count} times" for key, count in keys.items() if count > 1]


def no_fault_logged(world: World, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    return [f"the daemon's log: {line}" for line in world.news().splitlines() if FAULTS.search(line)]


def users_own(world: World, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    """Commits, branches, stashes, tags and files of the person in the same repository are as he left them."""
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
    wrong += [f"the user's stash {one} is gone" for one in user.stashes if one not in stashes]
    for name, text in user.files.items():
        if _text(world.box.repo / name) != text:
            wrong.append(f"the user's file {name} is another")
    changed = evidence.git(world, "status", "--porcelain", "--untracked-files=no")
    return wrong + ([f"the user's checkout is changed: {changed!r}"] if changed else [])


def landed_as_checked(world: World, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    """What came onto the base through us was checked, exactly so, and came once."""
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


def forge_agrees(world: World, _sessions: Sessions, _truth: list[Any]) -> list[str]:
    """By the forge's own record: one pull request a branch, opened and merged once, at a checked commit; nothing pushed or said twice."""
    if world.forge is None:
        return []
    forge, wrong = world.forge, []
    pulls = forge.ask("landings")
    of = Counter(one["branch"] for one in pulls)
    wrong += [f"{branch} has {times} pull requests" for branch, times in of.items() if times > 1]
    for one in pulls:
        if one["merged"] and one["passed"] is not True:
            wrong.append(f"#{one['number']} was merged at {one['landed']}, whose checks did not pass ({one['passed']})")
        if one["merged"] and not one["named"] == one["landed"] != "":
            wrong.append(f"#{one['number']} was merged at {one['landed']!r}, and the request named {one['named']!r}")
        if one["merged"] and one["number"] not in world.asked and not one["approved"]:
            wrong.append(f"#{one['number']} was merged, and nobody had approved it or asked for that")
        wrong += [
            f"#{one['number']}: {text!r} was said {n} times" for text, n in Counter(one["comments"]).items() if n > 1
        ]
    happened = Counter(told[:4] for told in forge.ask("record"))
    for (event, action, number, who), times in happened.items():
        if event == "pull_request" and action in ("opened", "ready_for_review", "closed") and times > 1:
            wrong.append(f"{action} #{number} by {who} happened {times} times")
    pushes = Counter((ref, after) for ref, _, after in forge.ask("pushes") if after != ZERO)
    wrong += [f"{after} was pushed to {ref} {times} times" for (ref, after), times in pushes.items() if times > 1]
    return wrong + [f"inside the forge: {fault}" for fault in forge.ask("faults")]


def comments_heard(world: World, sessions: Sessions, truth: list[Any]) -> list[str]:
    """What a person said at the forge reaches the agent."""
    wrong = []
    heard = [one["text"] for one in truth if one["event"] == "message"]
    for mark, session in world.known.comments.items():
        times = sum(f"Why {mark}?" in text for text in heard)
        now = sessions.get(session, {})
        if times == 0 and now.get("pid") is not None and now["pr"] and now["pr"]["state"] == "open":
            sent = world.box.request("GET", f"/api/sessions/{session}/messages")["messages"]
            if not any(f"Why {mark}?" in one["content"] for one in sent):
                wrong.append(f"the comment {mark} never reached {session} ({now['status']})")
    return wrong


def _litter(world: World, live: set[str]) -> list[str]:
    home = world.box.home.path
    return [
        str(path.relative_to(home))
        for path in home.glob("sessions/*/*")
        if path.name.startswith(LITTER) and path.parent.name not in live
    ]


def nothing_left_behind(world: World, sessions: Sessions, _truth: list[Any]) -> list[str]:
    """No lock, no file with a message or an environment, no worktree that no session has."""
    box = world.box
    wrong = []
    if locks := [str(path) for path in (box.repo / ".git").rglob("*.lock")]:
        wrong.append(f"locks: {locks}")
    live = {session for session, now in sessions.items() if now["pid"] is not None}
    until = time.monotonic() + SOON
    while (litter := _litter(world, live)) and time.monotonic() < until:
        time.sleep(0.1)
    if litter:
        wrong.append(f"files with secrets or messages: {litter}")
    shown = {now["workspacePath"] for now in sessions.values() if now["workspacePath"]} | {str(box.repo)}
    listed = evidence.git(world, "worktree", "list", "--porcelain").splitlines()
    known = {line.removeprefix("worktree ") for line in listed if line.startswith("worktree ")}
    if more := known - shown:
        wrong.append(f"worktrees that no session has: {sorted(more)}")
    if gone := {one for one in shown if not one.startswith(str(box.folder / "clone"))} - known:
        wrong.append(f"workspaces that Git does not know: {sorted(gone)}")
    links = [str(path) for path in box.repo.glob(".worktrees/*") if path.is_symlink() and not path.exists()]
    return wrong + ([f"links to nowhere: {links}"] if links else [])


Rule = Callable[[World, Sessions, list[Any]], list[str]]
RULES: dict[str, Rule] = {
    "work is never lost": work_is_never_lost,
    "one daemon": one_daemon,
    "states are true": states_are_true,
    "messages once": messages_once,
    "dialogs untouched": dialogs_untouched,
    "the log is whole": log_is_whole,
    "no fault logged": no_fault_logged,
    "the user's own": users_own,
    "landed as checked": landed_as_checked,
    "the forge agrees": forge_agrees,
    "comments heard": comments_heard,
    "nothing left behind": nothing_left_behind,
}
