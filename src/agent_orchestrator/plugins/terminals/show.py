"""Shows sessions on a person's screen with a Terminal plugin. Run by `ao open`, in the person's own environment:

    python -m agent_orchestrator.plugins.terminals.show [--print]

It reads one JSON object, `{"windows": [{session, command, cwd, url, terminal: {plugin, options, files}}, …]}`, and writes a line of
JSON for each window: `{session, terminal}` and, if it could not be shown, `problem`; with `--print` the programs that it would have
started, in `runs`. A third-party plugin is loaded only with exactly the content that the daemon admitted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.terminals.auto import choose_terminal
from agent_orchestrator.protocols import Terminal, Window
from agent_orchestrator.protocols.host import Host, ProgramResult


class RecordingHost(LocalHost):
    """A host that starts nothing and records the commands that would have been run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[str] = []

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 - subprocess's own name
        timeout: float | None = 60.0,
    ) -> ProgramResult:
        """Record the command and return success."""
        del cwd, env, input, timeout
        self.runs.append(shlex.join(argv))
        return ProgramResult(0, b"", b"")

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> int:
        """Record the command and return pid 0."""
        del cwd, env, log
        self.runs.append(shlex.join(argv))
        return 0


def terminal(settings: Mapping[str, Any], host: Host, environ: Mapping[str, str]) -> tuple[str, Terminal]:
    """Return the name and the plugin that a project's configuration selects here."""
    name, options = str(settings["plugin"]), dict(settings.get("options") or {})
    if name == "auto":
        name, detected = choose_terminal(host, environ)
        options = {**detected, **options}
    admitted = {file["path"]: file["sha256"] for file in settings.get("files") or ()}
    registry = PluginRegistry(
        [{"path": path} for path in admitted],
        installed=[("terminal", name)],
        admit=lambda path, data: admitted.get(str(path)) == hashlib.sha256(data).hexdigest(),
    )
    plugin: Terminal = registry.create("terminal", name, options, host)
    return name, plugin


async def show(request: Mapping[str, Any], *, only_tell: bool = False) -> dict[str, Any]:
    """Show one window; return its result line."""
    host = RecordingHost() if only_tell else LocalHost()
    result: dict[str, Any] = {"session": request["session"], "terminal": str(request["terminal"]["plugin"])}
    try:
        result["terminal"], plugin = terminal(request["terminal"], host, os.environ)
        cwd = Path(request["cwd"])
        window = Window(
            str(request["session"]),
            tuple(map(str, request["command"])),
            cwd if cwd.is_dir() else Path.home(),
            str(request.get("url") or ""),
        )
        await plugin.open(window)
    except AoError as error:
        result["problem"] = {"text": error.text, "remedy": error.remedy, "exitCode": error.exit_code}
    if isinstance(host, RecordingHost):
        result["runs"] = host.runs
    return result


async def _show_all(request: Mapping[str, Any], only_tell: bool) -> int:
    """Show all windows, writing one line for each; return the first failure's exit code, or 0."""
    exit_code = 0
    for window in request["windows"]:
        result = await show(window, only_tell=only_tell)
        exit_code = exit_code or int(result.get("problem", {}).get("exitCode", 0))
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    return exit_code


def main() -> int:
    """Show the windows that standard input describes; return the first failure's exit code, or 0."""
    return asyncio.run(_show_all(json.load(sys.stdin), "--print" in sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
