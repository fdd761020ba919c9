"""the-name: notify people by a POST of JSON to a URL."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, ClassVar

from agent_orchestrator.errors import AoError, Doubtful, Temporary, UsageError
from agent_orchestrator.protocols import (
    Host,
    Notification,
    Notifier,
    clean_text,
    one_line,
)


class TheClass(Notifier):
    """Sends `{title, text, level, session, url}`; change it to what your service expects."""

    name = "the-name"
    permissions: ClassVar = ["network", "secrets"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        del host  # nothing of this machine is needed
        self._url = str(config.get("url") or "")
        if not self._url.startswith(("https://", "http://")):
            raise UsageError("notifiers.the-name.url is no address of the web", "write url: https://…")

    async def notify(self, notification: Notification) -> None:
        """Send the notification; raise `Temporary` if a retry may work, `Doubtful` if it may have arrived."""
        await asyncio.to_thread(self._post, _payload(notification))

    def _post(self, payload: Mapping[str, Any]) -> None:
        data = json.dumps(payload, ensure_ascii=False).encode()
        request = urllib.request.Request(self._url, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                answer.read(1024)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 429 or error.code >= 500:
                    raise Temporary(f"the-name answered {error.code}", "it is tried again by itself") from None
                raise AoError(f"the-name answered {error.code}", "check notifiers.the-name.url") from None
        except TimeoutError:
            raise Doubtful("the-name did not answer in time", "it is tried again by itself") from None
        except OSError as error:
            reason = one_line(str(getattr(error, "reason", error)))
            raise Temporary(f"the-name could not be reached: {reason}", "check the network") from None


def _payload(notification: Notification) -> dict[str, Any]:
    """Return the JSON to send. The texts may be untrusted: control characters are removed, and no markup is used."""
    return {
        "title": one_line(notification.title, 200) or "Agent Orchestrator",
        "text": clean_text(notification.message)[:4000],
        "level": notification.level,
        "session": notification.session_id,
        "url": notification.url,
    }
