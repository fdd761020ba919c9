"""`codex`: OpenAI's Codex CLI, heard by its rollouts and by the status it writes to its terminal (docs/agents/codex.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.base.threads import aside
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.plugins.agents.codex import rollouts
from agent_orchestrator.plugins.agents.codex import screen as codex_screen
from agent_orchestrator.plugins.agents.codex.rollouts import GUARD, Rollouts
from agent_orchestrator.plugins.agents.codex.screen import Dialog, Signals
from agent_orchestrator.plugins.agents.shared import cli, user_files
from agent_orchestrator.protocols import (
    Activity,
    AgentContext,
    AgentLaunch,
    AgentRun,
    Delivery,
    Found,
    Heard,
    Held,
    Kept,
    Permission,
    ScreenRules,
    Turn,
    TurnLine,
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL = "install it: npm install -g @openai/codex"
MODELS_WITHIN = 5.0
DATABASES_WITHIN = 20.0
PAUSE = 0.1
"""Seconds between readings while it prints without end."""
LOOK_AGAIN = 0.3
MOST_LOOKS = 20
MCP_WITHIN = 60.0

POLICIES = {
    "default": ("read-only", "on-request"),
    "plan": ("read-only", "never"),
    "auto-edit": ("workspace-write", "on-request"),
}
"""Sandbox and approval policy for each of our permissions; `full` has neither."""

_first_starts: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
"""By Codex home."""

PLAN_ONLY = "Do not change anything now: look around, and end with a plan."


class Codex:
    """Runs `codex` interactively, or `codex exec` a turn."""

    screen = ScreenRules(ready=codex_screen.READY, busy=codex_screen.BUSY, blocked=codex_screen.ASKS)
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("y",), "deny": ("Escape",)}
    workspace = "clone"
    """Its sandbox makes a worktree's Git folder read-only: it could not commit there."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")
        self._args = _args(config)
        self._said = ""
        self._conversation = ""
        self._home = Path()
        self._counted: dict[str, int] = {}

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Its folder: login, rollouts."""
        del private
        return cli.kept(codex_home(env), "config.toml", "AGENTS.md", "hooks.json", "prompts", "rules", "skills")

    async def detect(self) -> Found | None:
        """Is `codex` here?"""
        return await cli.detect(self._host, "codex")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """`codex` or `codex resume`, with everything it would otherwise ask or save given as flags."""
        program = cli.program(self._host, "codex", context, INSTALL)
        home = codex_home(context.env)
        await self._databases(program, home, context.env)
        resumed = context.resume is not None
        prompt = context.message if resumed else context.task or context.prompt
        argv = [program, *(["resume"] if resumed else []), "--no-daemon", *self._model_flags(context)]
        argv += _flags(
            {
                "check_for_update_on_startup": False,
                "notice.hide_rate_limit_model_nudge": True,
                "notice.hide_full_access_warning": True,
                "notice.model_migrations": await self._migrations(program, home, context.env),
                "tui.resume_cwd": "current",
                **await aside(_settings, context, home),
            }
        )
        argv += [*_permission_flags(context), *self._args]
        if resumed and not context.resume:
            argv.append("--last")
        words = [context.resume] if context.resume else []
        if prompt:
            words.append(guarded(cli.fitting(prompt, context)))
        if words:
            argv += ["--", *words]
        await aside(rollouts.remember_start, context.private, home, context.resume, time.time())
        memo = {"home": str(home), "log": str(_size(context.private / "terminal.log")), "waits": "" if prompt else "1"}
        return AgentLaunch(tuple(argv), waits=not prompt, conversation=context.resume or None, memo=memo)

    def typed(self, text: str) -> str:
        """A message as it is typed: `!ls` and `/new` would be commands, and a last `@word` would open a menu that takes Enter."""
        text = guarded(text)
        if text.startswith("/"):
            text = f" {text}"
        last = text.split()[-1] if text.split() else ""
        return f"{text} " if "@" in last or "$" in last or "#" in last else text

    def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """Its rollouts tell of turns, messages, plans and usage; its terminal tells of dialogs and retries."""
        return _Listening(run).listen()

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Typed, but not into a menu or a dialog: that would take it for a choice."""
        del message, text, interrupt
        return Held("a menu is open in its terminal") if codex_screen.read(await _screen(run)) else None

    async def answer(self, run: AgentRun, permission: Permission, decision: str, text: str) -> Sequence[str] | None:
        """By the keys of the dialog that it shows just now; none: it shows none any more, or asks something else."""
        del text
        dialog = codex_screen.read(await _screen(run))
        if dialog is None or not (dialog.tool == "edit" or dialog.may_be(permission.command)):
            return None
        return dialog.keys(decision)

    async def _databases(self, program: str, home: Path, env: Mapping[str, str]) -> None:
        """Codex makes its databases at its first start, and of two first starts at once one fails: here it is one, of a server that
        finds nobody to serve.
        """
        lock = _first_starts.setdefault(str(home), asyncio.Lock())
        async with lock:
            if not any(home.glob("state_*.sqlite")):
                with contextlib.suppress(AoError):
                    await self._host.run([program, "app-server"], env=dict(env) or None, timeout=DATABASES_WITHIN)

    async def _migrations(self, program: str, home: Path, env: Mapping[str, str]) -> dict[str, str]:
        """Each model's successor: it asks at its start whether to change to it, unless it has been told of it."""
        known: list[Any] = []
        try:
            done = await self._host.run(
                [program, "debug", "models", "--bundled"], env=dict(env) or None, timeout=MODELS_WITHIN
            )
            known += json.loads(done.out)["models"]
        except (AoError, ValueError, KeyError, TypeError):
            pass
        known += await aside(_cached_models, home)
        return dict(successor for model in known if (successor := _successor(model)))

    def _model_flags(self, context: AgentContext) -> list[str]:
        model = context.model or self._model
        return ["--model", str(model)] if model else []

    # -- headless ------------------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> Turn:
        """`codex exec`, or `codex exec resume`; the prompt by standard input."""
        program = cli.program(self._host, "codex", context, INSTALL)
        home = codex_home(context.env)
        argv = [program, "exec", *(["resume"] if conversation is not None else [])]
        argv += ["--json", "--skip-git-repo-check", *self._model_flags(context)]
        argv += [*_flags(_settings(context, home)), *_permission_flags(context), *self._args]
        if context.schema:
            schema = context.private / "codex-schema.json"
            schema.write_text(context.schema, encoding="utf-8")
            argv += ["--output-schema", str(schema)]
        if conversation is not None:
            argv += ["--", conversation] if conversation else ["--last", "--"]
        argv.append("-")
        self._said, self._home = "", home
        if conversation and conversation != self._conversation:
            self._conversation, self._counted = conversation, rollouts.counted(home, conversation)
        return Turn(tuple(argv), stdin=prompt)

    def read_turn(self, line: str) -> TurnLine:
        """One event of `codex exec --json`."""
        try:
            event = json.loads(line)
        except ValueError:
            return TurnLine(line)
        if not isinstance(event, dict):
            return TurnLine(line)
        match event.get("type"):
            case "thread.started":
                self._conversation = str(event.get("thread_id"))
                return TurnLine(reports=(r.ConversationReport(self._conversation),))
            case "item.started" | "item.updated" | "item.completed":
                return self._item(event["type"] == "item.completed", event.get("item") or {})
            case "turn.completed":
                return TurnLine(reports=(self._usage(event.get("usage")), r.TurnReport(self._said)))
            case "turn.failed":
                return _failed(event.get("error") or {})
        return TurnLine()

    def _usage(self, counted: object) -> r.UsageReport:
        """What this turn used: it tells the sum over the whole conversation."""
        whole = {key: int(value or 0) for key, value in counted.items()} if isinstance(counted, dict) else {}
        new = {key: max(0, value - self._counted.get(key, 0)) for key, value in whole.items()}
        self._counted = whole or self._counted
        return rollouts.usage(new, rollouts.model_of(self._home, self._conversation), None)

    def _item(self, completed: bool, item: Mapping[str, Any]) -> TurnLine:
        match item.get("type"):
            case "agent_message" if completed:
                self._said = str(item.get("text") or "")
                return TurnLine(self._said)
            case "command_execution" if completed:
                code = item.get("exit_code")
                failed = f"\n(exit {code})" if code else ""
                return TurnLine(f"$ {item.get('command', '')}\n{item.get('aggregated_output') or ''}".rstrip() + failed)
            case "file_change" if completed:
                changes = [change for change in item.get("changes") or () if isinstance(change, dict)]
                return TurnLine("\n".join(f"{change.get('kind')} {change.get('path')}" for change in changes))
            case "todo_list":
                steps = [step for step in item.get("items") or () if isinstance(step, dict)]
                done = sum(bool(step.get("completed")) for step in steps)
                following = next((str(step.get("text")) for step in steps if not step.get("completed")), "")
                return TurnLine(reports=(r.ProgressReport(done, len(steps), following),))
            case "error" if completed:
                return TurnLine(f"! {item.get('message', '')}")
        return TurnLine()


