"""The examples run against a real daemon: agents, a notifier, and programs that use the Python API."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import Denied, Temporary, UsageError
from agent_orchestrator.protocols import Agent, Notification, Notifier
from agent_orchestrator.testing.contracts.agent import AgentContract
from agent_orchestrator.testing.contracts.notifier import NotifierContract
from agent_orchestrator.testing.sandbox import Sandbox
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
CONFIG = """\
defaults: {{agent: demo, runtime: process, notifiers: [telegram]}}
plugins: [{plugins}]
projects:
  my-app: {{path: ., scm: local, tracker: local, ci: {{command: "test ! -e bad"}}}}
notifiers: {{telegram: {{chatId: "42", apiUrl: "{url}"}}}}
reactions: {{ci-failed: {{auto: false}}}}
"""
CLI = """\
#!/bin/sh
echo "$@" >args.txt
case "$2" in *impossible*) exit 3;; esac
git add args.txt && git commit -q -m "Do it"
"""


class Telegram(ThreadingHTTPServer):
    """Telegram's `sendMessage`, as strict about token, chat, length and markup."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Bot)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.messages: list[dict[str, Any]] = []
        self.refusal: tuple[int, dict[str, Any]] | None = None

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.refusal:
            return self.refusal
        if path != f"/bot{TOKEN}/sendMessage":
            return 401, {"ok": False, "description": "Unauthorized"}
        plain = re.sub(r"\\([_*`\[])", "", str(body["text"]))
        if body["parse_mode"] != "Markdown" or len(str(body["text"]).replace("\\", "")) > 4096:
            return 400, {"ok": False, "description": "Bad Request: message is too long"}
        if plain.count("*") != 2 or re.search(r"[_`\[]", plain):
            return 400, {"ok": False, "description": "Bad Request: can't parse entities"}
        self.messages.append(body)
        return 200, {"ok": True, "result": {"message_id": len(self.messages)}}


class _Bot(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Telegram)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self.server.answer(self.path, body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def serving() -> Iterator[Telegram]:
    with Telegram() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def telegram() -> Iterator[Telegram]:
    """The server that the daemon uses."""
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, telegram: Telegram) -> Iterator[Sandbox]:
    folder = tmp_path_factory.mktemp("examples")
    tools = folder / "tools"
    tools.mkdir()
    (tools / "my-agent-cli").write_text(CLI)
    (tools / "my-agent-cli").chmod(0o755)
    with Sandbox(folder, env={"TELEGRAM_BOT_TOKEN": TOKEN}) as sandbox:
        sandbox.env["PATH"] = f"{tools}:{sandbox.env['PATH']}"
        files = ("custom_agent", "lasting_agent", "telegram_notifier")
        plugins = ", ".join(f"{{path: {EXAMPLES / name}.py}}" for name in files)
        sandbox.repository("my-app", config=CONFIG.format(plugins=plugins, url=telegram.url))
        sandbox.start()
        yield sandbox


