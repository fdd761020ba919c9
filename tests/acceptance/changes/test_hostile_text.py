"""Hostile text, sent to every input of the local forge, is treated as text everywhere.

One daemon, an agent that records every byte it gets, and all texts of `tests/corpus`. The author is trusted here: the tests are
about what the text can do, not about whether it is delivered.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import AoError
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.acceptance.session_states import TIMEOUT

CORPUS = Path(__file__).parents[2] / "corpus"
TEXTS: dict[str, str] = {
    entry["name"]: entry["text"] for entry in map(json.loads, (CORPUS / "strangers.jsonl").read_text().splitlines())
}
NAMES: list[str] = json.loads((CORPUS / "names.json").read_text())
CONFIG = """
defaults: {{agent: recorder, runtime: process}}
trustedAuthors: [mallory]
ci: {{command: cat {corpus}; exit 1}}
agents:
  recorder:
    tool: command
    prompt: argument
    command: [{python}, {agent}, {corpus}, {folder}/argument, "{{{{prompt}}}}", "{{{{branch}}}}"]
  typed: {{tool: command, command: [{python}, {agent}, {corpus}, {folder}/typed], prompt: paste}}
  told: {{tool: command, command: [{python}, {agent}, {corpus}, {folder}/told], prompt: file}}
  tmux: {{tool: command, runtime: tmux, command: [{python}, {agent}, {corpus}, {folder}/tmux], prompt: paste}}
reactions:
  issue-comment: {{action: send-to-agent, message: "{{{{author}}}} says on {{{{title}}}} {{{{labels}}}}:\\n{{{{comment}}}}"}}
  label-added: {{action: send-to-agent, message: "labelled {{{{label}}}}"}}