class _Listening:
    """One launch, listened to."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._rollouts = Rollouts(Path(run.memo["home"]), run)
        begun, told = int(run.memo.get("log") or 0), run.cursors.get(Signals.place, 0)
        self._signals = Signals(run.log, max(begun, told))
        self._comes_to_rest = bool(run.memo.get("waits")) and told <= begun
        self._conversation = run.conversation
        self._state = ""
        """What was last heard: `turn`, `rest`, `blocked` or `retrying`."""
        self._due = "start"
        """What is to be looked for on the screen, and how often still."""
        self._looks = MOST_LOOKS
        self._after: datetime | None = None
        run.changes.watch(run.log)

    async def listen(self) -> AsyncIterator[Heard]:
        """Until the agent has ended."""
        alive = True
        while True:
            async for heard in self._by_rollouts():
                yield heard
            if not alive:
                return
            for heard in self._by_signals():
                yield heard
            if self._looks and (seen := self._on_screen(await _screen(self._run))):
                yield seen
            soon = self._looks and self._due != "start"
            alive = await self._run.changes.next(LOOK_AGAIN if soon else None)
            if alive:
                await asyncio.sleep(PAUSE)

    async def _by_rollouts(self) -> AsyncIterator[Heard]:
        async for thread, line in self._rollouts.read():
            heard = thread.heard(line, self._after)
            if not heard.reports:
                continue
            if thread.main and thread.id != self._conversation:
                self._conversation = thread.id
                heard = thread.journal.heard(line, r.ConversationReport(thread.id), *heard.reports)
            for report in heard.reports:
                if isinstance(report, r.ActivityReport | r.TurnReport | r.LimitReport):
                    active = isinstance(report, r.ActivityReport) and report.state == Activity.ACTIVE
                    self._state, self._comes_to_rest = "turn" if active else "rest", False
                    self._due, self._looks = "", 0
            yield heard

    def _by_signals(self) -> Iterator[Heard]:
        signals = self._signals.read()
        words = [signal.state for signal in signals if signal.state in ("retrying", "at work")]
        if statuses := [signal for signal in signals if signal.state not in ("retrying", "at work")]:
            last = statuses[-1]
            self._due, self._looks = ("blocked", MOST_LOOKS) if last.state == "blocked" else ("", 0)
            if last.state == "working" and self._state in ("", "blocked"):
                self._state = "turn"
                yield self._now("record", r.ActivityReport(Activity.ACTIVE))
            elif last.state == "idle" and self._comes_to_rest:
                self._state, self._comes_to_rest = "rest", False
                report = r.ActivityReport(Activity.IDLE)
                yield Heard((report,), "record", Signals.place, last.start, last.end)
        if not words or self._due in ("blocked", "start") or self._state == "blocked":
            return  # words that a dialog shows mean nothing
        self._due, self._looks = ("retrying", MOST_LOOKS) if words[-1] == "retrying" else ("", 0)
        if words[-1] == "at work" and self._state == "retrying":
            self._state = "turn"
            yield self._now("record", r.ActivityReport(Activity.ACTIVE))

    def _on_screen(self, screen: str) -> Heard | None:
        self._looks -= 1
        if self._due == "retrying":
            found = codex_screen.RETRYING.search(screen)
            if found is None:
                return None
            self._state, self._looks = "retrying", 0
            return self._now("record", r.ActivityReport(Activity.RETRYING, (found[2] or found[1]).strip()))
        if self._due == "start" and codex_screen.LOGIN.search(screen):
            return self._now("record", r.ActivityReport(Activity.WAITING_INPUT, codex_screen.NOT_LOGGED_IN))
        dialog = codex_screen.read(screen)
        if dialog is None:
            return None
        self._state, self._looks = "blocked", MOST_LOOKS if self._due == "start" else 0
        return self._now("screen", self._permission(dialog))

    def _permission(self, dialog: Dialog) -> r.PermissionReport:
        """What the dialog asks for: as it was called, if that is certain, since the screen breaks lines, cuts, and keeps the folder to
        itself. Otherwise as it is shown, with a `$` before it: no rule may take that for the command.
        """
        if not dialog.tool and dialog.keys("allow") is None:
            return r.PermissionReport("a question of its own", dialog.reason)
        if dialog.tool == "edit":
            calls = [call for call in self._rollouts.pending() if call.tool == "apply_patch"]
        else:
            typed = [call for call in self._rollouts.pending() if call.typed]
            calls = [call for call in typed if not dialog.tool or dialog.shows(call.typed)]
        if len({call.command for call in calls}) == 1:
            return r.PermissionReport(dialog.tool or "shell", calls[0].command, dialog.reason, calls[0].id)
        if dialog.cut or not dialog.tool:
            # What is out of sight may be something else the next time: this text must never come again.
            shown = f"$ {dialog.command} … (seen in part, {datetime.now(UTC).isoformat(timespec='milliseconds')})"
        else:
            shown = f"$ {dialog.command}" if dialog.tool == "shell" else dialog.command
        return r.PermissionReport(dialog.tool or "shell", shown, dialog.reason)

    def _now(self, source: str, report: r.ActivityReport | r.PermissionReport) -> Heard:
        self._after = datetime.now(UTC)
        return Heard((replace(report, time=self._after),), source)


async def _screen(run: AgentRun) -> str:
    try:
        return await run.screen()
    except AoError:
        return ""  # its end is told by others


def codex_home(env: Mapping[str, str]) -> Path:
    """Where the user's Codex keeps its login, settings and rollouts."""
    return Path(env.get("CODEX_HOME") or Path(env.get("HOME") or Path.home()) / ".codex")


