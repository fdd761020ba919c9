"""The plugin `copilot`: runs GitHub's Copilot CLI and reads the events that it keeps of each session (docs/agents/copilot.md)."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.plugins.agents.shared.journals import Journal, parse_time, size_of
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
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL_REMEDY = "install it: npm install -g @github/copilot"
SHELL = "shell"
TOOL_NAMES = {"write": "edit"}
"""Copilot's names for the use of a file, and ours."""

SCREEN_RECHECK_SECONDS = 0.3
MAX_SCREEN_READS = 200
MAX_INTERRUPTION_READS = 8

_MENU_HINT = re.compile(r"↑/↓ to navigate")
_DIALOG = re.compile(r"↑/↓ to navigate|^\W*Cancelling\b", re.MULTILINE)
_INPUT_LINE = re.compile(r"^─{20,}\n❯ +(.*?) *$", re.MULTILINE)
_READY = re.compile(r"/ commands · \? help")
_TRUST = re.compile(r"Do you trust the files in this folder\?")
_LOGIN = re.compile(r"(?:use|run) /login|You are not logged in|Please log ?in", re.IGNORECASE)
_RETRY_NOTICE = re.compile(r"^\W*(Request failed.*Retrying\.\.\.)[\W]*$", re.MULTILINE)
_PASTED_FILE = re.compile(r'<pasted_content file="(?P<file>[^"\n]+)"[^<>\n]*/>')
_LIMIT = re.compile(r"rate.?limit|quota|usage limit|premium requests", re.IGNORECASE)


