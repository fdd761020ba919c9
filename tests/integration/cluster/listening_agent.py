"""An agent plugin for tests: a shell whose journal is read, and that gets messages through a file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from agent_orchestrator.protocols import (
    Activity,
    Agent,
    AgentContext,
    AgentLaunch,
    Delivered,
    Delivery,
    InstalledAgent,
    ReadyToType,
    ReportBatch,
    RunningLaunch,
    ScreenRules,
)
from agent_orchestrator.protocols import reports as r


class ListeningAgent(Agent):
    """Reads the file `journal` in its private folder."""

    name = "listening"
    screen = ScreenRules()
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any], host: object) -> None:
        del host
        self._prefix = str(config.get("word", ""))

    async def detect(self) -> InstalledAgent | None:
        return InstalledAgent(str(Path(__file__)), self._prefix)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        journal = context.private / "journal"
        journal.write_text("")
        return AgentLaunch(("/bin/sh", "-c", f"cat > {journal}"), plugin_data={"journal": str(journal)})

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        journal, place = Path(run.plugin_data["journal"]), "journal"
        run.changes.watch(journal)
        position, is_running = run.cursors.get(place, 0), True
        while True:
            for line in journal.read_bytes()[position:].splitlines(keepends=True):
                report = r.ActivityReport(Activity.ACTIVE, line.decode().strip())
                yield ReportBatch((report,), "transcript", place, position, position + len(line))
                position += len(line)
            if not is_running:
                yield ReportBatch((r.TurnReport(await run.screen()),), "screen")
                return
            is_running = await run.changes.next()

    async def deliver(
        self, run: RunningLaunch, message: str, text: str, *, interrupt: bool
    ) -> Delivery | ReadyToType | None:
        if interrupt:
            return ReadyToType(("C-u",))
        with (run.private / "took").open("a") as file:
            file.write(json.dumps([message, text]) + "\n")
        return Delivered()

    def escape_input(self, text: str) -> str:
        return f"{self._prefix} {text}"


plugin = ListeningAgent