def guarded(text: str) -> str:
    """A text that begins with `!` would be run as a shell command of the user's, outside of any sandbox."""
    return f"{GUARD}{text}" if text.lstrip().startswith("!") else text


def _args(config: Mapping[str, Any]) -> list[str]:
    given = config.get("args") or []
    if not isinstance(given, list | tuple) or not all(isinstance(word, str | int | float) for word in given):
        raise UsageError("`args` of codex is not a list of words", "for example args: [--search]")
    return [str(word) for word in given]


def _settings(context: AgentContext, home: Path) -> dict[str, Any]:
    """What holds for every way to start it."""
    own = _configuration(home)
    instructions = [own.get("developer_instructions"), context.system]
    if context.permissions == "plan":
        instructions.append(PLAN_ONLY)
    settings: dict[str, Any] = {
        "developer_instructions": "\n\n".join(str(part) for part in instructions if part),
        "projects": {root: {"trust_level": "trusted"} for root in _roots(context)},
        "tools.update_plan.enabled": True,
    }
    if context.permissions in POLICIES:
        settings["sandbox_mode"], settings["approval_policy"] = POLICIES[context.permissions]
    if not context.edits:
        settings["sandbox_mode"], settings["approval_policy"] = POLICIES["default"]
    if context.mcp:
        settings["mcp_servers.ao"] = _mcp(context)
    git = context.workspace / ".git"
    if context.permissions == "auto-edit" and context.edits and git.is_dir():
        table = own.get("sandbox_workspace_write")
        roots = table.get("writable_roots") if isinstance(table, dict) else None
        settings["sandbox_workspace_write.writable_roots"] = [*(roots or ()), str(git)]
    return settings


