"""Text of strangers, sent in wherever text comes in: it comes out nowhere as anything but text.

One daemon, an agent that writes down every byte that it gets, and the texts of `tests/corpus`, all at once. What a stranger says is
let through by a person here: the question is what the words can do, not whether they arrive.
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
from tests.acceptance.session_states import PLENTY

CORPUS = Path(__file__).parents[2] / "corpus"
TEXTS: dict[str, str] = {
    one["name"]: one["text"] for one in map(json.loads, (CORPUS / "strangers.jsonl").read_text().splitlines())
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


def unclean(text: str) -> list[str]:
    """What of a text is no text: controls but line feeds and tabs, directions, what is invisible."""
    found = [char for char in text if char not in "\n\t" and (ord(char) < 32 or 0x7F <= ord(char) < 0xA0)]
    found += [char for char in text if char in UNSEEN or 0x202A <= ord(char) <= 0x202E or 0x2061 <= ord(char) <= 0x206F]
    return found + [char for char in text if 0xE0000 <= ord(char) <= 0xE0FFF or 0xD800 <= ord(char) <= 0xDFFF]


@dataclass
class Stage:
    """The daemon after everything was said."""

    box: Sandbox
    folder: Path
    sessions: list[str]
    before: set[Path]

    def launch(self, agent: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / agent / "launch.json").read_text())
        return found

    def typed(self, agent: str) -> bytes:
        return (self.folder / agent / "terminal").read_bytes()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Sandbox(tmp_path_factory.mktemp("strangers")) as box:
        folder = box.folder / "recorded"
        folder.mkdir()
        box.repository()
        corpus = CORPUS / "strangers.jsonl"
        given = {"corpus": corpus, "python": sys.executable, "agent": CORPUS / "recorder.py", "folder": folder}
        (box.repo / "agent-orchestrator.yaml").write_text(CONFIG.format(**given))
        box.start()
        before = everything(box.folder)
        yield Stage(box, folder, say_everything(box, folder), before)


def everything(folder: Path) -> set[Path]:
    """All files and folders below one in which others are at work."""
    return {Path(each, name) for each, folders, files in os.walk(folder) for name in (*folders, *files)}


def say_everything(box: Sandbox, folder: Path) -> list[str]:
    """Every text through every inlet of the local forge."""
    stranger = {"author": "mallory \x1b[31m\u202e", "writeAccess": "no"}
    whole = "\n\n".join(TEXTS[name] for name in TEXTS if not name.startswith(("long", "many", "lone")))
    first = box.request("POST", "/api/issues", {"title": "The issue", "body": whole, "labels": ["x"], **stranger})[
        "number"
    ]
    agents = ["recorder", "typed", "told", *TMUX]
    sessions = [
        box.request("POST", "/api/sessions", {"issue": str(first), "agent": agent, "name": agent})["id"]
        for agent in agents
    ]
    for name, text in TEXTS.items():
        line = text[:150].strip() or name
        said({"title": line, "body": text, "labels": [line[:40]], "author": line[:60]}, box, "/api/issues")
    for agent in ("argument", *agents[1:]):
        box.until((folder / agent / "launch.json").exists, f"{agent} to run", PLENTY)
    for some in batched():
        said({"body": some, "author": "mallory", "writeAccess": "no"}, box, f"/api/issues/{first}/comments")
        said({"labels": [some[:40]]}, box, f"/api/issues/{first}/labels")
        for session in ("typed", *TMUX):
            said({"content": some}, box, f"/api/sessions/app-{session}/message")
    for name in NAMES:
        made = said({"title": "x", "defer": True, "name": name}, box, "/api/sessions")
        sessions += [made["id"]] if made else []
    box.until(lambda: box.session("app-told")["pr"], "its pull request", PLENTY)
    comments = [{"path": f"file {text[:30]}", "line": 1, "body": text[:5000]} for text in TEXTS.values()]
    who = {"author": TEXTS["csi-colours-and-cursor"], "writeAccess": "yes"}
    said({"verdict": "comment", "comments": comments, **who}, box, "/api/sessions/app-told/review")
    for some in batched():
        said({"verdict": "request-changes", "body": some, **who}, box, "/api/sessions/app-told/review")
    for session in ("typed", *TMUX):
        box.until(partial(settled, box, f"app-{session}"), f"{session} to have everything", PLENTY)
    return sessions


def said(body: dict[str, Any], box: Sandbox, path: str) -> dict[str, Any]:
    """What came of it; nothing where it was refused."""
    with contextlib.suppress(AoError):
        made: dict[str, Any] = box.request("POST", path, body)
        return made
    return {}


def batched() -> list[str]:
    """All texts in a few, each of which begins with another kind."""
    texts = list(TEXTS.values())
    return ["\n".join(one[:2000] for one in texts[number::5]) for number in range(5)]


def settled(box: Sandbox, session: str) -> bool:
    found = box.request("GET", f"/api/sessions/{session}/messages")["messages"]
    return bool(found) and not [one for one in found if one["state"] == "queued"]


def whole(log: bytes) -> bytes:
    """What an agent wrote down of its terminal; nothing: it is in the middle of it."""
    ended = log.count(b"\x1b[200~") == log.count(b"\x1b[201~") > 8 and log.endswith((b"\x1b[201~", b"\r"))
    return log if ended else b""


@pytest.mark.parametrize("agent", ["typed", *TMUX])
def test_a_terminal_gets_text_between_our_brackets_and_nothing_else(stage: Stage, agent: str) -> None:
    log = stage.box.until(lambda: whole(stage.typed(agent)), "all that was typed to be written down", PLENTY)
    rest = re.sub(rb"\x1b\[200~(.*?)\x1b\[201~\r?", b"", log, flags=re.DOTALL)
    assert rest.strip(b"\r") == b"", rest[:200]
    for inside in re.findall(rb"\x1b\[200~(.*?)\x1b\[201~", log, re.DOTALL):
        assert unclean(inside.decode().replace("\r", "\n")) == [], inside[:200]


def test_arguments_are_arguments_and_the_environment_is_ours(stage: Stage) -> None:
    launch = stage.launch("argument")
    prompt, branch = launch["argv"]
    assert branch == "feature/issue-1" and unclean(prompt) == []
    assert "{{7*7}}" in prompt and "${HOME}" in prompt and "$(touch CANARY)" in prompt, "nothing is filled in"
    typed = stage.launch("typed")
    assert set(launch["env"]) == set(typed["env"])
    assert "/evil" not in launch["env"]["PATH"] and "LD_PRELOAD" not in launch["env"]
    for name, value in launch["env"].items():
        assert "touch CANARY" not in value, name


def test_words_of_others_are_quoted_line_by_line_and_attributed(stage: Stage) -> None:
    prompt = stage.launch("argument")["argv"][0]
    task, _, _ = prompt.partition("(A comment is left out")
    head, _, quoted = task.partition(" wrote:\n")
    assert head.splitlines()[0] == "Issue 1: The issue" and "mallory" in head
    free = [line for line in quoted.splitlines() if line and not line.startswith(">")]
    assert all(
        line.startswith(("You are", "- ", "mallory added:", "Work only")) or " added:" in line for line in free
    ), free[:5]
    for message in stage.box.request("GET", "/api/sessions/app-typed/messages")["messages"]:
        if message["sender"] == "rule issue-comment":
            words = message["content"].partition(":\n")[2]
            assert all(line.startswith(">") for line in words.splitlines() if line), words[:200]


def test_nothing_was_run_and_no_file_or_ref_has_a_strange_name(stage: Stage) -> None:
    box = stage.box
    there = everything(box.folder)
    assert not [path for path in there if path.name == "CANARY"] and not Path("CANARY").exists()
    inside = {Path(one["workspacePath"]) for one in box.sessions() if one["workspacePath"]}
    for path in there - stage.before:
        ours = not any(path.is_relative_to(workspace) for workspace in inside) and ".git" not in path.parts
        assert not ours or SAFE.fullmatch(path.name), path
    for ref in box.git("for-each-ref", "--format=%(refname)").splitlines():
        assert re.fullmatch(r"refs/(heads|ao)/[A-Za-z0-9._/-]+", ref) and ".." not in ref, ref
    for session in stage.sessions:
        assert SAFE.fullmatch(session), session


def test_what_is_kept_and_told_is_plain_text(stage: Stage) -> None:
    box = stage.box
    for event in box.request("GET", "/api/events?limit=1000&after=0")["events"]:
        if event["type"] not in ("agent-output", "permission-asked"):
            data = {key: value for key, value in event["data"].items() if key != "path"}  # a file's name is what it is
            assert unclean(json.dumps(data, ensure_ascii=False)) == [], event
    for notice in box.request("GET", "/api/notifications")["notifications"]:
        assert unclean(notice["title"] + notice["message"]) == [], notice
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
def test_what_a_command_prints_steers_no_terminal(stage: Stage, argv: list[str]) -> None:
    said = on_a_terminal(stage.box, argv)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said.replace("\r\n", "\n"))
    assert unclean(plain) == [], repr(plain[:400])


def on_a_terminal(box: Sandbox, argv: list[str]) -> str:
    """What a command prints where a person sits; what a terminal itself makes of line feeds left in."""
    master, slave = pty.openpty()
    env = {**box.env, "TERM": "xterm-256color", "PAGER": "cat", "GIT_PAGER": "cat", "COLUMNS": "100"}
    command = [sys.executable, "-m", "agent_orchestrator", *argv]
    process = subprocess.Popen(command, cwd=box.repo, env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    said = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO
            break
        if not data:
            break
        said += data
    os.close(master)
    process.wait(60)
    return said.decode(errors="surrogateescape")
