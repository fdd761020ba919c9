"""The built-in notifiers against the contract of notifiers, with services that validate like the real ones."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.notifiers.apprise import AppriseNotifier
from agent_orchestrator.plugins.notifiers.composio import Composio
from agent_orchestrator.plugins.notifiers.desktop import Desktop
from agent_orchestrator.plugins.notifiers.discord import Discord
from agent_orchestrator.plugins.notifiers.openclaw import OpenClaw
from agent_orchestrator.plugins.notifiers.slack import Slack
from agent_orchestrator.plugins.notifiers.webhook import Webhook
from agent_orchestrator.protocols import Notifier
from agent_orchestrator.testing.chat import ChatServer, find_mentions
from agent_orchestrator.testing.chat.server import COMPOSIO_KEY, SIGNING_SECRET, SLACK_TOKEN
from agent_orchestrator.testing.contracts.notifier import NotifierContract

UNUSED_ADDRESS = "http://127.0.0.1:9"
Sent = Callable[[], Sequence[str]]


class _AtChat(NotifierContract):
    """A notifier at a validating server: an invalid message fails the test."""

    kind = ""

    @pytest.fixture
    def chat(self) -> Iterator[ChatServer]:
        with ChatServer() as chat:
            yield chat
            assert chat.refused == []

    @pytest.fixture
    def sent(self, chat: ChatServer) -> Sent:
        def texts() -> list[str]:
            for message in chat.received:
                assert find_mentions(self.kind, message.body) == []
            return [json.dumps(message.body, ensure_ascii=False) for message in chat.received]

        return texts


class TestSlackWebhook(_AtChat):
    kind = "slack"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Slack({"webhookUrl": chat.slack}, LocalHost())

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return Slack({"webhookUrl": UNUSED_ADDRESS}, LocalHost())


class TestSlackBot(_AtChat):
    kind = "slack"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Slack({"token": SLACK_TOKEN, "channel": "C012AB3CD", "apiUrl": chat.slack_api}, LocalHost())


class TestDiscord(_AtChat):
    kind = "discord"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Discord({"webhookUrl": chat.discord}, LocalHost())

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return Discord({"webhookUrl": UNUSED_ADDRESS}, LocalHost())


class TestWebhook(_AtChat):
    kind = "webhook"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Webhook({"webhookUrl": chat.webhook, "secret": SIGNING_SECRET}, LocalHost())

    @pytest.fixture
    def sent(self, chat: ChatServer) -> Sent:
        return lambda: [json.dumps(message.body, ensure_ascii=False) for message in chat.received]

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return Webhook({"webhookUrl": UNUSED_ADDRESS}, LocalHost())


class TestComposioSlack(_AtChat):
    kind = "slack"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return Composio(
            {"composioApiKey": COMPOSIO_KEY, "channelName": "#agents", "apiUrl": chat.composio}, LocalHost()
        )


class TestComposioDiscord(_AtChat):
    kind = "openclaw"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        config = {"apiKey": COMPOSIO_KEY, "defaultApp": "discord", "channelId": "1", "apiUrl": chat.composio}
        return Composio(config, LocalHost())


class TestComposioMail(_AtChat):
    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        config = {"apiKey": COMPOSIO_KEY, "defaultApp": "gmail", "emailTo": "me@example.com", "apiUrl": chat.composio}
        return Composio(config, LocalHost())

    @pytest.fixture
    def sent(self, chat: ChatServer) -> Sent:
        return lambda: [json.dumps(message.body, ensure_ascii=False) for message in chat.received]


class TestOpenClaw(_AtChat):
    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return OpenClaw({"url": chat.openclaw, "token": SLACK_TOKEN, "channel": "telegram"}, LocalHost())

    @pytest.fixture
    def sent(self, chat: ChatServer) -> Sent:
        return lambda: [json.dumps(message.body, ensure_ascii=False) for message in chat.received]

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return OpenClaw({"url": UNUSED_ADDRESS, "token": SLACK_TOKEN}, LocalHost())


class TestApprise(_AtChat):
    kind = "slack"

    @pytest.fixture
    def notifier(self, chat: ChatServer) -> Notifier:
        return AppriseNotifier({"url": chat.apprise}, LocalHost())

    @pytest.fixture
    def unreachable(self) -> Notifier:
        return AppriseNotifier({"url": "json://127.0.0.1:9/x"}, LocalHost())


class TestDesktop(NotifierContract):
    """The desktop notifier with a `notify-send` that writes its arguments to a file."""

    @pytest.fixture
    def notifications_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder, program = tmp_path / "shown", tmp_path / "bin" / "notify-send"
        program.parent.mkdir()
        folder.mkdir()
        program.write_text(f'#!/bin/sh\nfor one; do printf "%s\\n" "$one"; done > "{folder}/$$"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return folder

    @pytest.fixture
    def notifier(self, notifications_folder: Path) -> Notifier:
        assert notifications_folder.is_dir()
        return Desktop({}, LocalHost(), "linux")

    @pytest.fixture
    def sent(self, notifications_folder: Path) -> Sent:
        return lambda: [path.read_text() for path in notifications_folder.iterdir()]

    @pytest.fixture
    def unreachable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notifier:
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        return Desktop({}, LocalHost(), "linux")
