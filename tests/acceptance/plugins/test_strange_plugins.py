"""A project whose seven slots are all filled by strangers' plugins, as `ao plugins new` writes them: the whole loop works."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.cli import scaffold
from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
plugins: [{plugins}]
defaults:
  agent: odd
  runtime: odd
  workspace: odd
  tracker: {{plugin: odd, file: ../issues.json}}
  scm: {{plugin: odd, repository: {bare}, poll: 1s}}
  notifiers: [odd]
  terminal: {{plugin: odd, program: fake-xterm}}
projects:
  app: {{path: .}}
notifiers: {{odd: {{url: "{url}"}}}}
"""


class Receiver(ThreadingHTTPServer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Sandbox]:
    folder = tmp_path_factory.mktemp("strange")
    tools = folder / "tools"
    tools.mkdir()
    (tools / "fake-xterm").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >{folder}/window.new\nmv {folder}/window.new {folder}/window\n'
    )
    (tools / "fake-xterm").chmod(0o755)
    plugins = []
    for slot in scaffold.SLOTS:
        name = next(file for file in scaffold.files(slot, "odd") if file.startswith("ao_"))
        (folder / name).write_text(scaffold.files(slot, "odd")[name])
        plugins.append(f"{{path: ../{name}}}")
    with Sandbox(folder) as sandbox:
        sandbox.env["PATH"] = f"{tools}:{sandbox.env['PATH']}"
        repo = sandbox.repository()
        bare = folder / "app.git"
        sandbox.git("clone", "-q", "--bare", str(repo), str(bare))
        sandbox.git("remote", "add", "origin", str(bare))
        url = f"http://127.0.0.1:{receiver.server_address[1]}/"
        config = CONFIG.format(plugins=", ".join(plugins), bare=bare, url=url)
        (repo / "agent-orchestrator.yaml").write_text(config)
        sandbox.start()
        yield sandbox


def pulls(box: Sandbox) -> list[dict[str, Any]]:
    file = box.folder / "app.git" / "pulls.json"
    found: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return found


def test_an_issue_becomes_a_change_that_lands(box: Sandbox) -> None:
    box.ao("issue", "new", "Remember the milk", "-m", "Write it down")
    assert [one["title"] for one in box.json("issues")["issues"]] == ["Remember the milk"]
    made = box.json("new", "1")
    box.until(lambda: any(one["state"] == "open" and not one["draft"] for one in pulls(box)), "its pull request", 60)
    session = box.until(lambda: (now := box.session(made["id"]))["pr"] and now, "it to be known", 60)
    assert (session["agent"], session["runtime"], session["issue"]) == ("odd", "odd", "1")
    assert session["pr"]["number"] == 1
    assert Path(session["workspacePath"], "odd.md").exists()
    box.until(
        lambda: box.session(made["id"])["status"] in ("review_pending", "approved", "mergeable"), "it to be ready", 60
    )
    box.ao("merge", made["id"], "--no-wait")
    box.until(lambda: box.session(made["id"])["status"] == "merged", "it to land", 60)
    assert [one["state"] for one in pulls(box)] == ["merged"]
    assert "Write it down" in box.git("show", "main:odd.md", cwd=box.folder / "app.git")

    def told() -> bool:
        (issue,) = json.loads((box.folder / "issues.json").read_text())
        return issue["state"] == "closed" and bool(issue["comments"])

    box.until(told, "the issue's end, and word of the pull request", 60)


def test_people_are_told(box: Sandbox, receiver: Receiver) -> None:
    box.until(lambda: any("merged" in one["title"] for one in receiver.got), "word of the landing", 60)
    box.ao("notify", "test")
    assert any("a test" in one["text"] for one in receiver.got)


def test_a_session_is_shown(box: Sandbox) -> None:
    box.ao("new", "--agent", "demo", "--name", "seen", "[[wait]]")
    done = box.ao("open", "seen", "--terminal", check=False)
    assert done.returncode == 0, done.stderr
    words = box.until(
        lambda: (box.folder / "window").read_text() if (box.folder / "window").exists() else "", "a window"
    )
    assert words.splitlines()[:2] == ["-T", "app-seen"]
    assert "attach" in words


def test_all_of_them_are_listed(box: Sandbox) -> None:
    listed = [one for one in box.json("plugins")["plugins"] if one["name"] == "odd"]
    assert {one["slot"]: one["inForce"] for one in listed} == dict.fromkeys(scaffold.SLOTS, True)
