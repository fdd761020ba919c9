"""A simulated launch: a test writes the agent's records and screen, and gets the plugin's reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.protocols import Agent, ReportBatch, RunningLaunch
from agent_orchestrator.protocols import reports as r


class NudgedChanges:
    """`protocols.Changes` driven by a test: changes, timeouts, and the end of the agent."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.ended = ended
        self.waits = asyncio.Event()
        self._changed = asyncio.Event()

    def watch(self, path: Path) -> None:
        """Do nothing: the test wakes the listener."""

    def nudge(self) -> None:
        self.waits.clear()
        self._changed.set()

    async def next(self, within: float | None = None) -> bool:
        del within
        self.waits.set()
        if not self.ended.is_set():
            await self._changed.wait()
        self._changed.clear()
        return not self.ended.is_set()


@dataclass
class PlayedLaunch:
    """One launch of one plugin."""

    agent: Agent
    folder: Path
    memo: Mapping[str, str]
    conversation: str | None = None
    cursors: Mapping[str, int] = field(default_factory=dict)
    visible: str = ""
    batches: list[ReportBatch] = field(default_factory=list)

    async def __aenter__(self) -> PlayedLaunch:
        self.ended = asyncio.Event()
        self.changes = NudgedChanges(self.ended)
        self.log = self.folder / "terminal.log"
        self.log.touch()
        self.run = RunningLaunch(
            session="app-x",
            generation=1,
            pid=1,
            started="1",
            workspace=self.folder / "workspace",
            private=self.folder,
            log=self.log,
            conversation=self.conversation,
            plugin_data=self.memo,
            cursors=self.cursors,
            changes=self.changes,
            screen=self._screen,
            ended=self.ended,
        )
        self._task = asyncio.get_running_loop().create_task(self._listen(self.run))
        await self._settle()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.ended.set()
        self.changes.nudge()
        await asyncio.wait_for(self._task, 60)

    async def _screen(self) -> str:
        return self.visible

    async def _listen(self, run: RunningLaunch) -> None:
        async for heard in self.agent.listen(run):
            self.batches.append(heard)

    async def _settle(self) -> None:
        waits = asyncio.get_running_loop().create_task(self.changes.waits.wait())
        await asyncio.wait([waits, self._task], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()

    async def write_and_read(
        self, path: Path | None = None, *records: Mapping[str, Any], prints: str = ""
    ) -> list[Any]:
        """Write records to a file of the agent and text to its terminal, and return the reports."""
        before = len(self.batches)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(prints)
        self.changes.nudge()
        await self._settle()
        return [report for heard in self.batches[before:] for report in heard.reports]

    def read_positions(self) -> dict[str, int]:
        """How far each place was read: what a later reading is given."""
        return {heard.source_id: heard.end for heard in self.batches if heard.source_id}


def kinds(reports: list[Any]) -> list[str]:
    """Return the reports in short."""
    return [
        str(report.state) if isinstance(report, r.ActivityReport) else type(report).__name__.removesuffix("Report")
        for report in reports
    ]
