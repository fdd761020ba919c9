"""What tests compare of what was heard: the reports that would be recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_orchestrator.plugins.agents.opencode.server_events import ConversationReader
from agent_orchestrator.protocols import (
    Activity,
    ReportBatch,
)
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.opencode.server import recorded

ACTIVE, IDLE = r.ActivityReport(Activity.ACTIVE), r.ActivityReport(Activity.IDLE)


def heard_in(section: str, ears: ConversationReader | None = None) -> list[ReportBatch]:
    ears = ears or ConversationReader(None, 0, {})
    return [heard for event in recorded(section) for heard in ears.hear(event)]


def told(heard: Iterable[ReportBatch]) -> list[r.Report]:
    """What would be recorded: the same state again, and the same key again, is nothing new."""
    found: list[r.Report] = []
    keys: set[tuple[str, int, int]] = set()
    state: r.Report | None = None
    for one in heard:
        key = (one.source_id, one.start, one.end)
        if one.source_id and key in keys:
            continue
        keys.add(key)
        for report in one.reports:
            if isinstance(report, r.ActivityReport) and report == state:
                continue
            if not isinstance(report, r.UsageReport | r.MessageTakenReport | r.ProgressReport | r.ConversationReport):
                state = report
            found.append(report)
    return found


def of(kind: type[Any], heard: Iterable[ReportBatch]) -> list[Any]:
    return [report for report in told(heard) if isinstance(report, kind)]


def states(heard: Iterable[ReportBatch]) -> list[r.Report]:
    kinds = (r.ActivityReport, r.TurnReport, r.PermissionReport, r.AskReport, r.LimitReport)
    return [report for report in told(heard) if isinstance(report, kinds)]
