"""Notifications on the daemon's desktop: `notify-send`, macOS's Notification Centre, Windows' toasts.

Text is passed as arguments or by standard input, never as part of a script.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agent_orchestrator.errors import Missing, Temporary
from agent_orchestrator.plugins.notifiers import texts
from agent_orchestrator.protocols import (
    Notification,
    Notifier,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import one_line

TIMEOUT = 10.0
_MAX_TITLE_LENGTH, _MAX_BODY_LENGTH = 120, 400
_URGENCY = {"urgent": "critical", "action": "normal", "warning": "normal"}
_APPLE_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
_TOAST_SCRIPT = """
$told = [Console]::In.ReadToEnd() | ConvertFrom-Json
[void][Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications, ContentType = WindowsRuntime]
$kind = [Windows.UI.Notifications.ToastTemplateType]::ToastText02
$toast = [Windows.UI.Notifications.ToastNotificationManager]::GetTemplateContent($kind)
$lines = $toast.GetElementsByTagName('text')
[void]$lines.Item(0).AppendChild($toast.CreateTextNode($told.title))
[void]$lines.Item(1).AppendChild($toast.CreateTextNode($told.message))
$app = '{1AC14E77-02E7-4E5D-B744-2EB1AE5198B7}\\WindowsPowerShell\\v1.0\\powershell.exe'
$shown = New-Object Windows.UI.Notifications.ToastNotification $toast
[Windows.UI.Notifications.ToastNotificationManager]::CreateToastNotifier($app).Show($shown)
"""


class Desktop(Notifier):
    """Shows notifications on this machine."""

    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host, platform: str = sys.platform) -> None:
        del config  # there is nothing to choose
        self._host = host
        self._platform = platform

    async def notify(self, notification: Notification) -> None:
        """Show the notification. Raises `Missing` if no desktop shows it."""
        argv, standard_input = self._command(notification)
        try:
            result = await self._host.run(argv, input=standard_input, timeout=TIMEOUT)
        except Temporary as error:
            raise Missing(
                f"desktop: {error.text}", "see why no desktop answers, or take desktop out of notifiers"
            ) from None
        if result.code:
            output = one_line((result.err or result.out).decode(errors="replace"), 200)
            raise Missing(
                f"desktop: {argv[0]} failed: {output or f'exit {result.code}'}",
                "start the daemon within a desktop session, or take desktop out of notifiers",
            )

    async def check(self) -> None:
        """Raise `Missing` if this machine has no program that shows notifications."""
        self._command(Notification("", ""))

    def _command(self, notification: Notification) -> tuple[Sequence[str], bytes | None]:
        """Return the command that shows the notification, and its standard input. Raises `Missing` if there is no program for it."""
        title, body = texts.title(notification, _MAX_TITLE_LENGTH), texts.message(notification, _MAX_BODY_LENGTH)
        if self._platform == "darwin":
            script = [word for line in _APPLE_SCRIPT for word in ("-e", line)]
            return (self._program("osascript"), *script, "--", title, body), None
        if self._platform == "win32":
            return self._toast(self._program("powershell"), title, body)
        if notify_send := self._host.which("notify-send"):
            urgency = _URGENCY.get(notification.level, "low")
            name = "--app-name=Agent Orchestrator"
            return (notify_send, name, f"--urgency={urgency}", "--", title, texts.escape_markup(body)), None
        if powershell := self._host.which("powershell.exe"):  # WSL: the desktop is Windows
            return self._toast(powershell, title, body)
        raise Missing(
            "desktop: notify-send is not installed",
            "install libnotify (libnotify-bin), or take desktop out of notifiers",
        )

    def _toast(self, program: str, title: str, body: str) -> tuple[Sequence[str], bytes]:
        """Return the PowerShell command that shows a toast, and its standard input."""
        script = base64.b64encode(_TOAST_SCRIPT.encode("utf-16-le")).decode()
        standard_input = json.dumps({"title": title, "message": body}).encode()
        return (program, "-NoProfile", "-NonInteractive", "-EncodedCommand", script), standard_input

    def _program(self, name: str) -> str:
        """Return the program's path. Raises `Missing`."""
        path = self._host.which(name)
        if path is None:
            raise Missing(f"desktop: {name} is not there", "take desktop out of notifiers")
        return path
