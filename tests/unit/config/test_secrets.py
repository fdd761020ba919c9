"""Secrets: read from environment, configuration and keyring, and redacted in events, logs, forge requests, responses and rules."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Message

from agent_orchestrator.base import keyring as keyrings
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.text.redaction import REDACTOR, Redactor, TerminalRedactor
from agent_orchestrator.config import trust
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.learned_secrets import learn_configuration, learn_environment
from agent_orchestrator.config.load import load_text
from agent_orchestrator.config.yaml_tree import MAX_SECRETS
from agent_orchestrator.core import events as e
from agent_orchestrator.core.event_redaction import row_without_secrets, without_secrets
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import OutboxRow
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.daemon.__main__ import set_up_log
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.plugins.forges.shared import tokens
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient
from agent_orchestrator.plugins.forges.shared.response_errors import HostText
from agent_orchestrator.plugins.runtimes.tmux import TmuxRuntime
from agent_orchestrator.protocols import LaunchSpec
from agent_orchestrator.server.access.redaction import THREAD_FROM_BYTES, THREAD_FROM_STREAM_BYTES
from agent_orchestrator.server.access.redaction import redacting_send as answering
from agent_orchestrator.sessions.lifecycle.environment import agent_environment
from agent_orchestrator.sessions.permissions.rules import check_permission
from tests.parts import TrustsAccepted

SECRET = "uY6pLw3ZkR8tQm1XvB5n"
SHAPED = "ghp_" + "a1B2" * 9


@pytest.fixture(autouse=True)
def no_known_secrets() -> Iterator[None]:
    """Restore the redactor, so that secrets of one test are none in another."""
    before = {name: getattr(REDACTOR, name) for name in ("_forms", "_bytes", "_values_without_long_run", "_names")}
    yield
    for name, value in before.items():
        setattr(REDACTOR, name, value)


def clean(text: str) -> str:
    return REDACTOR.redact_text(text)


# -- sources -----------------------------------------------------------------------------------------------------------


def test_secrets_of_the_environment_are_learned() -> None:
    learn_environment(
        {
            "MY_TOKEN": SECRET,
            "PLAIN": "uY6pLw3ZkR8tQm1XvB5m",
            "DB": "postgres://me:pa55%2Bword@db/x",
            "PGPASSWORD": "postgres",
        }
    )
    assert clean(f"{SECRET} uY6pLw3ZkR8tQm1XvB5m postgres") == "[secret MY_TOKEN] uY6pLw3ZkR8tQm1XvB5m postgres"
    assert "pa55" not in clean("with pa55+word and pa55%2Bword")


def test_secrets_of_a_configuration_are_learned() -> None:
    config = {
        "projects": {
            "a": {
                "env": {"API_KEY": SECRET, "MODE": "production-like-value-1"},
                "scm": {"webhook": {"secretEnvVar": "HOOK"}},
            }
        },
        "notifiers": {
            "slack": {"webhookUrl": "https://example.com/hook/aB3dE6gH9jK2mN5pQ8sT"},
            "x": {"options": [{"apiToken": "Zz9Yy8Xx7Ww6Vv5"}]},
        },
        "database": "postgresql://ao:Tz7Kq2Lm9@db/ao",
    }
    learn_configuration([config], {"HOOK": "hook-Secret-99-value"})
    text = clean(
        f"{SECRET} https://example.com/hook/aB3dE6gH9jK2mN5pQ8sT Zz9Yy8Xx7Ww6Vv5 Tz7Kq2Lm9 hook-Secret-99-value"
    )
    assert (
        text
        == "[secret API_KEY] [secret webhookUrl] [secret apiToken] [secret password in database] [secret webhook secret HOOK]"
    )
    assert clean("HOOK in production-like-value-1") == "HOOK in production-like-value-1"


def test_a_forges_token_is_redacted_as_soon_as_it_is_read() -> None:
    token = tokens.token_from_config(SECRET, "scm.token")
    assert token is not None and SECRET not in repr(token)
    assert (
        clean(f"say {SECRET} {token.basic_credentials('x-access-token')}")
        == "say [secret scm.token] [secret scm.token]"
    )


def test_an_agent_gets_no_secret_under_any_name() -> None:
    login = {
        "GREETING": SHAPED,
        "DEPLOY": "-----BEGIN OPENSSH PRIVATE KEY-----\n"
        + "b3BlbnNzaC1rZXktdjEA\n" * 4
        + "-----END OPENSSH PRIVATE KEY-----",
        "PIP_INDEX_URL": "https://me:Kq2Lm9Tz@pypi.example/simple",
        "https_proxy": "http://me:Kq2Lm9Tz@proxy:3128",
        "EDITOR": "vim",
        "AO_HOME": "/x",
        "AO_TOKEN": "aoc_x",
    }
    environment = agent_environment(login, {}, {})
    assert {"GREETING", "DEPLOY", "PIP_INDEX_URL", "AO_HOME", "AO_TOKEN"}.isdisjoint(environment)
    assert environment["https_proxy"] == login["https_proxy"] and environment["EDITOR"] == "vim"
    assert agent_environment(login, {"GREETING": SHAPED}, {})["GREETING"] == SHAPED
    assert agent_environment({"GITHUB_TOKEN": SHAPED}, {}, {}, ["GITHUB_TOKEN"])["GITHUB_TOKEN"] == SHAPED


def test_environment_variables_are_not_on_the_command_line(tmp_path: Path) -> None:
    spec = LaunchSpec(
        "app-x", 1, ("agent", "--task", "x"), tmp_path, {"MY_TOKEN": SECRET, "UID": "7"}, tmp_path, tmp_path / "log"
    )
    script = TmuxRuntime({"home": str(tmp_path)}, LocalHost())._write_launcher(spec, tmp_path / "started").read_text()
    with_it = [line for line in script.splitlines() if SECRET in line]
    assert with_it == [f"export MY_TOKEN={SECRET}"]
    assert script.splitlines()[-1] == "exec /usr/bin/env -u _ -- UID=7 agent --task x"


# -- keyring -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[list[str]]:
    """Use a real keyring in a file, without a desktop; yields the list of names that were read."""
    module = pytest.importorskip("keyring", reason="the extra `keyring` is not installed")
    file_keyring = pytest.importorskip("keyrings.alt.file", reason="keyrings.alt is not installed").PlaintextKeyring
    names_read: list[str] = []

    class RecordingKeyring(file_keyring):  # type: ignore[misc, valid-type]
        file_path = str(tmp_path / "keyring.cfg")

        def get_password(self, service: str, username: str) -> str | None:
            names_read.append(username)
            secret: str | None = super().get_password(service, username)
            return secret

    before = module.get_keyring()
    module.set_keyring(RecordingKeyring())
    yield names_read
    module.set_keyring(before)


@pytest.mark.usefixtures("keyring")
def test_the_keyring_stores_secrets_by_name() -> None:
    assert keyrings.read("FORGE_TOKEN") is None and keyrings.names() == []
    keyrings.write("FORGE_TOKEN", SECRET)
    keyrings.write("OTHER", "x" * 9)
    assert (keyrings.read("FORGE_TOKEN"), keyrings.names()) == (SECRET, ["FORGE_TOKEN", "OTHER"])
    assert keyrings.remove("OTHER") and not keyrings.remove("OTHER") and keyrings.names() == ["FORGE_TOKEN"]
    for name, value in (("no name", "x"), ("${X}", "x"), ("EMPTY", "")):
        with pytest.raises(UsageError):
            keyrings.write(name, value)


@pytest.mark.usefixtures("keyring")
def test_a_configuration_reads_secrets_from_the_keyring(tmp_path: Path) -> None:
    keyrings.write("FORGE_TOKEN", SECRET)
    env = "{A: '${keyring:FORGE_TOKEN}', B: '${keyring:NONE:-other}', C: '${keyring:NONE}', D: '$${keyring:X}'}"
    text = f"projects: {{a: {{path: ., env: {env}}}}}\n"
    loaded = load_text(text, tmp_path / "agent-orchestrator.yaml", {}, keyrings.read)
    assert loaded.config.projects["a"].env == {"A": SECRET, "B": "other", "D": "${keyring:X}"}
    assert "keyring:NONE" in loaded.warnings[0]
    assert loaded.variables == ("keyring:FORGE_TOKEN",)


def test_the_keyring_is_not_read_for_an_untrusted_file(tmp_path: Path, keyring: list[str]) -> None:
    keyrings.write("FORGE_TOKEN", SECRET)
    keyring.clear()
    file, own = tmp_path / "agent-orchestrator.yaml", tmp_path / "config.yaml"
    file.write_text("projects: {a: {path: ., env: {A: '${keyring:FORGE_TOKEN}', B: '${keyring:NONE:-b}'}}}\n")
    trusted = False
    config = ConfigSet(own, {}, trust=TrustsAccepted(lambda _loaded: trusted))
    loaded = config.add(file)
    assert keyring == [] and loaded.variables == ("keyring:FORGE_TOKEN", "keyring:NONE")
    (project,) = config.projects()
    assert project.env == {}
    trusted, digested = True, trust.digest(trust.powers(loaded), file)
    config.apply_trust_change()
    (project,) = config.projects()
    assert project.env == {"A": SECRET, "B": "b"} and keyring == ["FORGE_TOKEN", "NONE"]
    after = config.loaded(file)
    assert after and trust.digest(trust.powers(after), file) == digested, "trust is in what the file says"
    keyring.clear()
    trusted = False
    own.write_text("agents: {x: {tool: demo, env: {A: '${keyring:FORGE_TOKEN}'}}}\n")
    assert config.load_home().config.agents["x"].env == {"A": SECRET}, "the user's own file needs no trust"


def test_a_file_may_use_a_limited_number_of_secrets_each_read_once(tmp_path: Path, keyring: list[str]) -> None:
    def text(count: int) -> str:
        env = ", ".join(f"{kind}{number}: '${{keyring:N{number}}}'" for kind in "AB" for number in range(count))
        return f"projects: {{a: {{path: ., env: {{{env}}}}}}}\n"

    load_text(text(MAX_SECRETS), tmp_path / "a.yaml", {}, keyrings.read)
    assert sorted(keyring) == sorted(f"N{number}" for number in range(MAX_SECRETS))
    for read_secret in (keyrings.read, None):
        with pytest.raises(AoError, match="more than 50 secrets of the keyring"):
            load_text(text(MAX_SECRETS + 1), tmp_path / "a.yaml", {}, read_secret)


@pytest.mark.usefixtures("keyring")
def test_a_forges_token_may_be_in_the_keyring() -> None:
    assert tokens.token_from_environment_or_keyring({}, ("GITHUB_TOKEN",)) is None
    keyrings.write("GITHUB_TOKEN", SECRET)
    token = tokens.token_from_environment_or_keyring({}, ("GH_TOKEN", "GITHUB_TOKEN"))
    assert token is not None and (token.value, token.source) == (SECRET, "GITHUB_TOKEN in the keyring")
    assert tokens.token_from_environment_or_keyring({"GITHUB_TOKEN": "other"}, ("GITHUB_TOKEN",)) == tokens.ForgeToken(
        "other", "GITHUB_TOKEN"
    )


def test_without_the_package_there_is_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setattr(keyrings, "is_installed", lambda: False)
    assert keyrings.read("X") is None and tokens.token_from_environment_or_keyring({}, ("X",)) is None
    with pytest.raises(AoError, match="not installed") as error:
        keyrings.write("X", "y")
    assert "agent-orchestrator[keyring]" in error.value.remedy


def test_ao_secret_reads_the_value_from_standard_input(tmp_path: Path) -> None:
    pytest.importorskip("keyrings.alt.file", reason="keyrings.alt is not installed")
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path), "AO_HOME": str(tmp_path / "ao")}
    env["PYTHON_KEYRING_BACKEND"] = "keyrings.alt.file.PlaintextKeyring"

    def ao(*argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agent_orchestrator", "secret", *argv]
        return subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, check=False)

    done = ao("set", "FORGE_TOKEN", stdin=f"{SECRET}\n")
    assert done.returncode == 0 and SECRET not in done.stdout + done.stderr
    assert json.loads(ao("list", "--json").stdout) == {"secrets": ["FORGE_TOKEN"]}
    assert ao("remove", "NONE").returncode == 3 and ao("set", "X").returncode == 2
    assert ao("remove", "FORGE_TOKEN").returncode == 0 and "No secrets" in ao("list").stdout
    assert not (tmp_path / "ao").exists()  # no daemon is started for it


# -- redaction ---------------------------------------------------------------------------------------------------------


def test_recorded_events_and_rows_contain_no_secret() -> None:
    REDACTOR.learn({"MY_TOKEN": SECRET})
    event = Event(e.MessageQueued("m1", f"use {SECRET}"), 1.0, "person", f"key-{SHAPED}")
    assert without_secrets(event) == Event(
        e.MessageQueued("m1", "use [secret MY_TOKEN]"), 1.0, "person", f"key-{SHAPED}"
    )
    kept = Event(
        e.WorkspaceCreated(f"/w/{SECRET}", SHAPED, "main", "c", "h", "/g", (), {"GIT_CONFIG_VALUE_0": SECRET}),
        1.0,
        "d",
        "k",
    )
    assert without_secrets(kept) is kept
    row = OutboxRow(
        Intent("command", "k", "s", args={"variables": {"log": "/l", "errors": f"E {SHAPED}"}}),
        1,
        1,
        0.0,
        result=f"failed: {SECRET}",
    )
    changed = row_without_secrets(row)
    assert changed.intent.args == {"variables": {"log": "/l", "errors": "E [secret GitHub token]"}}
    assert changed.result == "failed: [secret MY_TOKEN]" and changed.intent.key == "k"


def test_log_lines_contain_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    REDACTOR.learn({"MY_TOKEN": SECRET})
    monkeypatch.setattr(os, "dup2", lambda *_: 2)
    root, before = logging.getLogger(), structlog.get_config()
    handlers = root.handlers[:]
    root.handlers.clear()
    try:
        set_up_log(home := Home(tmp_path), foreground=False)
        structlog.get_logger().warning("asked", error=f'"{SECRET}" with {SHAPED}')
        logging.getLogger("other").warning("and %s", SECRET)
        try:
            raise ValueError(f"in a traceback {SECRET}")
        except ValueError:
            structlog.get_logger().exception("failed")
        for handler in root.handlers:
            assert isinstance(handler, logging.StreamHandler)
            handler.stream.close()
        text = home.log.read_text()
    finally:
        root.handlers[:] = handlers
        structlog.configure(**before)
    assert SECRET not in text and SHAPED not in text
    assert text.count("[secret MY_TOKEN]") == 3 and "in a traceback" in text


_RECEIVED: list[bytes] = []


class _Forge(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        _RECEIVED.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.anyio
async def test_forge_requests_contain_no_secret() -> None:
    REDACTOR.learn({"MY_TOKEN": SECRET})
    server = HTTPServer(("127.0.0.1", 0), _Forge)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    http = ForgeHttpClient(
        f"http://127.0.0.1:{server.server_address[1]}", HostText("x", "the token", "sign in", "widen"), {}
    )
    try:
        await http.call("POST", "comments", {"body": f"done with {SECRET} and {SHAPED}", "head": SECRET})
    finally:
        await http.close()
        server.shutdown()
        server.server_close()
    assert json.loads(_RECEIVED[-1]) == {
        "body": "done with [secret MY_TOKEN] and [secret GitHub token]",
        "head": SECRET,
    }


async def _send_response(
    response: Response, path: str = "/api/x", method: str = "GET"
) -> tuple[dict[bytes, bytes], list[bytes]]:
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "path": path, "method": method, "headers": []}
    await response(scope, receive, answering(scope, send))
    start, *bodies = messages
    return dict(start["headers"]), [body["body"] for body in bodies]


@pytest.mark.anyio
async def test_responses_contain_no_secret() -> None:
    REDACTOR.learn({"MY_TOKEN": SECRET})
    body = json.dumps({"diff": f"+{SECRET}\n+{SHAPED}\n"}).encode()
    headers, (sent,) = await _send_response(Response(body, media_type="application/json"))
    assert json.loads(sent) == {"diff": "+[secret MY_TOKEN]\n+[secret GitHub token]\n"}
    assert headers[b"content-length"] == str(len(sent)).encode()
    headers, (sent,) = await _send_response(PlainTextResponse("nothing to hide"))
    assert (sent, headers[b"content-length"]) == (b"nothing to hide", b"15")
    for path, method in (("/api/tokens", "POST"), ("/api/sessions/a/environment", "GET"), ("/git/a/info/refs", "GET")):
        assert (await _send_response(Response(body), path, method))[1] == [body]


@pytest.mark.anyio
async def test_a_large_response_is_redacted_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    clean = Redactor.redact_bytes

    def recording_thread(self: Redactor, data: bytes) -> bytes:
        threads.append(threading.current_thread())
        return clean(self, data)

    monkeypatch.setattr(Redactor, "redact_bytes", recording_thread)
    REDACTOR.learn({"MY_TOKEN": SECRET})
    for size, in_thread in ((1_000, False), (THREAD_FROM_BYTES, True)):
        headers, (sent,) = await _send_response(Response(f"{SECRET} ".encode() + b"x " * size))
        assert sent == b"[secret MY_TOKEN] " + b"x " * size
        assert headers[b"content-length"] == str(len(sent)).encode()
        assert (threads.pop() is not threading.current_thread()) == in_thread


@pytest.mark.anyio
async def test_logs_read_by_many_are_redacted_one_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    all_wait, clean = threading.Event(), TerminalRedactor.feed

    def recording_thread(self: TerminalRedactor, data: bytes) -> bytes:
        threads.append(threading.current_thread())
        assert threads[-1] is not threading.main_thread() and all_wait.wait(60)
        return clean(self, data)

    async def read() -> bytes:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        answer = answering({"type": "http", "path": "/api/x", "method": "GET", "headers": []}, send)
        await answer({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await answer({"type": "http.response.body", "body": b"x " * THREAD_FROM_STREAM_BYTES})
        return bytes(sent[-1]["body"])

    monkeypatch.setattr(TerminalRedactor, "feed", recording_thread)
    reading = [asyncio.ensure_future(read()) for _ in range(4)]
    for _ in range(10):
        await asyncio.sleep(0)  # until each has its piece looked through
    all_wait.set()
    assert await asyncio.gather(*reading) == [b"x " * THREAD_FROM_STREAM_BYTES] * 4
    assert len(threads) == 4 and len(set(threads)) == 1


@pytest.mark.anyio
async def test_a_streamed_log_contains_no_secret() -> None:
    REDACTOR.learn({"MY_TOKEN": SECRET})

    async def pieces() -> Any:
        for piece in (b"says ", SECRET[:9].encode(), SECRET[9:].encode(), b" end"):
            yield piece

    headers, sent = await _send_response(StreamingResponse(pieces(), media_type="text/plain"))
    assert b"content-length" not in headers and b"".join(sent) == b"says " + b"*" * len(SECRET) + b" end"


def test_no_rule_allows_a_request_with_a_redacted_part() -> None:
    allowed = [("Bash", "git add a"), ("Bash", "curl [secret MY_TOKEN]")]
    assert check_permission("Bash", "git add a", "auto-edit", (), allowed)
    assert not check_permission("Bash", "curl [secret MY_TOKEN]", "auto-edit", (), allowed)
    assert not check_permission("Bash", "git commit -m '[secret MY_TOKEN]'", "auto-edit", (), ())
