"""The built-in notifiers do what every notifier must, against services that refuse what the real ones refuse."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.notifiers.apprise import AnyApprise
from agent_orchestrator.plugins.notifiers.composio import Composio
from agent_orchestrator.plugins.notifiers.desktop import Desktop
from agent_orchestrator.plugins.notifiers.discord import Discord
from agent_orchestrator.plugins.notifiers.openclaw import OpenClaw
from agent_orchestrator.plugins.notifiers.slack import Slack
from agent_orchestrator.plugins.notifiers.webhook import Webhook
from agent_orchestrator.protocols import Notifier
from agent_orchestrator.testing.chat import ChatServer, called
from agent_orchestrator.testing.chat.server import KEY, SECRET, TOKEN
from agent_orchestrator.testing.contracts.notifier import NotifierContract

NOBODY = "http://127.0.0.1:9"
Sent = Callable[[], Sequence[str]]


class _AtChat(NotifierContract):
    """What is refused there is an error here, so arriving means that no rule was broken."""

    kind = ""

    @pytest.fixture
    def chat(self) -> Iterator[ChatServer]:
        with ChatServer() as chat:
            yield chat
            assert chat.refused == []

    @pytest.fixture
    def sent(self, chat: ChatServer) -> Sent:
        def texts() -> list[str]:
            for one in chat.received:
                assert called(self.kind, one.body) == []
            return [json.dumps(one.body, ensure_ascii=False) for one in chat.received]

        return texts


class TestSlackWebhook(_AtChat):
    kind = "slack"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Slack({"webhookUrl": chat.slack}, LocalHost())

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return Slack({"webhookUrl": NOBODY}, LocalHost())


class TestSlackBot(_AtChat):
    kind = "slack"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Slack({"token": TOKEN, "channel": "C012AB3CD", "apiUrl": chat.slack_api}, LocalHost())


class TestDiscord(_AtChat):
    kind = "discord"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Discord({"webhookUrl": chat.discord}, LocalHost())

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return Discord({"webhookUrl": NOBODY}, LocalHost())


class TestWebhook(_AtChat):
    kind = "webhook"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Webhook({"webhookUrl": chat.webhook, "secret": SECRET}, LocalHost())

    @pytest.fixture
    def sent(self, chat: ChatServer) -> Sent:
        return lambda: [json.dumps(one.body, ensure_ascii=False) for one in chat.received]

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return Webhook({"webhookUrl": NOBODY}, LocalHost())


class TestComposioSlack(_AtChat):
    kind = "slack"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Composio({"composioApiKey": KEY, "channelName": "#agents", "apiUrl": chat.composio}, LocalHost())


class TestComposioDiscord(_AtChat):
    kind = "openclaw"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        given = {"apiKey": KEY, "defaultApp": "discord", "channelId": "1", "apiUrl": chat.composio}
        return Composio(given, LocalHost())


class TestComposioMail(_AtChat):
    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        given = {"apiKey": KEY, "defaultApp": "gmail", "emailTo": "me@example.com", "apiUrl": chat.composio}
        return Composio(given, LocalHost())

    @pytest.fixture
    def sent(self, chat: ChatServer) -> Sent:
        return lambda: [json.dumps(one.body, ensure_ascii=False) for one in chat.received]


class TestOpenClaw(_AtChat):
    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return OpenClaw({"url": chat.openclaw, "token": TOKEN, "channel": "telegram"}, LocalHost())

    @pytest.fixture
    def sent(self, chat: ChatServer) -> Sent:
        return lambda: [json.dumps(one.body, ensure_ascii=False) for one in chat.received]

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return OpenClaw({"url": NOBODY, "token": TOKEN}, LocalHost())


class TestApprise(_AtChat):
    kind = "slack"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return AnyApprise({"url": chat.apprise}, LocalHost())

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return AnyApprise({"url": "json://127.0.0.1:9/x"}, LocalHost())


class TestDesktop(NotifierContract):
    """Against a `notify-send` that writes down what it is given."""

    @pytest.fixture
    def shown(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        shown, program = tmp_path / "shown", tmp_path / "bin" / "notify-send"
        program.parent.mkdir()
        shown.mkdir()
        program.write_text(f'#!/bin/sh\nfor one; do printf "%s\\n" "$one"; done > "{shown}/$$"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return shown

    @pytest.fixture
    def notifier(self, shown: Path) -> Notifier:
        assert shown.is_dir()
        return Desktop({}, LocalHost(), "linux")

    @pytest.fixture
    def sent(self, shown: Path) -> Sent:
        return lambda: [path.read_text() for path in shown.iterdir()]

    @pytest.fixture
    def unreachable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notifier:
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        return Desktop({}, LocalHost(), "linux")
