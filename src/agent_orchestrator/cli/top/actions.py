"""Actions of the keys on a session: one request each, and one line with the result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import session_path
from agent_orchestrator.cli.sessions.control import STOP_TIMEOUT
from agent_orchestrator.cli.top.layout import clean_lines
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError

_FAILED_STATES = ("failure", "timed_out", "cancelled")


def send(ao: DaemonClient, session: str, text: str) -> str:
    """Send a message to the session's agent."""
    sent = ao.post(session_path(session, "/message"), {"content": text, "interrupt": False})
    return f"{session}: message {sent['state']}"


def answer(ao: DaemonClient, session: str, question: Mapping[str, Any], decision: str, text: str) -> str:
    """Answer exactly this question and none that was asked later."""
    identifiers = {key: question.get(key) for key in ("message", "offer", "request")}
    body = {key: value for key, value in {"decision": decision, "text": text, **identifiers}.items() if value}
    result = ao.post(session_path(session, "/answer"), body)
    return f"{session}: {decision or 'answered'} ({result.get('state')})"


def review(ao: DaemonClient, session: str, verdict: str, text: str) -> str:
    """Submit a review of the session's change."""
    pull_request = ao.post(session_path(session, "/review"), {"verdict": verdict, "body": text, "comments": []})
    return f"{session} #{pull_request['number']}: {verdict.replace('_', ' ')}"


def merge(ao: DaemonClient, session: str) -> str:
    """Put the session's change into the merge queue; the board shows when it is merged."""
    result = ao.post(session_path(session, "/merge"), {"wait": False})
    wait_text = out.one_line(result.get("waitingFor") or "")
    return (
        f"{session}: {result['status']}"
        if result["status"] == "merged" or not wait_text
        else f"{session} waits for {wait_text}"
    )


def stop(ao: DaemonClient, session: str) -> str:
    """Save unsaved work and stop the session."""
    result = ao.request("DELETE", session_path(session), timeout=STOP_TIMEOUT).json()
    saved = "; ".join(out.one_line(line) for line in result.get("saved") or ())
    return f"{session} {result['session']['status']}; undo: {result.get('undo')}{f'; {saved}' if saved else ''}"


def restore(ao: DaemonClient, session: str) -> str:
    """Restore the session."""
    session_data = ao.post(session_path(session, "/restore"), timeout=STOP_TIMEOUT)
    return f"{session}: {session_data['status']}"


def open_window(session: str) -> str:
    """Open the session in a new window by `ao open`."""
    result = subprocess.run(ao_command("open", session), capture_output=True, text=True, errors="replace", check=False)
    if result.returncode:
        raise AoError(_last_line(result.stderr) or f"ao open ended with {result.returncode}")
    return _last_line(result.stdout) or f"{session}: opened"


def ao_command(*argv: str) -> list[str]:
    """Return the command line that runs `ao` with these arguments."""
    return [sys.executable, "-P", "-m", "agent_orchestrator", *argv]


def run_here(argv: Sequence[str], no_color: bool) -> str:
    """Run a command on this terminal and return its error, or an empty string if it succeeded."""
    env = os.environ | ({"NO_COLOR": "1"} if no_color else {})
    result = subprocess.run(argv, env=env, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    return (_last_line(result.stderr) or f"it ended with {result.returncode}") if result.returncode else ""


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return out.one_line(lines[-1]).removeprefix("ao: ") if lines else ""


def change_lines(ao: DaemonClient, session: str) -> list[tuple[str, str]]:
    """Return a session's change as lines with styles: the state of its pull request, and the diff."""
    answer = ao.get(session_path(session, "/diff"), timeout=120.0)
    try:
        lines = _pull_request_lines(ao.get(session_path(session, "/review")))
    except AoError:  # it has no pull request yet
        lines = []
    if uncommitted := answer.get("uncommitted"):
        lines.append((f"not committed yet: {', '.join(map(out.one_line, uncommitted))}", "yellow"))
    if omitted := answer.get("omitted"):
        lines.append((f"too large to be shown: {', '.join(map(out.one_line, omitted))}", "yellow"))
    lines += [(line, "") for line in clean_lines(answer["stat"])]
    lines += [("", "")] if lines else []
    diff_lines = [(line, _style(line)) for line in clean_lines(out.reveal_hidden(answer["diff"]))]
    return [*lines, *diff_lines] if diff_lines else [*lines, ("No change yet.", "")]


def _style(line: str) -> str:
    starts = {"+++": "bold", "---": "bold", "diff": "bold", "@@": "cyan", "+": "green", "-": "red"}
    return next((style for start, style in starts.items() if line.startswith(start)), "")


def _pull_request_lines(pull_request: Mapping[str, Any]) -> list[tuple[str, str]]:
    head = f"#{pull_request['number']} {out.one_line(pull_request['title'])}"
    state = f"{pull_request['state']}, onto {pull_request['base']}, review {pull_request['review']}, mergeable {pull_request['mergeable']}"
    lines = [(head, "bold"), (out.one_line(state), "")]
    lines += (
        [(f"conflicts in {out.one_line(', '.join(pull_request['conflicts']))}", "red")]
        if pull_request["conflicts"]
        else []
    )
    lines += [(f"did not land: {out.one_line(pull_request['refused'])}", "red")] if pull_request["refused"] else []
    for item in pull_request["checks"]:
        lines.append(
            (f"check {out.one_line(item['name'])}: {item['state']}", "red" if item["state"] in _FAILED_STATES else "")
        )
    for item in pull_request["reviews"]:
        lines.append((f"{out.author_text(item)} {item['verdict'].replace('_', ' ')}", "bold"))
        lines += _quote(item["body"])
    for thread in pull_request["threads"]:
        location = f"{thread['path']}:{thread['line']}" if thread["line"] else thread["path"] or "the whole"
        lines.append((f"on {out.one_line(location)}{' (resolved)' if thread['resolved'] else ''}", "bold"))
        for item in thread["comments"]:
            lines += [(f"  {out.author_text(item)}:", ""), *_quote(item["body"])]
    return [*lines, ("", "")]


def _quote(text: str) -> list[tuple[str, str]]:
    return [(f"  | {line}", "") for line in clean_lines(text)]
