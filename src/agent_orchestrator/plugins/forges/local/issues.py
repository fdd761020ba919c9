"""Issues of a project on this machine (plugin slot `tracker`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.protocols.forge import IssueChange, Tracker, TrackerIssue
from agent_orchestrator.protocols.forge_storage import IssueStorage
from agent_orchestrator.protocols.host import Host

_MAX_DIGITS = 18
"""Largest number of digits that an issue's number may have."""


class LocalIssues(Tracker):
    """Issues on this machine, kept by the daemon."""

    name = "local"
    hosted: ClassVar[bool] = False

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:  # noqa: ARG002 - as all plugins are made
        records = config.get("records")
        if not isinstance(records, IssueStorage):
            raise UsageError(
                "the local tracker needs the daemon's records", "name it as tracker: local, and let the daemon make it"
            )
        self._records = records

    async def get(self, issue: str) -> TrackerIssue:
        """Read one issue with its comments. Raises `NotFound`."""
        return self._find(issue)

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[TrackerIssue]:
        """Return issues without their comments, the newest first."""
        return [
            replace(issue, comments=())
            for issue in reversed(self._records.all())
            if state in ("all", issue.state)
            and set(labels) <= set(issue.labels)
            and (assignee is None or issue.assignee == (None if assignee == "none" else assignee))
            and issue.updated_at >= since
        ]

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> TrackerIssue:
        """Create an issue."""
        return self._find(str(await self._records.create(title, body, labels)))

    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue. Work that begins or is in review changes nothing: there are no such states."""
        await self._records.change(
            int(self._find(issue).id), change if change.state in ("open", "closed") else replace(change, state=None)
        )

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Comment on an issue, once per key."""
        return await self._records.comment(int(self._find(issue).id), text, key)

    def _find(self, name: str) -> TrackerIssue:
        """Return an issue by its number. Raises `NotFound`."""
        digits = name.removeprefix("#")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS
        record = self._records.get(int(digits)) if is_number else None
        if record is None:
            raise NotFound(f"there is no issue {name}", "see them: ao issues")
        return record
