"""Comparison of reports: only those that would be recorded."""

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


def batches_of_section(section: str, ears: ConversationReader | None = None) -> list[ReportBatch]:
    ears = ears or ConversationReader(None, 0, {})
    return [heard for event in recorded(section) for heard in ears.read_event(event)]


def recorded_reports(heard: Iterable[ReportBatch]) -> list[r.Report]:
    """Return the reports that would be recorded: repeated states and keys are left out."""
    new_reports: list[r.Report] = []
    keys: set[tuple[str, int, int]] = set()
    state: r.Report | None = None
    for batch in heard:
        key = (batch.source_id, batch.start, batch.end)
        if batch.source_id and key in keys:
            continue
        keys.add(key)
        for report in batch.reports:
            if isinstance(report, r.ActivityReport) and report == state:
                continue
            if not isinstance(report, r.UsageReport | r.MessageTakenReport | r.ProgressReport | r.ConversationReport):
                state = report
            new_reports.append(report)
    return new_reports


def reports_of(kind: type[Any], heard: Iterable[ReportBatch]) -> list[Any]:
    return [report for report in recorded_reports(heard) if isinstance(report, kind)]


def states(heard: Iterable[ReportBatch]) -> list[r.Report]:
    kinds = (r.ActivityReport, r.TurnReport, r.PermissionReport, r.AskReport, r.LimitReport)
    return [report for report in recorded_reports(heard) if isinstance(report, kinds)]