class Copilot(Agent):
    """The agent plugin that runs `copilot` interactively."""

    screen = ScreenRules(
        ready=_READY,
        busy=re.compile(r"^\W*Working\b", re.MULTILINE),
        blocked=re.compile(r"^\W*Do you (?:want|trust).*\?", re.MULTILINE),
    )
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("1",), "always": ("1",), "deny": ("Escape",)}
    """`always` presses "once": the permanent rule is ours, kept for the project; Copilot's own would cover more than was asked."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return Copilot's folder (login, conversations) as writable, its settings in it as read-only."""
        del private
        return agent_cli.agent_state(_home(env), "mcp-config.json", "agents", "hooks", "skills")

    async def detect(self) -> InstalledAgent | None:
        """Return where `copilot` is installed and its version, or None."""
        return await agent_cli.detect(self._host, "copilot")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command `copilot -i PROMPT` with a session id of ours, which also resumes; rules are custom instructions
        of the session.
        """
        home = _home(context.env)
        argv = [agent_cli.find_program(self._host, "copilot", context, INSTALL_REMEDY), "--no-auto-update"]
        conversation = str(uuid.uuid4()) if context.resume is None else _complete_id(home, context.resume)
        events_file = _events_file(home, conversation)
        if not conversation:
            argv.append("--continue")
        elif events_file.exists() or _is_uuid(conversation):
            argv.append(f"--session-id={conversation}")
        else:
            argv.append(f"--resume={conversation}")
        if model := context.model or self._model:
            argv += ["--model", str(model)]
        argv += _permission_flags(context)
        is_resumed = context.resume is not None and (events_file.exists() or not _is_uuid(conversation))
        prompt = agent_cli.shorten_to_argument(
            context.message if is_resumed else context.task or context.prompt, context
        )
        if prompt:
            argv += ["--interactive", agent_cli.as_argument(self.escape_input(prompt))]
        await run_in_own_thread(_trust_folder, home, context)
        return AgentLaunch(
            tuple(argv),
            _write_instructions(context),
            waits=not prompt,
            conversation=conversation or None,
            plugin_data={
                "home": str(home),
                "prompt": "yes" if prompt else "",
                "before": str(size_of(events_file)),
            },
        )

    async def deliver(self, run: RunningLaunch, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Return `NotReady` while a dialog is shown, which takes what is typed even after its answer; otherwise None, so that the
        message is typed.
        """
        del message, text, interrupt
        return NotReady("it still shows a dialog") if _DIALOG.search(await _screen_text(run)) else None

    async def answer(
        self, run: RunningLaunch, permission: Permission, decision: str, text: str
    ) -> Sequence[str] | None:
        """Return the keys for the dialog, which is drawn some time after its event is written; None if it does not appear."""
        del text  # the text is sent as the next message
        command = permission.command if permission.tool == SHELL else ""
        return await agent_cli.wait_for_dialog_keys(run, _MENU_HINT, command, self.permission_keys.get(decision))

    def escape_input(self, text: str) -> str:
        """Return the text with a space in front if it begins like a command of Copilot."""
        return f" {text}" if text.startswith(("/", "!", "?", "#", "&")) else text

    def has_unsent_text(self, screen: str, text: str) -> bool:
        """Return whether the text is still in the input line, which is the last line between two rules."""
        lines = _INPUT_LINE.findall(screen)
        return bool(lines) and (agent_cli.is_beginning(text, lines[-1]) or lines[-1].startswith("[Paste #"))

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield reports from the session's events, and from the screen what is no event: readiness, questions before the start,
        retries.
        """
        reader = _EventReader(run)
        while True:
            async for heard in reader.read():
                yield heard
            if reader.needs_screen and (screen_report := reader.read_screen(await _screen_text(run))):
                yield screen_report
            if not await run.changes.next(reader.wait_seconds):
                async for heard in reader.read():
                    yield heard
                for heard in reader.held_reports():
                    yield heard
                return


class _EventReader:
    """A reader of one launch: the events of its session, and its screen."""

    def __init__(self, run: RunningLaunch) -> None:
        self._run = run
        path = _events_file(Path(run.plugin_data["home"]), run.conversation or "")
        self._journal = Journal(path, replace(run, cursors={}))
        self._journal.cursor_name = f"copilot-{path.parent.name}"
        self._cursor = run.cursors.get(self._journal.cursor_name, 0)
        self._earlier_size = int(run.plugin_data.get("before") or 0)
        self._events = SessionEvents(run.workspace, path.parent)
        self._state = Activity.STARTING
        self._screen_reads = 0
        self._held_interruption: ReportBatch | None = None
        """The report of an interruption, held back until messages can be typed again: what is typed before that is lost."""
        run.changes.watch(run.log)

    @property
    def needs_screen(self) -> bool:
        """Return whether the screen may show something that is no event: before the first turn, and while a request to the model runs."""
        return self._is_starting or self._events.is_request_running or self._held_interruption is not None

    @property
    def wait_seconds(self) -> float | None:
        """Return the seconds to wait for a change while something is due, otherwise None."""
        return SCREEN_RECHECK_SECONDS if self._is_starting or self._held_interruption else None

    @property
    def _is_starting(self) -> bool:
        """Return whether no event has set a state yet."""
        return self._state == Activity.STARTING and self._screen_reads < MAX_SCREEN_READS

    async def read(self) -> AsyncIterator[ReportBatch]:
        """Yield the reports of new events."""
        async for line in self._journal.lines():
            is_current = line.start >= self._earlier_size
            reports = [
                report
                for report in self._events.read_event(line.data, now=is_current)
                if not self._is_redundant(report, is_current=is_current)
            ]
            for report in reports if is_current else ():
                self._state = _state_of(report) or self._state
            if not reports or line.end <= self._cursor:
                continue
            if self._held_interruption:
                yield self._held_interruption
                self._held_interruption = None
            heard = self._journal.make_batch(line, *reports)
            if any(isinstance(report, r.ActivityReport) and report.state == Activity.INTERRUPTED for report in reports):
                self._held_interruption, self._screen_reads = heard, 0
            else:
                yield heard

    def held_reports(self) -> list[ReportBatch]:
        """Return the interruption that is still held back when the agent ends."""
        return [self._held_interruption] if self._held_interruption else []

    def _is_redundant(self, report: r.Report, *, is_current: bool) -> bool:
        """Return whether a report is redundant: the agent was active already, or an earlier process wrote it."""
        state = _state_of(report)
        return state is not None and (not is_current or (state == self._state == Activity.ACTIVE))

    def read_screen(self, screen: str) -> ReportBatch | None:
        """Return the report of what only the screen shows, or None."""
        self._screen_reads += 1
        report: r.Report | None = None
        if self._held_interruption:
            heard = (
                self._held_interruption
                if _READY.search(screen) or self._screen_reads > MAX_INTERRUPTION_READS or self._run.ended.is_set()
                else None
            )
            self._held_interruption = None if heard else self._held_interruption
            return heard
        if self._state != Activity.STARTING:
            retry = retry_notice(screen)
            if retry and self._state != Activity.RETRYING:
                report = r.ActivityReport(Activity.RETRYING, retry)
        elif _TRUST.search(screen):
            report = r.PermissionReport(
                "folder trust", str(self._run.workspace), "Do you trust the files in this folder?"
            )
        elif _LOGIN.search(screen):
            report = r.ActivityReport(Activity.WAITING_INPUT, "it is not logged in: ao attach, then /login")
        elif _READY.search(screen) and not self._run.plugin_data.get("prompt"):
            report = r.ActivityReport(Activity.IDLE)
        if report is None:
            return None
        if not isinstance(report, r.PermissionReport):
            self._state = _state_of(report) or self._state
        return ReportBatch((report,), "screen")


class SessionEvents:
    """A session as its events describe it."""

    def __init__(self, workspace: Path, folder: Path) -> None:
        """`folder` is where Copilot keeps the session's files."""
        self._workspace = workspace
        self._folder = folder
        self.is_request_running = False
        """Whether a request to the model is running."""
        self._last_text: str | None = None
        self._open_requests: set[str] = set()

    @skip_malformed
    def read_event(self, event: Mapping[str, Any], *, now: bool = True) -> list[r.Report]:
        """Return the reports of one event; `now` is False for an event of an earlier process."""
        data, time = event.get("data") or {}, parse_time(event.get("timestamp"))
        kind = event.get("type")
        if kind == "session.usage_record":
            return _usage_reports(data.get("usage") or {}, time)
        if event.get("agentId") or data.get("parentToolCallId"):
            return []  # of a subagent
        self.is_request_running = now and kind in ("user.message", "assistant.turn_start")
        match kind:
            case "user.message":
                message = _expand_pastes(str(data.get("content") or ""), self._folder)
                return [r.MessageTakenReport(message, time), r.ActivityReport(Activity.ACTIVE, "", time)]
            case "assistant.turn_start":
                self._last_text = None
                return [r.ActivityReport(Activity.ACTIVE, "", time)]
            case "assistant.message":
                self._last_text = None if data.get("toolRequests") else str(data.get("content") or "")
                return [r.ActivityReport(Activity.ACTIVE, "", time)]
            case "assistant.turn_end" if self._last_text is not None:
                return [r.TurnReport(self._last_text, time)]
            case "permission.requested":
                return self._permission_report(data, time)
            case "permission.completed":
                self._open_requests.discard(str(data.get("requestId")))
                # A refusal may end the turn in a moment.
                is_refused = (data.get("result") or {}).get("kind") != "approved"
                return [] if self._open_requests or is_refused else [r.ActivityReport(Activity.ACTIVE, "", time)]
            case "user_input.requested" | "elicitation.requested":
                question = data.get("question") or data.get("message") or "it asks something"
                return [r.ActivityReport(Activity.BLOCKED, f"{question} (answer in its terminal)", time)]
            case "user_input.completed" | "elicitation.completed":
                return [r.ActivityReport(Activity.ACTIVE, "", time)]
            case "abort":
                self._open_requests.clear()
                return [r.ActivityReport(Activity.INTERRUPTED, "", time)]
            case "session.error":
                return _failure_reports(data, time)
        return []

    def _permission_report(self, data: Mapping[str, Any], time: datetime | None) -> list[r.Report]:
        """Return a permission request, and remember it as open."""
        request = data.get("permissionRequest") or {}
        identity = str(data.get("requestId") or "")
        self._open_requests.add(identity)
        tool, reason = str(request.get("kind") or "a tool"), str(request.get("intention") or "")
        if path := request.get("fileName") or request.get("path"):
            return [
                r.PermissionReport(
                    TOOL_NAMES.get(tool, tool),
                    agent_cli.relative_to_workspace(self._workspace, str(path)),
                    reason,
                    identity,
                    time,
                )
            ]
        subject = next((request[key] for key in ("fullCommandText", "url", "toolName") if request.get(key)), "")
        return [r.PermissionReport(tool, str(subject), reason, identity, time)]