"""
TMUX = ["tmux"] if have_tmux() else []
SAFE = re.compile(r"[A-Za-z0-9._+@=-]+")
UNSEEN = "\u200b\u200e\u200f\u2060\ufeff\u00ad\u061c\u3164\u115f\uffa0\u034f\u2028\u2029"


def control_characters(text: str) -> list[str]:
    """Return the control, direction and invisible characters of a text, except line feeds and tabs."""
    characters = [char for char in text if char not in "\n\t" and (ord(char) < 32 or 0x7F <= ord(char) < 0xA0)]
    characters += [
        char for char in text if char in UNSEEN or 0x202A <= ord(char) <= 0x202E or 0x2061 <= ord(char) <= 0x206F
    ]
    return characters + [char for char in text if 0xE0000 <= ord(char) <= 0xE0FFF or 0xD800 <= ord(char) <= 0xDFFF]


@dataclass
class Stage:
    """The daemon after all texts were sent."""

    box: Sandbox
    folder: Path
    sessions: list[str]
    before: set[Path]

    def launch(self, agent: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.folder / agent / "launch.json").read_text())
        return record

    def typed(self, agent: str) -> bytes:
        return (self.folder / agent / "terminal").read_bytes()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Sandbox(tmp_path_factory.mktemp("strangers")) as box:
        folder = box.folder / "recorded"
        folder.mkdir()
        box.repository()
        corpus = CORPUS / "strangers.jsonl"
        values = {"corpus": corpus, "python": sys.executable, "agent": CORPUS / "recorder.py", "folder": folder}
        (box.repo / "agent-orchestrator.yaml").write_text(CONFIG.format(**values))
        box.start()
        before = all_paths(box.folder)
        yield Stage(box, folder, send_all_texts(box, folder), before)


def all_paths(folder: Path) -> set[Path]:
    """Return all files and folders below a folder, which may change meanwhile."""
    return {Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files)}


def send_all_texts(box: Sandbox, folder: Path) -> list[str]:
    """Send every text to every input of the local forge and return the ids of the sessions."""
    stranger = {"author": "mallory \x1b[31m\u202e", "writeAccess": "no"}
    body = "\n\n".join(TEXTS[name] for name in TEXTS if not name.startswith(("long", "many", "lone")))
    first = box.request("POST", "/api/issues", {"title": "The issue", "body": body, "labels": ["x"], **stranger})[
        "number"
    ]
    agents = ["recorder", "typed", "told", *TMUX]
    sessions = [
        box.request("POST", "/api/sessions", {"issue": str(first), "agent": agent, "name": agent})["id"]
        for agent in agents
    ]
    for name, text in TEXTS.items():
        line = text[:150].strip() or name
        try_request({"title": line, "body": text, "labels": [line[:40]], "author": line[:60]}, box, "/api/issues")
    for agent in ("argument", *agents[1:]):
        box.wait_until((folder / agent / "launch.json").exists, f"{agent} to run", TIMEOUT)
    for batch in text_batches():
        try_request({"body": batch, "author": "mallory", "writeAccess": "no"}, box, f"/api/issues/{first}/comments")
        try_request({"labels": [batch[:40]]}, box, f"/api/issues/{first}/labels")
        for session in ("typed", *TMUX):
            try_request({"content": batch}, box, f"/api/sessions/app-{session}/message")
    for name in NAMES:
        created = try_request({"title": "x", "defer": True, "name": name}, box, "/api/sessions")
        sessions += [created["id"]] if created else []
    box.wait_until(lambda: box.session("app-told")["pr"], "its pull request", TIMEOUT)
    comments = [{"path": f"file {text[:30]}", "line": 1, "body": text[:5000]} for text in TEXTS.values()]
    reviewer = {"author": TEXTS["csi-colours-and-cursor"], "writeAccess": "yes"}
    try_request({"verdict": "comment", "comments": comments, **reviewer}, box, "/api/sessions/app-told/review")
    for batch in text_batches():
        try_request({"verdict": "request-changes", "body": batch, **reviewer}, box, "/api/sessions/app-told/review")
    for session in ("typed", *TMUX):
        box.wait_until(partial(has_no_queued_messages, box, f"app-{session}"), f"{session} to have everything", TIMEOUT)
    return sessions


def try_request(body: dict[str, Any], box: Sandbox, path: str) -> dict[str, Any]:
    """Return the answer to a POST request, or an empty dict if it was refused."""
    with contextlib.suppress(AoError):
        created: dict[str, Any] = box.request("POST", path, body)
        return created
    return {}


def text_batches() -> list[str]:
    """Return all texts joined into five batches, each of which begins with another kind."""
    texts = list(TEXTS.values())
    return ["\n".join(text[:2000] for text in texts[number::5]) for number in range(5)]


def has_no_queued_messages(box: Sandbox, session: str) -> bool:
    messages = box.request("GET", f"/api/sessions/{session}/messages")["messages"]
    return bool(messages) and not [message for message in messages if message["state"] == "queued"]


def complete_log(log: bytes) -> bytes:
    """Return what an agent recorded of its terminal, or b"" if it is incomplete."""
    is_complete = log.count(b"\x1b[200~") == log.count(b"\x1b[201~") > 8 and log.endswith((b"\x1b[201~", b"\r"))
    return log if is_complete else b""


@pytest.mark.parametrize("agent", ["typed", *TMUX])
def test_a_terminal_gets_text_only_between_paste_brackets(stage: Stage, agent: str) -> None:
    log = stage.box.wait_until(lambda: complete_log(stage.typed(agent)), "the complete log", TIMEOUT)
    outside = re.sub(rb"\x1b\[200~(.*?)\x1b\[201~\r?", b"", log, flags=re.DOTALL)
    assert outside.strip(b"\r") == b"", outside[:200]
    for inside in re.findall(rb"\x1b\[200~(.*?)\x1b\[201~", log, re.DOTALL):
        assert control_characters(inside.decode().replace("\r", "\n")) == [], inside[:200]


def test_text_stays_one_argument_and_does_not_reach_the_environment(stage: Stage) -> None:
    launch = stage.launch("argument")
    prompt, branch = launch["argv"]
    assert branch == "feature/issue-1" and control_characters(prompt) == []
    assert "{{7*7}}" in prompt and "${HOME}" in prompt and "$(touch CANARY)" in prompt, "no template is rendered"
    typed = stage.launch("typed")
    assert set(launch["env"]) == set(typed["env"])
    assert "/evil" not in launch["env"]["PATH"] and "LD_PRELOAD" not in launch["env"]
    for name, value in launch["env"].items():
        assert "touch CANARY" not in value, name


def test_untrusted_text_is_quoted_line_by_line_and_attributed(stage: Stage) -> None:
    prompt = stage.launch("argument")["argv"][0]
    task, _, _ = prompt.partition("(A comment is left out")
    head, _, quoted = task.partition(" wrote:\n")
    assert head.splitlines()[0] == "Issue 1: The issue" and "mallory" in head
    unquoted = [line for line in quoted.splitlines() if line and not line.startswith(">")]
    assert all(
        line.startswith(("You are", "- ", "mallory added:", "Work only")) or " added:" in line for line in unquoted
    ), unquoted[:5]
    for message in stage.box.request("GET", "/api/sessions/app-typed/messages")["messages"]:
        if message["sender"] == "rule issue-comment":
            quoted_text = message["content"].partition(":\n")[2]
            assert all(line.startswith(">") for line in quoted_text.splitlines() if line), quoted_text[:200]


def test_no_text_was_executed_and_no_file_or_ref_has_an_unsafe_name(stage: Stage) -> None:
    box = stage.box
    paths = all_paths(box.folder)
    assert not [path for path in paths if path.name == "CANARY"] and not Path("CANARY").exists()
    workspaces = {Path(item["workspacePath"]) for item in box.sessions() if item["workspacePath"]}
    for path in paths - stage.before:
        is_ours = not any(path.is_relative_to(workspace) for workspace in workspaces) and ".git" not in path.parts
        assert not is_ours or SAFE.fullmatch(path.name), path
    for ref in box.git("for-each-ref", "--format=%(refname)").splitlines():
        assert re.fullmatch(r"refs/(heads|ao)/[A-Za-z0-9._/-]+", ref) and ".." not in ref, ref
    for session in stage.sessions:
        assert SAFE.fullmatch(session), session


def test_events_and_notifications_contain_only_plain_text(stage: Stage) -> None:
    box = stage.box
    for event in box.request("GET", "/api/events?limit=1000&after=0")["events"]:
        if event["type"] not in ("agent-output", "permission-asked"):
            data = {key: value for key, value in event["data"].items() if key != "path"}  # a file's name is what it is
            assert control_characters(json.dumps(data, ensure_ascii=False)) == [], event
    for notice in box.request("GET", "/api/notifications")["notifications"]:
        assert control_characters(notice["title"] + notice["message"]) == [], notice
        assert "\n" not in notice["title"]


COMMANDS = [
    *(["status"], ["status", "app-told"], ["why", "app-told"], ["logs", "app-told"], ["logs", "app-typed"], ["events"]),
    *(["events", "app-told"], ["issues"], ["issue", "show", "1"], ["issue", "show", "2"], ["review", "app-told"]),
    *(
        ["checks", "app-told"],
        ["answer", "--json"],
        ["queue"],
        ["conflicts"],
        ["diff", "app-told"],
        ["backlog"],
        ["usage"],
    ),
    *(["permissions"], ["projects"], ["agents"], ["plugins"], ["new", "--agent", "x\x1b[31m\u202ey", "t"]),
    *(["status", "\x1b]52;c;AAAA\x07"], ["reactions", "list"], ["trust"], ["path", "app-told"], ["why", "app-typed"]),
]


@pytest.mark.parametrize("argv", COMMANDS, ids=lambda argv: ascii(" ".join(argv)))
def test_command_output_contains_no_terminal_control_sequences(stage: Stage, argv: list[str]) -> None:
    output = run_on_terminal(stage.box, argv)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output.replace("\r\n", "\n"))
    assert control_characters(plain) == [], repr(plain[:400])


def run_on_terminal(box: Sandbox, argv: list[str]) -> str:
    """Return what a command prints on a terminal, including the line endings that the terminal adds."""
    master, slave = pty.openpty()
    env = {**box.env, "TERM": "xterm-256color", "PAGER": "cat", "GIT_PAGER": "cat", "COLUMNS": "100"}
    command = [sys.executable, "-m", "agent_orchestrator", *argv]
    process = subprocess.Popen(command, cwd=box.repo, env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    output = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO
            break
        if not data:
            break
        output += data
    os.close(master)
    process.wait(60)
    return output.decode(errors="surrogateescape")
