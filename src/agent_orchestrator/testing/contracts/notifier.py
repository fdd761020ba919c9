"""The suite that every Notifier plugin must pass. To run it on yours:

    from agent_orchestrator.testing.contracts.notifier import NotifierContract

    class TestMyNotifier(NotifierContract):
        @pytest.fixture
        def notifier(self, server) -> Notifier:
            return MyNotifier({"url": server.url}, LocalHost())

        @pytest.fixture
        def sent(self, server) -> Callable[[], Sequence[str]]:
            return lambda: server.bodies

`unreachable` may return the plugin with a service that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Notification, NotificationAction, Notifier

PLAIN = Notification(
    title="app-fix-login: blocked",
    message="It asks: may I run the tests?",
    level="urgent",
    session_id="app-fix-login",
    project="app",
    trigger="agent-blocked",
    id="n42",
    time=1_790_000_000.0,
    url="http://127.0.0.1:3000/sessions/app-fix-login",
    actions=(
        NotificationAction("allow", "Allow", "http://127.0.0.1:3000/answer/aoa_x"),
        NotificationAction("deny", "Deny", "http://127.0.0.1:3000/answer/aoa_y"),
    ),
)
HOSTILE = {
    "control": "red \x1b[31malert\x1b[0m \x00 bell\x07 \u202eesrever\u202c \u200bzero",
    "slack": "<!channel> <@U012AB3CD> <https://evil.example|your bank> & <b>bold</b>",
    "discord": "@everyone @here <@123456789012345678> [your bank](https://evil.example) **bold** ||spoiler||",
    "markup": "<script>alert(1)</script> <a href='https://evil.example'>x</a>",
    "shell": "$(touch pwned) `touch pwned`; touch pwned && $HOME -rf --help",
    "quotes": """it's a "test" \\ with 'quotes' {{7*7}} ${HOME} %s""",
    "unicode": "ein Übel, 日本語, 🚀, e\u0301",
    "surrogate": "half \ud83d of a pair",
    "long": "word " * 20_000,
    "wide": "🚀" * 10_000,
    "escapes": "<*_&>" * 4_000,
    "lines": "one\n\n\nfour\r\nfive\u2028six",
    "empty": "",
    "blank": " \n\t ",
}


class NotifierContract:
    """Subclass it and define the fixtures `notifier` and `sent`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def notifier(self) -> Notifier:
        """The plugin under test."""
        raise NotImplementedError("give a fixture named `notifier`")

    @pytest.fixture
    def sent(self) -> Callable[[], Sequence[str]]:
        """A function that returns what the service has received, each notification as text."""
        raise NotImplementedError("give a fixture named `sent`")

    @pytest.fixture
    def unreachable(self) -> Notifier | None:
        """The plugin with a service that does not answer, or None if that is impossible."""
        return None

    async def test_a_notification_arrives(self, notifier: Notifier, sent: Callable[[], Sequence[str]]) -> None:
        await notifier.notify(PLAIN)
        (text,) = sent()
        assert "app-fix-login" in text
        assert "may I run the tests" in text

    async def test_a_title_and_a_message_are_enough(
        self, notifier: Notifier, sent: Callable[[], Sequence[str]]
    ) -> None:
        await notifier.notify(Notification("A title", "A message"))
        assert len(sent()) == 1

    @pytest.mark.parametrize("name", HOSTILE)
    async def test_hostile_text_arrives_without_control_characters(
        self, notifier: Notifier, sent: Callable[[], Sequence[str]], name: str
    ) -> None:
        await notifier.notify(replace(PLAIN, title=HOSTILE[name], message=HOSTILE[name]))
        (text,) = sent()
        assert not any(character in text for character in "\x00\x07\x1b\u202e\u200b\ud83d")

    @pytest.mark.parametrize("level", ["urgent", "action", "warning", "info", "unheard-of"])
    async def test_every_level_is_sent(self, notifier: Notifier, sent: Callable[[], Sequence[str]], level: str) -> None:
        await notifier.notify(replace(PLAIN, level=level if level != "unheard-of" else "info"))
        assert len(sent()) == 1

    async def test_concurrent_notifications_all_arrive(
        self, notifier: Notifier, sent: Callable[[], Sequence[str]]
    ) -> None:
        await asyncio.gather(*(notifier.notify(replace(PLAIN, id=f"n{number}")) for number in range(5)))
        assert len(sent()) == 5

    async def test_an_unreachable_service_is_a_one_line_error_with_a_remedy(self, unreachable: Notifier | None) -> None:
        if unreachable is None:
            pytest.skip("the service is always reachable")
        with pytest.raises(AoError) as raised:
            await unreachable.notify(PLAIN)
        assert "\n" not in str(raised.value)
        assert raised.value.remedy
