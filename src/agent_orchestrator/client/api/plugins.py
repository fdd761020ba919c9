"""Base classes for agents and notifiers written by users: named in `plugins:`, they work like the built-in ones.

An `AgentPlugin` runs in a separate process, in its session's terminal and workspace (`run_plugin.py`). It has one of two forms:
`execute_task`, which does a task and returns; or `start` and `send_message` (optionally `get_status` and `stop`), which keeps
running and receives messages.
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
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    InstalledAgent,
    Notification,
    Notifier,
    ScreenRules,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

STATES = ("working", "idle", "waiting", "error", "done")


@dataclass(frozen=True)
class AgentConfig:
    """The settings an agent is started with."""

    session_id: str
    project_id: str
    workspace_path: str
    branch: str
    base: str
    task: Task
    """What to do; its `description` is the whole prompt."""
    system: str = ""
    """Instructions: how to work here, how to report, and the project's rules."""
    model: str | None = None
    permissions: str = "auto-edit"
    resumed: bool = False
    """Whether it was started before and continues: `task` is then the message that it is started for, if there is one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The plugin's part of the configuration."""

    def report(self, event: str, **data: object) -> None:
        """Send a report to the daemon, named as in docs/agents/command.md: `progress`, `usage`, `ask` …"""
        append_record(os.environ.get("AO_SPOOL", ""), {"event": event, **data})

    def progress(self, done: int | None = None, total: int | None = None, step: str | None = None) -> None:
        """Report the progress."""
        values = {"done": done, "total": total, "step": step}
        self.report("progress", **{key: value for key, value in values.items() if value is not None})

    def usage(self, model: str, input: int, output: int, usd: float | None = None) -> None:  # noqa: A002 - the report's own name
        """Report the tokens used and their cost."""
        self.report("usage", model=model, input=input, output=output, **({} if usd is None else {"usd": usd}))


@dataclass(frozen=True)
class AgentStatus:
    """The state of an agent: `working`, `idle`, `waiting` (for a person), `error` or `done`."""

    state: str
    current_task: str | None = None
    last_activity: datetime | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise UsageError(f"there is no agent state {self.state!r}", f"the states are {', '.join(STATES)}")


class Plugin:
    """The base class of agents and notifiers: their name, and how they are created."""

    slot: ClassVar[str]
    name: str = ""
    config: Mapping[str, Any] = MappingProxyType({})
    """The plugin's part of the configuration."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """`config` is the plugin's part of the configuration. A subclass may define another `__init__`, also one without parameters."""
        self.config = config or {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], host: Host | None) -> Plugin:
        """Create the plugin with as many of `config` and `host` as its `__init__` accepts."""
        parameters = [
            parameter
            for parameter in inspect.signature(cls).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
        ]
        accepted = 2 if any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters) else len(parameters)
        arguments: tuple[Any, ...] = (config, host)
        plugin = cls(*arguments[:accepted])
        plugin.config = plugin.config or config
        return plugin


class AgentPlugin(Plugin, Agent):
    """An agent written in Python. Override `execute_task`, or `start` and `send_message`."""

    slot = "agent"
    screen = ScreenRules()
    interrupt_keys: tuple[str, ...] = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    # -- to be overridden ----------------------------------------------------------------------------------------------

    async def execute_task(self, task: Task, context: AgentConfig) -> Any:
        """Do a task in the workspace, which is the working directory; what is committed there becomes the pull request.

        Return a summary, or an object with `success` and `summary`. Raising, or `success` false, means failure.
        """
        raise NotImplementedError

    async def start(self, config: AgentConfig) -> None:
        """Start the agent; return when it is ready for messages."""
        raise NotImplementedError

    async def send_message(self, session_id: str, message: str) -> None:
        """Handle a message; return when it is handled."""
        raise NotImplementedError

    async def get_status(self, session_id: str) -> AgentStatus | None:  # noqa: ARG002 - used by overrides
        """Return the status, or None for the default: working while `start` or `send_message` runs, else idle."""
        return None

    async def stop(self, session_id: str) -> None:
        """Clean up before the process ends."""

    # -- called by the daemon ------------------------------------------------------------------------------------------

    @classmethod
    def is_one_shot(cls) -> bool:
        """Return whether it does a task and ends; raise UsageError unless it has exactly one of the two forms."""
        forms = [name for name in ("execute_task", "start") if getattr(cls, name) is not getattr(AgentPlugin, name)]
        if len(forms) != 1:
            problem = "both execute_task and start" if forms else "neither execute_task nor start"
            raise UsageError(f"the agent plugin {cls.__name__} has {problem}", "write one of them")
        return forms == ["execute_task"]

    async def detect(self) -> InstalledAgent | None:
        """Return where the class is defined: a plugin of the configuration is always installed."""
        self.is_one_shot()
        return InstalledAgent(_location_of(type(self))["file"] or type(self).__module__)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Write the plan to a file and return the command that runs the plugin in a separate process."""
        one_shot = self.is_one_shot()
        inbox, file = context.private / "inbox.jsonl", context.private / "plugin.json"
        text = context.message or context.task or context.prompt
        plan = {
            **_location_of(type(self)),
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
        # -P: do not import modules from the workspace. PYTHONSAFEPATH would be inherited by what the agent runs.
        argv = (sys.executable, "-P", "-u", "-m", "agent_orchestrator.client.api.run_plugin", str(file))
        return AgentLaunch(
            argv,
            waits=not one_shot and context.resume is not None and not context.message,
            conversation=context.session,
            inbox=True,
        )


class NotifierPlugin(Plugin, Notifier):
    """A notifier written in Python."""

    slot = "notifier"

    async def notify(self, notification: Notification) -> None:
        """Send a notification to people; raise `agent_orchestrator.errors.Temporary` to have it retried."""
        raise NotImplementedError


def _location_of(kind: type[Any]) -> dict[str, str]:
    """Return where another process finds a class: in a file, or in a module that can be imported."""
    module = sys.modules[kind.__module__]
    file = (
        getattr(module, "__file__", None)
        if module.__spec__ is None or "agent_orchestrator_plugin_" in module.__name__
        else None
    )
    return {"file": str(Path(file).absolute()) if file else "", "module": kind.__module__, "class": kind.__qualname__}


def append_record(path: str, record: Mapping[str, object]) -> None:
    """Append one JSON line with a single write, so that lines of several writers never mix."""
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(record, default=str).encode() + b"\n")
        finally:
            os.close(descriptor)