def run(box: Sandbox, name: str, *argv: str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *argv],
        cwd=box.repo,
        env={**box.env, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def make_plugin(slot: str, file: str, name: str, config: dict[str, Any]) -> Any:
    return PluginRegistry([{"path": str(EXAMPLES / file)}]).create(slot, name, config, LocalHost())


def test_every_example_is_listed_and_run() -> None:
    existing = {file.name for file in EXAMPLES.glob("*.py")}
    listed = set(re.findall(r"^\| `(\w+\.py)`", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    tried = set(re.findall(r"(\w+)(?:\.py)?\"", Path(__file__).read_text()))
    assert existing == listed
    assert {name.removesuffix(".py") for name in existing} <= tried


# -- agents


class TestCustomAgent(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        agent = make_plugin("agent", "custom_agent.py", "my-custom-agent", {})
        assert isinstance(agent, Agent)
        return agent


class TestLastingAgent(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        agent = make_plugin("agent", "lasting_agent.py", "custom-agent", {})
        assert isinstance(agent, Agent)
        return agent


def test_the_wrapped_cli_does_its_task(box: Sandbox) -> None:
    box.ao("new", "--agent", "my-custom-agent", "--name", "wrapped", "make it so")
    box.wait_until(lambda: box.session("wrapped")["status"] == "review_pending", "its change", 120)
    session = box.session("wrapped")
    arguments = box.git("show", "feature/wrapped:args.txt")
    assert arguments == f"--task make it so --worktree {session['workspacePath']} --branch feature/wrapped"


def test_a_failure_of_the_wrapped_cli_fails_the_session(box: Sandbox, telegram: Telegram) -> None:
    box.ao("new", "--agent", "my-custom-agent", "--name", "vain", "the impossible")
    box.wait_until(lambda: box.session("vain")["status"] == "failed", "its failure", 120)
    assert "Agent failed: 3" in box.ao("logs", "vain").stdout
    box.wait_until(
        lambda: any("my-app-vain" in message["text"] for message in telegram.messages), "the notice by Telegram", 120
    )


def test_a_long_running_agent_receives_messages(box: Sandbox) -> None:
    box.ao("new", "--agent", "custom-agent", "--name", "diary", "it began to rain")
    box.wait_until(lambda: box.session("diary")["activity"] == "idle", "it to be ready", 120)
    box.ao("send", "--wait", "diary", "the sun came out")
    box.ao("send", "--wait", "diary", "done")
    box.wait_until(lambda: box.session("diary")["status"] == "review_pending", "its change", 120)
    assert box.git("show", "feature/diary:diary.txt").splitlines() == ["it began to rain", "the sun came out", "done"]


# -- notifier


class TestTelegram(NotifierContract):
    @pytest.fixture
    def bot(self) -> Iterator[Telegram]:
        with serving() as server:
            yield server

    @pytest.fixture(autouse=True)
    def token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)

    @pytest.fixture
    def notifier(self, bot: Telegram) -> Notifier:
        plugin = make_plugin("notifier", "telegram_notifier.py", "telegram", {"chatId": "42", "apiUrl": bot.url})
        assert isinstance(plugin, Notifier)
        return plugin

    @pytest.fixture
    def sent(self, bot: Telegram) -> Callable[[], Sequence[str]]:
        return lambda: [message["text"] for message in bot.messages]

    @pytest.fixture
    def unreachable(self) -> Notifier:
        config = {"chatId": "42", "apiUrl": "http://127.0.0.1:9"}
        plugin = make_plugin("notifier", "telegram_notifier.py", "telegram", config)
        assert isinstance(plugin, Notifier)
        return plugin

    async def test_telegram_receives_the_escaped_text(self, notifier: Notifier, bot: Telegram) -> None:
        await notifier.notify(Notification("Needs *you*", "Which_one?", "urgent", "app-fix"))
        text = "*Needs  you *\nWhich\\_one?\nSession: app-fix"
        assert bot.messages == [{"chat_id": "42", "text": text, "parse_mode": "Markdown"}]

    async def test_refusals_raise_matching_errors(self, notifier: Notifier, bot: Telegram) -> None:
        bot.refusal = 429, {"ok": False, "description": "Too Many Requests", "parameters": {"retry_after": 7}}
        with pytest.raises(Temporary, match="Too Many Requests") as later:
            await notifier.notify(Notification("a", "b"))
        assert later.value.until is not None
        bot.refusal = 403, {"ok": False, "description": "Forbidden: bot was blocked by the user"}
        with pytest.raises(Denied, match="blocked") as refused:
            await notifier.notify(Notification("a", "b"))
        assert TOKEN not in str(refused.value)

    def test_a_missing_token_is_an_error_with_a_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TELEGRAM_BOT_TOKEN")
        with pytest.raises(UsageError, match="set TELEGRAM_BOT_TOKEN"):
            make_plugin("notifier", "telegram_notifier.py", "telegram", {"chatId": "42"})


def test_a_test_message_arrives_by_telegram(box: Sandbox, telegram: Telegram) -> None:
    box.ao("notify", "test", "telegram")
    assert any("a test of your notifications" in message["text"] for message in telegram.messages)


# -- programs


def test_a_custom_orchestrator(box: Sandbox) -> None:
    lines = run(box, "custom_orchestrator.py", "Login", AO_EXAMPLE_AGENT="demo")
    assert lines == [f"my-app-login-{part} feature/login-{part} merged" for part in ("tests", "code", "docs")]


def test_a_fleet_works_on_the_issues(box: Sandbox) -> None:
    box.ao("issue", "new", "Say hello", "-m", "[[edit: h|x]] [[commit: h]] [[done: said]]")
    lines = run(box, "issue_fleet.py", AO_EXAMPLE_TOOL="demo", AO_EXAMPLE_RUNTIME="process")
    assert len(lines) == 1 and lines[0].endswith("Say hello")
