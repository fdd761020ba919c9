"""the-name: an agent that runs a program of yours on the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from agent_orchestrator.errors import Missing
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    Host,
    InstalledAgent,
    ScreenRules,
)

SCRIPT = """\
cp "$AO_TASK_FILE" the-name.md
git add the-name.md
git commit -q -m "Write the task down"
echo '{"event": "done", "summary": "wrote the task down"}' >>"$AO_SPOOL"
"""


class TheClass(Agent):
    """Runs a few lines of shell; replace them with your own CLI."""

    name = "the-name"
    permissions: ClassVar = ["processes"]
    screen = ScreenRules()
    interrupt_keys: tuple[str, ...] = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._program = str(config.get("program", "sh"))
        self._host = host

    async def detect(self) -> InstalledAgent | None:
        """Return the program's path, or None if it is not installed."""
        path = self._host.which(self._program)
        return InstalledAgent(path) if path else None

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the program's full path and arguments. The task is `context.prompt`, and in `$AO_TASK_FILE`."""
        path = self._host.which(self._program, context.env.get("PATH"))
        if path is None:
            raise Missing(f"the program {self._program} is not installed", "install it, or set `program`")
        return AgentLaunch((path, "-c", SCRIPT))