def _usage_reports(usage: Mapping[str, Any], time: datetime | None) -> list[r.Report]:
    """Return the usage; cached tokens are subtracted from the input."""

    def count(key: str) -> int:
        """Return a number of tokens, 0 if it is missing."""
        value = usage.get(key)
        return int(value) if isinstance(value, int | float) else 0

    cache_read, cache_write = count("cacheReadTokens"), count("cacheWriteTokens")
    new_input = max(0, count("inputTokens") - cache_read - cache_write)
    return [
        r.UsageReport(
            str(usage.get("model") or ""), new_input, count("outputTokens"), cache_read, cache_write, time=time
        )
    ]


def _failure_reports(data: Mapping[str, Any], time: datetime | None) -> list[r.Report]:
    """Return the reports of a failed request: an interruption, and a usage limit if the error is one."""
    message = " ".join(str(data.get("message") or "").split())[:300]
    is_limit = data.get("errorType") in ("rate_limit", "quota") or (
        data.get("statusCode") == 429 and _LIMIT.search(message)
    )
    interruption = r.ActivityReport(Activity.INTERRUPTED, f"API error: {message}", time)
    return [interruption, r.LimitReport(None, time)] if is_limit else [interruption]


def _state_of(report: r.Report) -> Activity | None:
    """Return the state that a report implies, or None."""
    match report:
        case r.ActivityReport():
            return report.state
        case r.TurnReport():
            return Activity.IDLE
        case r.PermissionReport():
            return Activity.BLOCKED
    return None


