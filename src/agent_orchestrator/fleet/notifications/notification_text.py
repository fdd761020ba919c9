"""The text of notifications: one notice as it is, several notices as a list."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from agent_orchestrator.core.notices import Notice
from agent_orchestrator.core.rules.model import PRIORITIES
from agent_orchestrator.protocols import Notification, NotificationAction
from agent_orchestrator.protocols.text import one_line

MAX_LINES = 40
"""The most notices that a list shows; the rest is counted."""
MAX_LINE_LENGTH = 300


def single_notification(notice: Notice, url: str, actions: Sequence[NotificationAction] = ()) -> Notification:
    """Return the notification of one notice, with the actions that are possible."""
    address = f"{url}/sessions/{quote(notice.session)}" if notice.session else url
    return Notification(
        title=notice.title,
        message=notice.message,
        level=notice.level,
        session_id=notice.session or None,
        project=notice.project or None,
        trigger=notice.trigger,
        id=notice.id,
        time=notice.at,
        url=address if url else "",
        actions=tuple(actions),
    )


def combined_notification(notices: Sequence[Notice], url: str) -> Notification:
    """Return several notices as one notification, the most urgent first."""
    ordered = sorted(notices, key=lambda notice: (_urgency_rank(notice.level), notice.at))
    lines = [one_line(f"• {notice.title}: {notice.message}", MAX_LINE_LENGTH) for notice in ordered[:MAX_LINES]]
    if len(ordered) > MAX_LINES:
        lines.append(f"… and {len(ordered) - MAX_LINES} more: ao events")
    projects, sessions = {notice.project for notice in notices}, {notice.session for notice in notices}
    project = projects.pop() if len(projects) == 1 else ""
    session = sessions.pop() if len(sessions) == 1 else ""
    return Notification(
        title=f"{len(notices)} notifications{f' of {project}' if project else ''}",
        message="\n".join(lines),
        level=ordered[0].level,
        session_id=session or None,
        project=project or None,
        trigger="digest",
        id=f"{notices[0].id}+{len(notices) - 1}",
        time=max(notice.at for notice in notices),
        url=url,
    )


def _urgency_rank(level: str) -> int:
    return PRIORITIES.index(level) if level in PRIORITIES else len(PRIORITIES)
