"""The plugin `codex`: runs OpenAI's Codex CLI and reads its rollouts and the status that it writes to its terminal
(docs/agents/codex.md).
"""

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
from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.plugins.agents.codex import rollouts
from agent_orchestrator.plugins.agents.codex import screen as codex_screen
from agent_orchestrator.plugins.agents.codex.rollouts import MESSAGE_PREFIX, Rollouts
from agent_orchestrator.plugins.agents.codex.screen import CodexDialog, TerminalStatusReader
from agent_orchestrator.plugins.agents.shared import agent_cli, user_files
from agent_orchestrator.protocols import (
    Activity,
    Agent,
    AgentContext,
    AgentLaunch,
    AgentState,
    Delivery,
    InstalledAgent,
    NotReady,
    Permission,
    ReportBatch,
    RunningLaunch,
    ScreenRules,
    TurnCommand,
    TurnLine,
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL_REMEDY = "install it: npm install -g @openai/codex"
MODELS_TIMEOUT = 5.0
DATABASES_TIMEOUT = 20.0
OUTPUT_POLL_SECONDS = 0.1
"""Seconds between two reads while the agent prints continuously."""
SCREEN_RECHECK_SECONDS = 0.3
MAX_SCREEN_READS = 20
MCP_START_TIMEOUT = 60.0

POLICIES = {
    "default": ("read-only", "on-request"),
    "plan": ("read-only", "never"),
    "auto-edit": ("workspace-write", "on-request"),
}
"""Sandbox and approval policy for each of our permission modes; `full` has neither."""

_database_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
"""A lock per Codex home, held while its databases are created."""

PLAN_ONLY = "Do not change anything now: look around, and end with a plan."


class Codex(Agent):
    """The agent plugin that runs `codex` interactively, or `codex exec` once per turn."""

    screen = ScreenRules(ready=codex_screen.READY, busy=codex_screen.BUSY, blocked=codex_screen.CONFIRM_HINT)
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("y",), "deny": ("Escape",)}
    workspace = "clone"
    """Codex's sandbox makes the Git folder of a worktree read-only, so it could not commit there."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")
        self._arguments = _arguments(config)
        self._last_text = ""
        self._conversation = ""
        self._home = Path()
        self._reported_totals: dict[str, int] = {}

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return Codex's home (login, rollouts) as writable, its settings in it as read-only."""
        del private
        return agent_cli.agent_state(
            codex_home(env), "config.toml", "AGENTS.md", "hooks.json", "prompts", "rules", "skills"
        )

    async def detect(self) -> InstalledAgent | None:
        """Return where `codex` is installed and its version, or None."""
        return await agent_cli.detect(self._host, "codex")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command `codex` or `codex resume`; flags preset what Codex would otherwise ask for or save."""
        program = agent_cli.find_program(self._host, "codex", context, INSTALL_REMEDY)
        home = codex_home(context.env)
        await self._create_databases(program, home, context.env)
        resumed = context.resume is not None
        prompt = context.message if resumed else context.task or context.prompt
        argv = [program, *(["resume"] if resumed else []), "--no-daemon", *self._model_flags(context)]
        argv += _config_flags(
            {
                "check_for_update_on_startup": False,
                "notice.hide_rate_limit_model_nudge": True,
                "notice.hide_full_access_warning": True,
                "notice.model_migrations": await self._model_migrations(program, home, context.env),
                "tui.resume_cwd": "current",
                **await run_in_own_thread(_settings, context, home),
            }
        )
        argv += [*_permission_flags(context), *self._arguments]
        if resumed and not context.resume:
            argv.append("--last")
        positional = [context.resume] if context.resume else []
        if prompt:
            positional.append(with_message_prefix(agent_cli.shorten_to_argument(prompt, context)))
        if positional:
            argv += ["--", *positional]
        await run_in_own_thread(rollouts.remember_start, context.private, home, context.resume, time.time())
        plugin_data = {
            "home": str(home),
            "log": str(_size(context.private / "terminal.log")),
            "waits": "" if prompt else "1",
        }
        return AgentLaunch(tuple(argv), waits=not prompt, conversation=context.resume or None, plugin_data=plugin_data)

    def escape_input(self, text: str) -> str:
        """Return a message as it must be typed: `!ls` and `/new` would be commands, and a last `@word` would open a menu that
        takes Enter.
        """
        text = with_message_prefix(text)
        if text.startswith("/"):
            text = f" {text}"
        last_word = text.split()[-1] if text.split() else ""
        return f"{text} " if "@" in last_word or "$" in last_word or "#" in last_word else text

    def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield turns, messages, plans and usage from the rollouts, dialogs and retries from the terminal."""
        return _CodexListener(run).listen()

    async def deliver(self, run: RunningLaunch, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Return `NotReady` while a menu or dialog is open, which would take the text for a choice; otherwise None, so that it is typed."""
        del message, text, interrupt
        return (
            NotReady("a menu is open in its terminal") if codex_screen.parse_dialog(await _screen_text(run)) else None
        )

    async def answer(
        self, run: RunningLaunch, permission: Permission, decision: str, text: str
    ) -> Sequence[str] | None:
        """Return the keys of the dialog on the screen, or None if it shows none or asks for something else."""
        del text
        dialog = codex_screen.parse_dialog(await _screen_text(run))
        if dialog is None or not (dialog.tool == "edit" or dialog.can_be_for(permission.command)):
            return None
        return dialog.keys(decision)

    async def _create_databases(self, program: str, home: Path, env: Mapping[str, str]) -> None:
        """Let Codex create its databases before its first start: of two first starts at the same time one fails.

        An `app-server` with no client is started for that, one at a time per Codex home.
        """
        lock = _database_locks.setdefault(str(home), asyncio.Lock())
        async with lock:
            if not any(home.glob("state_*.sqlite")):
                with contextlib.suppress(AoError):
                    await self._host.run([program, "app-server"], env=dict(env) or None, timeout=DATABASES_TIMEOUT)

    async def _model_migrations(self, program: str, home: Path, env: Mapping[str, str]) -> dict[str, str]:
        """Return each model's successor: Codex asks at its start whether to change to it, unless the setting names it already."""
        models: list[Any] = []
        try:
            result = await self._host.run(
                [program, "debug", "models", "--bundled"], env=dict(env) or None, timeout=MODELS_TIMEOUT
            )
            models += json.loads(result.out)["models"]
        except (AoError, ValueError, KeyError, TypeError):
            pass
        models += await run_in_own_thread(_cached_models, home)
        return dict(successor for model in models if (successor := _successor(model)))

    def _model_flags(self, context: AgentContext) -> list[str]:
        """Return the flags that choose the model, if one is configured."""
        model = context.model or self._model
        return ["--model", str(model)] if model else []

    # -- headless ------------------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> TurnCommand:
        """Return the command `codex exec` or `codex exec resume`; the prompt comes on standard input."""
        program = agent_cli.find_program(self._host, "codex", context, INSTALL_REMEDY)
        home = codex_home(context.env)
        argv = [program, "exec", *(["resume"] if conversation is not None else [])]
        argv += ["--json", "--skip-git-repo-check", *self._model_flags(context)]
        argv += [*_config_flags(_settings(context, home)), *_permission_flags(context), *self._arguments]
        if context.schema:
            schema = context.private / "codex-schema.json"
            schema.write_text(context.schema, encoding="utf-8")
            argv += ["--output-schema", str(schema)]
        if conversation is not None:
            argv += ["--", conversation] if conversation else ["--last", "--"]
        argv.append("-")
        self._last_text, self._home = "", home
        if conversation and conversation != self._conversation:
            self._conversation, self._reported_totals = conversation, rollouts.tokens_used(home, conversation)
        return TurnCommand(tuple(argv), stdin=prompt)

    def read_turn(self, line: str) -> TurnLine:
        """Parse one event of `codex exec --json`; a line that is no JSON object is shown as it is."""
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
                return self._read_item(event["type"] == "item.completed", event.get("item") or {})
            case "turn.completed":
                return TurnLine(reports=(self._turn_usage(event.get("usage")), r.TurnReport(self._last_text)))
            case "turn.failed":
                return _failed_turn(event.get("error") or {})
        return TurnLine()

    def _turn_usage(self, totals: object) -> r.UsageReport:
        """Return what this turn used: Codex reports the sum over the whole conversation."""
        total = {key: int(value or 0) for key, value in totals.items()} if isinstance(totals, dict) else {}
        turn_usage = {key: max(0, value - self._reported_totals.get(key, 0)) for key, value in total.items()}
        self._reported_totals = total or self._reported_totals
        return rollouts.parse_usage(turn_usage, rollouts.model_of(self._home, self._conversation), None)

    def _read_item(self, completed: bool, item: Mapping[str, Any]) -> TurnLine:
        """Return the text to show and the reports of one item of a turn."""
        match item.get("type"):
            case "agent_message" if completed:
                self._last_text = str(item.get("text") or "")
                return TurnLine(self._last_text)
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
                next_step = next((str(step.get("text")) for step in steps if not step.get("completed")), "")
                return TurnLine(reports=(r.ProgressReport(done, len(steps), next_step),))
            case "error" if completed:
                return TurnLine(f"! {item.get('message', '')}")
        return TurnLine()


class _CodexListener:
    """A reader of one launch: its rollouts, the signals in its terminal's log, and its screen."""

    def __init__(self, run: RunningLaunch) -> None:
        self._run = run
        self._rollouts = Rollouts(Path(run.plugin_data["home"]), run)
        log_size, cursor = int(run.plugin_data.get("log") or 0), run.cursors.get(TerminalStatusReader.cursor_name, 0)
        self._status_reader = TerminalStatusReader(run.log, max(log_size, cursor))
        self._is_starting_idle = bool(run.plugin_data.get("waits")) and cursor <= log_size
        self._conversation = run.conversation
        self._state = ""
        """The last state reported: `turn`, `rest`, `blocked` or `retrying`."""
        self._screen_target = "start"
        """What to search the screen for: `start`, `blocked`, `retrying` or nothing."""
        self._remaining_reads = MAX_SCREEN_READS
        """How many more times to read the screen for it."""
        self._observed_at: datetime | None = None
        run.changes.watch(run.log)

    async def listen(self) -> AsyncIterator[ReportBatch]:
        """Yield reports until the agent has ended."""
        is_alive = True
        while True:
            async for heard in self._read_rollouts():
                yield heard
            if not is_alive:
                return
            for heard in self._read_statuses():
                yield heard
            if self._remaining_reads and (screen_report := self._read_screen(await _screen_text(self._run))):
                yield screen_report
            is_due = self._remaining_reads and self._screen_target != "start"
            is_alive = await self._run.changes.next(SCREEN_RECHECK_SECONDS if is_due else None)
            if is_alive:
                await asyncio.sleep(OUTPUT_POLL_SECONDS)

    async def _read_rollouts(self) -> AsyncIterator[ReportBatch]:
        """Yield the reports of new rollout lines and note the state that they imply."""
        async for thread, line in self._rollouts.read():
            heard = thread.read_line(line, self._observed_at)
            if not heard.reports:
                continue
            if thread.is_main and thread.id != self._conversation:
                self._conversation = thread.id
                heard = thread.journal.make_batch(line, r.ConversationReport(thread.id), *heard.reports)
            for report in heard.reports:
                if isinstance(report, r.ActivityReport | r.TurnReport | r.LimitReport):
                    is_active = isinstance(report, r.ActivityReport) and report.state == Activity.ACTIVE
                    self._state, self._is_starting_idle = "turn" if is_active else "rest", False
                    self._screen_target, self._remaining_reads = "", 0
            yield heard

    def _read_statuses(self) -> Iterator[ReportBatch]:
        """Yield the reports of new signals in the terminal's log, and decide what to search the screen for."""
        signals = self._status_reader.read()
        shown_states = [signal.state for signal in signals if signal.state in ("retrying", "at work")]
        if statuses := [signal for signal in signals if signal.state not in ("retrying", "at work")]:
            last_status = statuses[-1]
            self._screen_target, self._remaining_reads = (
                ("blocked", MAX_SCREEN_READS) if last_status.state == "blocked" else ("", 0)
            )
            if last_status.state == "working" and self._state in ("", "blocked"):
                self._state = "turn"
                yield self._report_now("record", r.ActivityReport(Activity.ACTIVE))
            elif last_status.state == "idle" and self._is_starting_idle:
                self._state, self._is_starting_idle = "rest", False
                report = r.ActivityReport(Activity.IDLE)
                yield ReportBatch(
                    (report,), "record", TerminalStatusReader.cursor_name, last_status.start, last_status.end
                )
        if not shown_states or self._screen_target in ("blocked", "start") or self._state == "blocked":
            return  # a dialog may contain these words
        self._screen_target, self._remaining_reads = (
            ("retrying", MAX_SCREEN_READS) if shown_states[-1] == "retrying" else ("", 0)
        )
        if shown_states[-1] == "at work" and self._state == "retrying":
            self._state = "turn"
            yield self._report_now("record", r.ActivityReport(Activity.ACTIVE))

    def _read_screen(self, screen: str) -> ReportBatch | None:
        """Return a report if the screen shows what is due, or None."""
        self._remaining_reads -= 1
        if self._screen_target == "retrying":
            retry = codex_screen.RETRYING.search(screen)
            if retry is None:
                return None
            self._state, self._remaining_reads = "retrying", 0
            return self._report_now("record", r.ActivityReport(Activity.RETRYING, (retry[2] or retry[1]).strip()))
        if self._screen_target == "start" and codex_screen.LOGIN.search(screen):
            return self._report_now("record", r.ActivityReport(Activity.WAITING_INPUT, codex_screen.NOT_LOGGED_IN))
        dialog = codex_screen.parse_dialog(screen)
        if dialog is None:
            return None
        self._state, self._remaining_reads = "blocked", MAX_SCREEN_READS if self._screen_target == "start" else 0
        return self._report_now("screen", self._permission_report(dialog))

    def _permission_report(self, dialog: CodexDialog) -> r.PermissionReport:
        """Return the permission request of a dialog.

        The command is taken from the pending call if exactly one matches, since the screen wraps and cuts lines and omits the
        folder. Otherwise it is taken as shown, with `$ ` before it, so that no rule can match it as the command.
        """
        if not dialog.tool and dialog.keys("allow") is None:
            return r.PermissionReport("a question of its own", dialog.reason)
        if dialog.tool == "edit":
            calls = [call for call in self._rollouts.pending_calls() if call.tool == "apply_patch"]
        else:
            shell_calls = [call for call in self._rollouts.pending_calls() if call.typed_command]
            calls = [call for call in shell_calls if not dialog.tool or dialog.shows(call.typed_command)]
        if len({call.command for call in calls}) == 1:
            return r.PermissionReport(dialog.tool or "shell", calls[0].command, dialog.reason, calls[0].id)
        if dialog.is_cut or not dialog.tool:
            # The hidden part may differ next time, so this text must be unique.
            command_text = (
                f"$ {dialog.command} … (seen in part, {datetime.now(UTC).isoformat(timespec='milliseconds')})"
            )
        else:
            command_text = f"$ {dialog.command}" if dialog.tool == "shell" else dialog.command
        return r.PermissionReport(dialog.tool or "shell", command_text, dialog.reason)

    def _report_now(self, source: str, report: r.ActivityReport | r.PermissionReport) -> ReportBatch:
        """Return a report with the current time, and remember that time: older rollout lines must not replace it."""
        self._observed_at = datetime.now(UTC)
        return ReportBatch((replace(report, time=self._observed_at),), source)


async def _screen_text(run: RunningLaunch) -> str:
    """Return the text of the screen, or "" if the terminal is gone."""
    try:
        return await run.screen()
    except AoError:
        return ""  # the end of the process is reported elsewhere


def codex_home(env: Mapping[str, str]) -> Path:
    """Return the folder where the user's Codex keeps its login, settings and rollouts."""
    return Path(env.get("CODEX_HOME") or Path(env.get("HOME") or Path.home()) / ".codex")


def with_message_prefix(text: str) -> str:
    """Return the text with a prefix if it begins with `!`: Codex would run it as a shell command of the user, outside of any sandbox."""
    return f"{MESSAGE_PREFIX}{text}" if text.lstrip().startswith("!") else text


def _arguments(config: Mapping[str, Any]) -> list[str]:
    """Return the extra arguments from the configuration; raise `UsageError` if they are no list of words."""
    args = config.get("args") or []
    if not isinstance(args, list | tuple) or not all(isinstance(word, str | int | float) for word in args):
        raise UsageError("`args` of codex is not a list of words", "for example args: [--search]")
    return [str(word) for word in args]


def _settings(context: AgentContext, home: Path) -> dict[str, Any]:
    """Return the Codex settings for interactive and headless runs."""
    user_config = _read_configuration(home)
    instructions = [user_config.get("developer_instructions"), context.system]
    if context.permissions == "plan":
        instructions.append(PLAN_ONLY)
    settings: dict[str, Any] = {
        "developer_instructions": "\n\n".join(str(part) for part in instructions if part),
        "projects": {root: {"trust_level": "trusted"} for root in _trusted_folders(context)},
        "tools.update_plan.enabled": True,
    }
    if context.permissions in POLICIES:
        settings["sandbox_mode"], settings["approval_policy"] = POLICIES[context.permissions]
    if not context.edits:
        settings["sandbox_mode"], settings["approval_policy"] = POLICIES["default"]
    if context.mcp:
        settings["mcp_servers.ao"] = _mcp_server(context)
    git = context.workspace / ".git"
    if context.permissions == "auto-edit" and context.edits and git.is_dir():
        table = user_config.get("sandbox_workspace_write")
        roots = table.get("writable_roots") if isinstance(table, dict) else None
        settings["sandbox_workspace_write.writable_roots"] = [*(roots or ()), str(git)]
    return settings


def _mcp_server(context: AgentContext) -> dict[str, Any]:
    """Return the entry for our MCP server, authorized by the token in the environment; its tools need no approval, a session
    may use them all.

    A session that makes no changes depends on these tools, so it waits for them before its first turn; others start at once.
    """
    common: dict[str, Any] = {"default_tools_approval_mode": "approve"}
    if not context.edits:
        common |= {"required": True, "startup_timeout_sec": MCP_START_TIMEOUT}
    if context.mcp.startswith("https:"):
        command, *args = agent_cli.MCP_BRIDGE_COMMAND
        return {"command": command, "args": args, "env_vars": list(agent_cli.MCP_BRIDGE_VARIABLES), **common}
    return {"url": context.mcp, "bearer_token_env_var": "AO_TOKEN", **common}


def _read_configuration(home: Path) -> dict[str, Any]:
    """Return the user's `config.toml`, empty if it cannot be read."""
    try:
        return tomllib.loads(user_files.read_settings(home / "config.toml").decode())
    except (OSError, ValueError, RecursionError):
        return {}


def _cached_models(home: Path) -> list[Any]:
    """Return the models that Codex has cached; the file is in a folder where agents write, so anything may be in it."""
    try:
        models = json.loads(user_files.read(home / "models_cache.json", home)[0])["models"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
    return models if isinstance(models, list) else []


def _successor(model: object) -> tuple[str, str] | None:
    """Return a model's name and that of its successor, or None if it has none."""
    upgrade_info = model.get("upgrade") if isinstance(model, dict) else None
    new_name = upgrade_info.get("model") if isinstance(upgrade_info, dict) else None
    old_name = model.get("slug") if isinstance(model, dict) else None
    return (old_name, new_name) if isinstance(old_name, str) and isinstance(new_name, str) else None


def _trusted_folders(context: AgentContext) -> list[str]:
    """Return the folders that Codex may ask trust for: the workspace, and the checkout that its worktree belongs to."""
    layout = find_layout(context.repo)
    roots = [context.workspace, context.repo, *([layout.common.parent] if layout else [])]
    return list(dict.fromkeys(os.path.realpath(root) for root in roots))


def _config_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings as `-c key=value` arguments; empty values are left out."""
    return [
        word for key, value in settings.items() if value not in ("", {}) for word in ("-c", f"{key}={_to_toml(value)}")
    ]


def _permission_flags(context: AgentContext) -> list[str]:
    """Return the flag that turns sandbox and approvals off, for `full`."""
    is_unrestricted = context.permissions == "full" and context.edits
    return ["--dangerously-bypass-approvals-and-sandbox"] if is_unrestricted else []


def _to_toml(value: object) -> str:
    """Return a value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_to_toml(key)} = {_to_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_to_toml(item) for item in value) + "]"
    return json.dumps(value).replace("\x7f", "\\u007F")


def _failed_turn(error: Mapping[str, Any]) -> TurnLine:
    """Return the text of a failed turn, with a report if it reached a usage limit."""
    report = rollouts.failure(error, None)
    return TurnLine(f"! {error.get('message', '')}", (report,) if isinstance(report, r.LimitReport) else ())


def _size(path: Path) -> int:
    """Return the size of a file in bytes, 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0
