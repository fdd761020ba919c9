"""Agents and notifiers of one's own, as classes: named in `plugins:`, they work as the built-in ones do.

An `AgentPlugin` runs in a process of its own, in its session's terminal and workspace (`run_plugin.py`). It is written in one of two
forms: `execute_task`, which does a task and returns; or `start` and `send_message` (and, as far as it likes, `get_status` and `stop`),
which lives on and takes messages.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from agent_orchestrator.client.api.tasks import Task
from agent_orchestrator.errors import UsageError
from agent_orchestrator.protocols import AgentContext, AgentLaunch, Found, Notification, ScreenRules

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

STATES = ("working", "idle", "waiting", "error", "done")


@dataclass(frozen=True)
class AgentConfig:
    """What an agent is started with."""

    session_id: str
    project_id: str
    workspace_path: str
    branch: str
    base: str
    task: Task
    """What is to be done; its `description` is the whole prompt."""
    system: str = ""
    """How to work here, how to report, and the project's rules."""
    model: str | None = None
    permissions: str = "auto-edit"
    resumed: bool = False
    """It was started before, and goes on: `task` is the message that it is started for, if there is one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Its own part of the configuration."""

    def report(self, event: str, **data: object) -> None:
        """Report to the daemon, by the names of docs/agents/command.md: `progress`, `usage`, `ask` …"""
        append(os.environ.get("AO_SPOOL", ""), {"event": event, **data})

    def progress(self, done: int | None = None, total: int | None = None, step: str | None = None) -> None:
        """Say how far it is."""
        given = {"done": done, "total": total, "step": step}
        self.report("progress", **{key: value for key, value in given.items() if value is not None})

    def usage(self, model: str, input: int, output: int, usd: float | None = None) -> None:  # noqa: A002 - the report's own name
        """Say what was used."""
        self.report("usage", model=model, input=input, output=output, **({} if usd is None else {"usd": usd}))


@dataclass(frozen=True)
class AgentStatus:
    """What an agent is doing: `working`, `idle`, `waiting` (for a person), `error` or `done`."""

    state: str
    current_task: str | None = None
    last_activity: datetime | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise UsageError(f"there is no agent state {self.state!r}", f"the states are {', '.join(STATES)}")


class Plugin:
    """What agents and notifiers have in common: a name, and how they are made."""

    slot: ClassVar[str]
    name: str = ""
    config: Mapping[str, Any] = MappingProxyType({})
    """Its own part of the configuration."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """`config` is its own part of the configuration. A class may have an `__init__` of its own, without parameters too."""
        self.config = config or {}

    @classmethod
    def made(cls, config: Mapping[str, Any], host: Host | None) -> Plugin:
        """Make it the way its `__init__` allows."""
        takes = [
            one
            for one in inspect.signature(cls).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL)
        ]
        room = 2 if any(one.kind == one.VAR_POSITIONAL for one in takes) else len(takes)
        given: tuple[Any, ...] = (config, host)
        plugin = cls(*given[:room])
        plugin.config = plugin.config or config
        return plugin


class AgentPlugin(Plugin):
    """An agent written in Python. Override `execute_task`, or `start` and `send_message`."""

    slot = "agent"
    screen = ScreenRules()
    interrupt_keys: tuple[str, ...] = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    # -- to be overridden ----------------------------------------------------------------------------------------------

    async def execute_task(self, task: Task, context: AgentConfig) -> Any:
        """Do a task in the workspace, which is the working directory; what is committed there becomes the pull request.

        Returns a summary, or an object with `success` and `summary`. Raising, or `success` false, is failure."""
        raise NotImplementedError

    async def start(self, config: AgentConfig) -> None:
        """Begin; return when ready for messages."""
        raise NotImplementedError

    async def send_message(self, session_id: str, message: str) -> None:
        """Take a message; return when it was dealt with."""
        raise NotImplementedError

    async def get_status(self, session_id: str) -> AgentStatus | None:  # noqa: ARG002 - for whoever overrides it
        """What it is doing; none: at work while `start` or `send_message` runs, idle otherwise."""
        return None

    async def stop(self, session_id: str) -> None:
        """Clean up: the process ends."""

    # -- what the daemon asks of every agent ---------------------------------------------------------------------------

    @classmethod
    def is_one_shot(cls) -> bool:
        """Does it do a task and end?"""
        forms = [name for name in ("execute_task", "start") if getattr(cls, name) is not getattr(AgentPlugin, name)]
        if len(forms) != 1:
            both = "both execute_task and start" if forms else "neither execute_task nor start"
            raise UsageError(f"the agent plugin {cls.__name__} has {both}", "write one of them")
        return forms == ["execute_task"]

    async def detect(self) -> Found | None:
        """It is part of the configuration, and so always here."""
        self.is_one_shot()
        return Found(_home_of(type(self))["file"] or type(self).__module__)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Run it in a process of its own, with what it needs in a file."""
        one_shot = self.is_one_shot()
        inbox, file = context.private / "inbox.jsonl", context.private / "plugin.json"
        text = context.message or context.task or context.prompt
        plan = {
            **_home_of(type(self)),
            "options": dict(self.config),
            "context": {
                "session_id": context.session,
                "project_id": context.project,
                "workspace_path": str(context.workspace),
                "branch": context.branch,
                "base": context.base,
                "system": context.system,
                "model": context.model,
                "permissions": context.permissions,
                "resumed": context.resume is not None,
            },
            "text": text,
            "inbox": inbox.stat().st_size if inbox.exists() else 0,
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(plan, ensure_ascii=False, default=str), encoding="utf-8")
        # The workspace must not lend modules to this program; a variable that says so would reach what the agent runs.
        argv = (sys.executable, "-P", "-u", "-m", "agent_orchestrator.client.api.run_plugin", str(file))
        return AgentLaunch(
            argv,
            waits=not one_shot and context.resume is not None and not context.message,
            conversation=context.session,
            inbox=True,
        )


class NotifierPlugin(Plugin):
    """A notifier written in Python."""

    slot = "notifier"

    async def notify(self, notification: Notification) -> None:
        """Tell people; raises `agent_orchestrator.errors.Temporary` where it may be tried again."""
        raise NotImplementedError


def _home_of(kind: type[Any]) -> dict[str, str]:
    """Where a class is to be found by another process: in a file, or in a module that can be imported."""
    module = sys.modules[kind.__module__]
    file = (
        getattr(module, "__file__", None)
        if module.__spec__ is None or "agent_orchestrator_plugin_" in module.__name__
        else None
    )
    return {"file": str(Path(file).absolute()) if file else "", "module": kind.__module__, "class": kind.__qualname__}


def append(path: str, record: Mapping[str, object]) -> None:
    """Append one JSON line with a single write, so that lines of several writers never mix."""
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(record, default=str).encode() + b"\n")
        finally:
            os.close(descriptor)