def _mcp(context: AgentContext) -> dict[str, Any]:
    """Our MCP server, opened by the token in the environment; its tools need no approval, they are what this session may do.

    Who makes no change can do nothing without them, and waits for them before his first turn; others begin.
    """
    approved: dict[str, Any] = {"default_tools_approval_mode": "approve"}
    if not context.edits:
        approved |= {"required": True, "startup_timeout_sec": MCP_WITHIN}
    if context.mcp.startswith("https:"):
        command, *args = cli.BRIDGE
        return {"command": command, "args": args, "env_vars": list(cli.BRIDGE_VARIABLES), **approved}
    return {"url": context.mcp, "bearer_token_env_var": "AO_TOKEN", **approved}


def _configuration(home: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(user_files.read_settings(home / "config.toml").decode())
    except (OSError, ValueError, RecursionError):
        return {}


def _cached_models(home: Path) -> list[Any]:
    """Those it was told of; agents write there too."""
    try:
        models = json.loads(user_files.read(home / "models_cache.json", home)[0])["models"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
    return models if isinstance(models, list) else []


def _successor(model: object) -> tuple[str, str] | None:
    """A model's name, and that of the one to change to."""
    upgrade = model.get("upgrade") if isinstance(model, dict) else None
    new = upgrade.get("model") if isinstance(upgrade, dict) else None
    old = model.get("slug") if isinstance(model, dict) else None
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def _roots(context: AgentContext) -> list[str]:
    """The folders that it may ask trust for: the workspace, or the checkout that its worktree belongs to."""
    layout = find_layout(context.repo)
    roots = [context.workspace, context.repo, *([layout.common.parent] if layout else [])]
    return list(dict.fromkeys(os.path.realpath(root) for root in roots))


def _flags(settings: Mapping[str, Any]) -> list[str]:
    return [
        word for key, value in settings.items() if value not in ("", {}) for word in ("-c", f"{key}={_toml(value)}")
    ]


def _permission_flags(context: AgentContext) -> list[str]:
    free = context.permissions == "full" and context.edits
    return ["--dangerously-bypass-approvals-and-sandbox"] if free else []


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return json.dumps(value).replace("\x7f", "\\u007F")


def _failed(error: Mapping[str, Any]) -> TurnLine:
    report = rollouts.failure(error, None)
    return TurnLine(f"! {error.get('message', '')}", (report,) if isinstance(report, r.LimitReport) else ())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
