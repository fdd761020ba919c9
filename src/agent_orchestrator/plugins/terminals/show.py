"""Shows sessions on a person's screen by a plugin of the slot Terminal. Run by `ao open`, in the person's own environment:

    python -m agent_orchestrator.plugins.terminals.show [--print]

It reads one JSON object, `{"windows": [{session, command, cwd, url, terminal: {plugin, options, files}}, …]}`, and answers with a line
of JSON for each window: `{session, terminal}` and, where it could not be shown, `problem`; with `--print` the programs that it would
have started, in `runs`. A plugin of others is loaded only with the very content that the daemon admitted.
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
from agent_orchestrator.config.projects.plugin_registry import Registry
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.terminals.auto import pick
from agent_orchestrator.protocols import Terminal, Window
from agent_orchestrator.protocols.host import Completed, Host


class Told(LocalHost):
    """This machine, where nothing is started: what would have been is written down."""

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
    ) -> Completed:
        """Say that all went well."""
        del cwd, env, input, timeout
        self.runs.append(shlex.join(argv))
        return Completed(0, b"", b"")

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> int:
        """Say that it runs."""
        del cwd, env, log
        self.runs.append(shlex.join(argv))
        return 0


def terminal(wanted: Mapping[str, Any], host: Host, environ: Mapping[str, str]) -> tuple[str, Terminal]:
    """The plugin that a project's configuration comes to here, and its name."""
    name, options = str(wanted["plugin"]), dict(wanted.get("options") or {})
    if name == "auto":
        name, chosen = pick(host, environ)
        options = {**chosen, **options}
    admitted = {one["path"]: one["sha256"] for one in wanted.get("files") or ()}
    registry = Registry(
        [{"path": path} for path in admitted],
        installed=[("terminal", name)],
        admit=lambda path, data: admitted.get(str(path)) == hashlib.sha256(data).hexdigest(),
    )
    made: Terminal = registry.make("terminal", name, options, host)
    return name, made


async def show(asked: Mapping[str, Any], *, only_tell: bool = False) -> dict[str, Any]:
    """Show one window, and say what came of it."""
    host = Told() if only_tell else LocalHost()
    said: dict[str, Any] = {"session": asked["session"], "terminal": str(asked["terminal"]["plugin"])}
    try:
        said["terminal"], made = terminal(asked["terminal"], host, os.environ)
        cwd = Path(asked["cwd"])
        window = Window(
            str(asked["session"]),
            tuple(map(str, asked["command"])),
            cwd if cwd.is_dir() else Path.home(),
            str(asked.get("url") or ""),
        )
        await made.open(window)
    except AoError as error:
        said["problem"] = {"text": error.text, "remedy": error.remedy, "exitCode": error.exit_code}
    if isinstance(host, Told):
        said["runs"] = host.runs
    return said


async def _show_all(asked: Mapping[str, Any], only_tell: bool) -> int:
    failed = 0
    for one in asked["windows"]:
        said = await show(one, only_tell=only_tell)
        failed = failed or int(said.get("problem", {}).get("exitCode", 0))
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    return failed


def main() -> int:
    """Show what standard input asks for; the first failure's exit code is ours."""
    return asyncio.run(_show_all(json.load(sys.stdin), "--print" in sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
