"""the-name: run agents in terminals of our own, at a lower priority than everything else on the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_orchestrator.errors import Missing
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.protocols import Handle, Host, LaunchSpec


class TheClass(ProcessRuntime):
    """The `process` runtime with `nice` before each command. Another kind implements all methods of `Runtime` itself."""

    name = "the-name"
    socket_prefix = "the-name"
    permissions = ("processes",)

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        super().__init__(config, host)
        self._nice = host.which("nice")
        self._by = str(config.get("by", 10))

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start the command, or return what an earlier call with this session and generation started."""
        if self._nice is None:
            raise Missing("the program nice is not installed", "install coreutils")
        return await super().launch(replace(spec, argv=(self._nice, "-n", self._by, *spec.argv)))