def retry_notice(screen: str) -> str:
    """Return the notice that a request is retried, if it is the last line shown; otherwise ""."""
    above = screen.partition("\n────")[0]
    lines = [line.strip(" ┃│\t") for line in above.splitlines()]
    visible = [line for line in lines if line][:-1]  # the last line shows the folder
    match = _RETRY_NOTICE.match(visible[-1]) if visible else None
    return match[1] if match else ""


async def _screen_text(run: RunningLaunch) -> str:
    """Return the text of the screen, or "" if the terminal is gone."""
    try:
        return await run.screen()
    except AoError:
        return ""


def _home(env: Mapping[str, str]) -> Path:
    """Return Copilot's folder."""
    return Path(env.get("COPILOT_HOME") or Path(env.get("HOME") or Path.home()) / ".copilot")


def _is_uuid(text: str) -> bool:
    """Return whether the text is a UUID in its usual form."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _events_file(home: Path, conversation: str) -> Path:
    """Return the path of a session's events."""
    return home / "session-state" / (conversation or "none") / "events.jsonl"


def _expand_pastes(text: str, folder: Path) -> str:
    """Return a message as it was sent: Copilot keeps a long paste in a file of the session and names the file to the model."""

    def content(mark: re.Match[str]) -> str:
        """Return the file's text, or the mark itself if the file is not in the session's folder or cannot be read."""
        file = Path(mark["file"])
        try:
            return read_regular_file(file).decode() if file.resolve().is_relative_to(folder.resolve()) else mark[0]
        except (OSError, ValueError):
            return mark[0]

    return _PASTED_FILE.sub(content, text)


def _complete_id(home: Path, conversation: str) -> str:
    """Return the whole id of a session given its beginning; the text as it is if it is ambiguous or unknown."""
    if not re.fullmatch(r"[0-9a-f-]{7,}", conversation):
        return conversation
    names = [path.name for path in home.glob(f"session-state/{conversation}*") if path.is_dir()]
    return names[0] if len(names) == 1 else conversation


def _permission_flags(context: AgentContext) -> list[str]:
    """Return the flags for what needs no permission."""
    match context.permissions:
        case "full":
            return ["--allow-all"]
        case "plan":
            return ["--plan"]
    flags = ["--allow-tool=write"] if context.permissions == "auto-edit" else []
    names = {our_name: copilot_name for copilot_name, our_name in TOOL_NAMES.items()}
    flags += [
        f"--allow-tool={names.get(permission.tool, permission.tool)}"
        for permission in context.allowed
        if not permission.command
    ]
    return list(dict.fromkeys(flags))


def _write_instructions(context: AgentContext) -> dict[str, str]:
    """Write the rules as custom instructions in the session's own folder; return the variable that points there."""
    if not context.system:
        return {}
    folder = context.private / "copilot"
    folder.mkdir(exist_ok=True)
    (folder / "worker.instructions.md").write_text(context.system, encoding="utf-8")
    user_folders = context.env.get("COPILOT_CUSTOM_INSTRUCTIONS_DIRS")
    return {"COPILOT_CUSTOM_INSTRUCTIONS_DIRS": f"{user_folders},{folder}" if user_folders else str(folder)}


def _trust_folder(home: Path, context: AgentContext) -> None:
    """Add the folder to Copilot's trusted folders: the user's checkout, which covers its worktrees, or a clone itself."""
    is_worktree = (context.workspace / ".git").is_file() and (context.repo / ".git").exists()
    folder = context.repo if is_worktree else context.workspace

    def add(config: dict[str, Any]) -> bool:
        """Add the folder; return whether the configuration changed."""
        trusted = config.setdefault("trustedFolders", [])
        if not isinstance(trusted, list) or {str(folder), *map(str, folder.parents)} & set(map(str, trusted)):
            return False
        trusted.append(str(folder))
        return True

    agent_cli.merge_json(home / "config.json", add, home)
