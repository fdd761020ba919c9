"""An agent plugin for tests: a shell that is heard by a journal beside its terminal, and takes messages by a file."""

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
    AgentRun,
    Delivered,
    Delivery,
    Found,
    Heard,
    ScreenRules,
    Typable,
)
from agent_orchestrator.protocols import reports as r


class Listening(Agent):
    """Reads `journal` in its private folder."""

    name = "listening"
    screen = ScreenRules()
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any], host: object) -> None:
        del host
        self._word = str(config.get("word", ""))

    async def detect(self) -> Found | None:
        return Found(str(Path(__file__)), self._word)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        journal = context.private / "journal"
        journal.write_text("")
        return AgentLaunch(("/bin/sh", "-c", f"cat > {journal}"), memo={"journal": str(journal)})

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        journal, place = Path(run.memo["journal"]), "journal"
        run.changes.watch(journal)
        at, going = run.cursors.get(place, 0), True
        while True:
            for line in journal.read_bytes()[at:].splitlines(keepends=True):
                said = r.ActivityReport(Activity.ACTIVE, line.decode().strip())
                yield Heard((said,), "transcript", place, at, at + len(line))
                at += len(line)
            if not going:
                yield Heard((r.TurnReport(await run.screen()),), "screen")
                return
            going = await run.changes.next()

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | Typable | None:
        if interrupt:
            return Typable(("C-u",))
        with (run.private / "took").open("a") as took:
            took.write(json.dumps([message, text]) + "\n")
        return Delivered()

    def typed(self, text: str) -> str:
        return f"{self._word} {text}"


plugin = Listening
