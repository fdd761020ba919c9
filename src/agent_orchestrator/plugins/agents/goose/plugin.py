"""`goose`: heard by its session store, its logs and its terminal's prompts (docs/agents/goose.md)."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.threads import aside
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.goose.listener import FAILED, QUOTA, Ear, shows_dialog
from agent_orchestrator.plugins.agents.goose.session_store import Place, Store, calls_in, parts_of
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.input_prompts import PromptLog, log_size
from agent_orchestrator.protocols import (
    AgentContext,
    AgentLaunch,
    AgentRun,
    Delivery,
    Found,
    Heard,
    Held,
    Kept,
    ScreenRules,
    Turn,
    TurnLine,
    Typable,
)
from agent_orchestrator.protocols.host import ProcessId
from agent_orchestrator.protocols.reports import ConversationReport, LimitReport, Report, TurnReport, UsageReport

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL = "install goose: https://block.github.io/goose/docs/getting-started/installation"
MODES = {"default": "approve", "plan": "chat", "auto-edit": "approve", "full": "auto"}
"""With `auto-edit` goose asks for everything too; what it may do is answered by rule."""
SETTLED = 0.2


class Goose:
    """Starts goose, types into it only at its prompt, and hears it."""

    screen = ScreenRules()
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("Enter",), "deny": ("Down", "Down", "Enter")}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        del config
        self._host = host
        self._words = ""
        self._pieces: list[str] = []
        self._model = ""
        self._conversation = ""
        self._before: list[float] = [0, 0, 0.0]

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Its store, its configuration, and the session's own logs."""
        place, home = Place.of(env, private), Path(env.get("HOME") or Path.home())
        root = env.get("GOOSE_PATH_ROOT")
        own = Path(root) / "config" if root else Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "goose"
        kept = cli.kept(own, "config.yaml", "recipes", "skills")
        return replace(kept, writable=(*kept.writable, place.store.path.parent.parent, place.state))

    async def detect(self) -> Found | None:
        """It starts in a moment."""
        return await cli.detect(self._host, "goose")

    def typed(self, text: str) -> str:
        """A message is never a command of goose's."""
        return f" {text}" if text.startswith("/") else text

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """`goose run --interactive` with the task, or with the message it is started again for; `goose session` without one."""
        program = cli.program(self._host, "goose", context, INSTALL)
        place = Place.of(context.env, context.private)
        known, spent, row = await aside(_known, place.store, context.resume)
        name = known or f"{context.session}-{secrets.token_hex(4)}"
        argv = ["--session-id" if known else "--name", name, *(["--resume"] if known else [])]
        if MODES.get(context.permissions) == "approve":
            argv.append("--debug")  # whole commands and paths where something is asked
        text = context.message if context.resume is not None else context.task or context.prompt
        env = {**_env(context), "XDG_STATE_HOME": str(place.state)}
        if text:
            system = [f"--system={context.system}"] if context.system else []
            text = self.typed(cli.fitting(text, context))
            argv = [program, "run", "--interactive", *argv, *system, f"--text={text}"]
        else:
            rules = context.private / "goose" / "rules.md"
            rules.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            rules.write_text(context.system, encoding="utf-8")
            argv, env["GOOSE_MOIM_MESSAGE_FILE"] = [program, "session", *argv], str(rules)
        memo = {
            "session": name,
            "store": str(place.store.path),
            "logs": str(place.logs),
            "spent": json.dumps(spent),
            "row": str(row),
            "log": str(log_size(context)),
        }
        return AgentLaunch(tuple(argv), env, waits=not text, conversation=name, memo=memo)

    # -- hearing -------------------------------------------------------------------------------------------------------

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """Its store tells what was said and spent, its log of errors, its terminal when it waits or asks."""
        ear = Ear(run)
        alive = True
        while True:
            async for heard in ear.hear():
                yield heard
            if not alive:
                return
            alive = await run.changes.next(SETTLED if ear.pending else None)

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | Typable | None:
        """Typed only at its own prompt: what comes while it works is run together with what comes next."""
        del text
        prompts = PromptLog(run.log, int(run.memo.get("log", "0")))
        if prompts.look() is not None:
            return Typable()
        if shows_dialog(prompts.tail()):
            return Held("the agent waits for a permission")
        if interrupt:
            self._interrupt(run, message)
        return Held("goose takes messages between its turns")

    def _interrupt(self, run: AgentRun, message: str) -> None:
        """Once for each message."""
        mark = run.private / "goose" / "interrupted"
        if mark.exists() and mark.read_text() == message:
            return
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.write_text(message)
        self._host.kill(ProcessId(run.pid, run.started), signal.SIGINT, group=True)

    # -- headless ------------------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> Turn:
        """`goose run`, one JSON object a line; it reads its instructions from standard input."""
        if MODES.get(context.permissions) == "approve":
            raise UsageError(
                f"goose without a terminal has nobody to ask, as permissions: {context.permissions} wants it",
                "set mode: tui, or permissions: plan or full",
            )
        program = cli.program(self._host, "goose", context, INSTALL)
        place = Place.of(context.env, context.private)
        known = place.store.find(conversation) if conversation else None
        name = known or f"{context.session}-{secrets.token_hex(4)}"
        which = ["--session-id", name, "--resume"] if known else ["--name", name]
        system = [f"--system={context.system}"] if context.system else []
        argv = (program, "run", *which, *system, "--output-format=stream-json", "--instructions=-")
        self._words, self._pieces, self._model, self._conversation = "", [], context.model or "", name
        self._before = place.store.sums(known) if known else [0, 0, 0.0]
        return Turn(argv, _env(context), stdin=self.typed(prompt))

    def read_turn(self, line: str) -> TurnLine:
        """Messages come in pieces; the last object says what was spent."""
        try:
            data = json.loads(line)
        except ValueError:
            return TurnLine(line)
        message = data.get("message") if isinstance(data, dict) else None
        if isinstance(message, dict):
            return TurnLine(self._shown(message))
        if isinstance(data, dict) and data.get("type") == "complete":
            return TurnLine(self._said(), (*self._spent(data), *self._ended()))
        return TurnLine()

    def _shown(self, message: Mapping[str, Any]) -> str:
        parts = parts_of(message.get("content"))
        if message.get("role") == "assistant":
            self._pieces += [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
        calls = calls_in(parts)
        said = self._said() if calls else ""
        return "\n".join(filter(None, [said, *(f"▸ {call}" for call in calls)]))

    def _said(self) -> str:
        """What the agent said since, put together."""
        self._words, self._pieces = "".join(self._pieces).strip(), []
        return self._words

    def _spent(self, data: Mapping[str, Any]) -> tuple[Report, ...]:
        """Its sums are those of the whole conversation."""
        given, taken = int(data.get("input_tokens") or 0), int(data.get("output_tokens") or 0)
        given, taken = given - int(self._before[0]), taken - int(self._before[1])
        return (UsageReport(self._model, given, taken),) if given + taken > 0 else ()

    def _ended(self) -> tuple[Report, ...]:
        conversation = ConversationReport(self._conversation)
        failed = FAILED.match(f"{self._words}\n\n")
        if failed and QUOTA.search(failed["error"]):
            return (conversation, LimitReport())
        if failed:
            return (
                conversation,
                TurnReport(f"The model could not be asked ({failed['error']}). Shall it be tried again?"),
            )
        return (conversation, TurnReport(self._words))


def _known(store: Store, session: str | None) -> tuple[str | None, list[float], int]:
    """A session's id if it is there, what it has taken so far, and the number of the store's last message."""
    known = store.find(session) if session else None
    return known, store.sums(known) if known else [0, 0, 0.0], store.last_row()


def _env(context: AgentContext) -> dict[str, str]:
    env = {"GOOSE_MODE": MODES.get(context.permissions, "approve"), "GOOSE_PROMPT_EDITOR_ALWAYS": "false"}
    return {**env, "GOOSE_MODEL": context.model} if context.model else env
