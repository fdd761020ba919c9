"""A project whose seven slots are all filled by third-party plugins, as `ao plugins new` writes them."""

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
    """An HTTP server that records the JSON it receives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        self.server.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Log nothing."""


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
        sandbox.request("POST", "/api/projects", {"path": str(repo)})
        yield sandbox


def pull_requests(box: Sandbox) -> list[dict[str, Any]]:
    file = box.folder / "app.git" / "pulls.json"
    stored: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    return stored


def test_an_issue_becomes_a_merged_change_with_third_party_plugins(box: Sandbox, receiver: Receiver) -> None:
    box.ao("issue", "new", "Remember the milk", "-m", "Write it down")
    assert [item["title"] for item in box.json("issues")["issues"]] == ["Remember the milk"]
    created = box.json("new", "1")
    box.wait_until(
        lambda: any(item["state"] == "open" and not item["draft"] for item in pull_requests(box)),
        "its pull request",
        60,
    )
    session = box.wait_until(lambda: (now := box.session(created["id"]))["pr"] and now, "it to be known", 60)
    assert (session["agent"], session["runtime"], session["issue"]) == ("odd", "odd", "1")
    assert session["pr"]["number"] == 1
    assert Path(session["workspacePath"], "odd.md").exists()
    box.wait_until(
        lambda: box.session(created["id"])["status"] in ("review_pending", "approved", "mergeable"),
        "it to be ready",
        60,
    )
    box.ao("merge", created["id"], "--no-wait")
    box.wait_until(lambda: box.session(created["id"])["status"] == "merged", "the merge", 60)
    assert [item["state"] for item in pull_requests(box)] == ["merged"]
    assert "Write it down" in box.git("show", "main:odd.md", cwd=box.folder / "app.git")

    def is_issue_updated() -> bool:
        (issue,) = json.loads((box.folder / "issues.json").read_text())
        return issue["state"] == "closed" and bool(issue["comments"])

    box.wait_until(is_issue_updated, "the closed issue with a comment about the pull request", 60)
    box.wait_until(
        lambda: any("merged" in item["title"] for item in receiver.received), "the notification of the merge", 60
    )


def test_the_notifier_plugin_gets_notifications(box: Sandbox, receiver: Receiver) -> None:
    box.ao("notify", "test")
    assert any("a test" in item["text"] for item in receiver.received)


def test_the_terminal_plugin_opens_a_window(box: Sandbox) -> None:
    box.ao("new", "--agent", "demo", "--name", "seen", "[[wait]]")
    done = box.ao("open", "seen", "--terminal", check=False)
    assert done.returncode == 0, done.stderr
    window_arguments = box.wait_until(
        lambda: (box.folder / "window").read_text() if (box.folder / "window").exists() else "", "a window"
    )
    assert window_arguments.splitlines()[:2] == ["-T", "app-seen"]
    assert "attach" in window_arguments


def test_plugins_of_all_slots_are_listed(box: Sandbox) -> None:
    listed = [item for item in box.json("plugins")["plugins"] if item["name"] == "odd"]
    assert {item["slot"]: item["inForce"] for item in listed} == dict.fromkeys(scaffold.SLOTS, True)
