"""The plugin `demo`: a scripted agent that needs no model and no key. For trying things out, for tests, and as a template for plugins."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agent_orchestrator
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.shared.spool import parse
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    InstalledAgent,
    ScreenRules,
    TurnCommand,
    TurnLine,
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

PROGRAM = Path(agent_orchestrator.__file__).parent / "testing" / "demo_agent" / "program.py"
PLANNER = PROGRAM.parent.with_name("demo_planner.py")
_START = "import sys; sys.path.append(sys.argv.pop(1)); from demo_agent.program import main; sys.exit(main())"
COMMAND = (sys.executable, "-I", "-S", "-c", _START, str(PROGRAM.parents[1]))
"""The command that starts the scripted agent without unneeded start-up work."""


class Demo(Agent):
    """The agent plugin that runs `testing/demo_agent/`, which does what directives in its task and messages say."""

    screen = ScreenRules(ready=re.compile(r"^> *$", re.MULTILINE), blocked=re.compile(r"\(y/n\) *$", re.MULTILINE))
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("y",), "always": ("a",), "deny": ("n",)}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        del host  # the program is part of this package
        self._script = _read_text(config, "script")
        self._log = _read_text(config, "log") or os.environ.get("AO_DEMO_LOG", "")

    async def detect(self) -> InstalledAgent | None:
        """Return the program, which is part of this package."""
        return InstalledAgent(str(PROGRAM), agent_orchestrator.__version__)

    def conversation_files(self, env: Mapping[str, str], workspace: Path, conversation: str) -> tuple[Path, ...]:
        """Return no files: the agent has no conversation to keep."""
        del env, workspace, conversation
        return ()

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command; it reads its task from the task file, and a resumed one does not begin the task again but gets a
        message.
        """
        env = {"AO_TASK_FILE": str(context.task_file), **_task_length(context, context.prompt)}
        if self._script:
            env["AO_DEMO_SCRIPT"] = self._script
        if self._log:
            env["AO_DEMO_LOG"] = self._log
        if not context.edits:
            env["AO_DEMO_READS"] = "1"
        argv: tuple[str, ...] = COMMAND
        if context.resume is not None:
            argv += ("--resume",)
        is_resumed = context.resume is not None
        return AgentLaunch(
            argv, env, paste=context.message or None, waits=is_resumed, conversation=context.resume or context.session
        )

    # -- without a terminal --------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> TurnCommand:
        """Return the command of a headless turn: with a schema the planner (`testing/demo_planner.py`), otherwise the scripted agent."""
        if context.schema:
            repeat_option = ("--again",) if conversation else ()
            state = str(context.private / "demo-plan.json")
            return TurnCommand((sys.executable, "-I", "-S", str(PLANNER), state, *repeat_option), stdin=prompt)
        file = context.private / "demo-turn.md"
        file.write_text(prompt, encoding="utf-8")
        return TurnCommand(COMMAND, {"AO_TASK_FILE": str(file), **_task_length(context, prompt)})

    def read_turn(self, line: str) -> TurnLine:
        """Parse one line: a record of the planner; the scripted agent's output is shown, since it reports through the spool."""
        try:
            data = json.loads(line)
            kind = data["demo"]
        except (ValueError, KeyError, TypeError):
            return TurnLine(line)
        match kind:
            case "conversation":
                return TurnLine(reports=(r.ConversationReport(str(data["id"])),))
            case "turn":
                return TurnLine(reports=(r.TurnReport(str(data["text"])),))
            case "report":
                return TurnLine(reports=(parse(json.dumps(data["report"]).encode()),))
        return TurnLine(str(data.get("text") or ""))


def _task_length(context: AgentContext, prompt: str) -> dict[str, str]:
    """Return the length of the task in a prompt: what follows are rules, which come with a repository and must not be run as a script."""
    return {"AO_DEMO_TASK": str(len(context.task))} if context.task and prompt.startswith(context.task) else {}


def _read_text(config: Mapping[str, Any], key: str) -> str:
    """Return a text from the configuration; raise `UsageError` if it is not one."""
    value = config.get(key) or ""
    if not isinstance(value, str):
        raise UsageError(f"`{key}` of the demo agent is not text", f"write it as `{key}: |` with text below")
    return value
