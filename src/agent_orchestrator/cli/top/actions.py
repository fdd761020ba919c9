"""What a key does to a session: one request each, and one line that says what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import session_path
from agent_orchestrator.cli.sessions.control import STOP_TIMEOUT
from agent_orchestrator.cli.top.layout import lines_of
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError

_RED = ("failure", "timed_out", "cancelled")


def send(ao: Client, session: str, text: str) -> str:
    """A message to its agent."""
    sent = ao.post(session_path(session, "/message"), {"content": text, "interrupt": False})
    return f"{session}: message {sent['state']}"


def answer(ao: Client, session: str, question: Mapping[str, Any], decision: str, text: str) -> str:
    """An answer to the question that was shown, and to nothing that is asked since."""
    which = {key: question.get(key) for key in ("message", "offer", "request")}
    body = {key: value for key, value in {"decision": decision, "text": text, **which}.items() if value}
    given = ao.post(session_path(session, "/answer"), body)
    return f"{session}: {decision or 'answered'} ({given.get('state')})"


def review(ao: Client, session: str, verdict: str, text: str) -> str:
    """A judgement on its change."""
    found = ao.post(session_path(session, "/review"), {"verdict": verdict, "body": text, "comments": []})
    return f"{session} #{found['number']}: {verdict.replace('_', ' ')}"


def merge(ao: Client, session: str) -> str:
    """Let its change land; it is told by the board when it has."""
    found = ao.post(session_path(session, "/merge"), {"wait": False})
    waits = out.one_line(found.get("waitingFor") or "")
    return (
        f"{session}: {found['status']}" if found["status"] == "merged" or not waits else f"{session} waits for {waits}"
    )


def stop(ao: Client, session: str) -> str:
    """Save what is unsaved and stop it."""
    done = ao.request("DELETE", session_path(session), timeout=STOP_TIMEOUT).json()
    saved = "; ".join(out.one_line(line) for line in done.get("saved") or ())
    return f"{session} {done['session']['status']}; undo: {done.get('undo')}{f'; {saved}' if saved else ''}"


def restore(ao: Client, session: str) -> str:
    """Bring it back."""
    found = ao.post(session_path(session, "/restore"), timeout=STOP_TIMEOUT)
    return f"{session}: {found['status']}"


def open_window(session: str) -> str:
    """Show it in a window of its own, by `ao open`."""
    done = subprocess.run(command("open", session), capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise AoError(_last(done.stderr) or f"ao open ended with {done.returncode}")
    return _last(done.stdout) or f"{session}: opened"


def command(*argv: str) -> list[str]:
    """`ao` itself."""
    return [sys.executable, "-P", "-m", "agent_orchestrator", *argv]


def here(argv: Sequence[str], no_color: bool) -> str:
    """Run a command on this very terminal; what it says went wrong, or nothing."""
    env = os.environ | ({"NO_COLOR": "1"} if no_color else {})
    done = subprocess.run(argv, env=env, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    return (_last(done.stderr) or f"it ended with {done.returncode}") if done.returncode else ""


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return out.one_line(lines[-1]).removeprefix("ao: ") if lines else ""


def change(ao: Client, session: str) -> list[tuple[str, str]]:
    """A session's change as lines, each with its style: how its pull request stands, and the diff."""
    found = ao.get(session_path(session, "/diff"), timeout=120.0)
    try:
        lines = _pull_lines(ao.get(session_path(session, "/review")))
    except AoError:  # it has no pull request yet
        lines = []
    if uncommitted := found.get("uncommitted"):
        lines.append((f"not committed yet: {', '.join(map(out.one_line, uncommitted))}", "yellow"))
    if omitted := found.get("omitted"):
        lines.append((f"too large to be shown: {', '.join(map(out.one_line, omitted))}", "yellow"))
    lines += [(line, "") for line in lines_of(found["stat"])]
    lines += [("", "")] if lines else []
    shown = [(line, _style(line)) for line in lines_of(out.seen(found["diff"]))]
    return [*lines, *shown] if shown else [*lines, ("No change yet.", "")]


def _style(line: str) -> str:
    starts = {"+++": "bold", "---": "bold", "diff": "bold", "@@": "cyan", "+": "green", "-": "red"}
    return next((style for start, style in starts.items() if line.startswith(start)), "")


def _pull_lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    head = f"#{found['number']} {out.one_line(found['title'])}"
    state = f"{found['state']}, onto {found['base']}, review {found['review']}, mergeable {found['mergeable']}"
    lines = [(head, "bold"), (out.one_line(state), "")]
    lines += [(f"conflicts in {out.one_line(', '.join(found['conflicts']))}", "red")] if found["conflicts"] else []
    lines += [(f"did not land: {out.one_line(found['refused'])}", "red")] if found["refused"] else []
    for each in found["checks"]:
        lines.append((f"check {out.one_line(each['name'])}: {each['state']}", "red" if each["state"] in _RED else ""))
    for each in found["reviews"]:
        lines.append((f"{out.author(each)} {each['verdict'].replace('_', ' ')}", "bold"))
        lines += _quoted(each["body"])
    for thread in found["threads"]:
        where = f"{thread['path']}:{thread['line']}" if thread["line"] else thread["path"] or "the whole"
        lines.append((f"on {out.one_line(where)}{' (resolved)' if thread['resolved'] else ''}", "bold"))
        for each in thread["comments"]:
            lines += [(f"  {out.author(each)}:", ""), *_quoted(each["body"])]
    return [*lines, ("", "")]


def _quoted(text: str) -> list[tuple[str, str]]:
    return [(f"  | {line}", "") for line in lines_of(text)]
