"""The plugin `kimicode`: runs Moonshot's Kimi Code CLI (`kimi`) and reads the wire log of each session (docs/agents/kimicode.md)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from agent_orchestrator.base.files.safe import open_below, write_atomically
from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.plugins.agents.shared.journals import (
    MAX_JOURNALS,
    Journal,
    entries_in,
    recent_journals,
    size_of,
)
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

log = structlog.get_logger(__name__)

INSTALL_REMEDY = "install it: npm install -g @moonshot-ai/kimi-code (it needs Node 22.19 or newer)"
MODES: Mapping[str, tuple[str, ...]] = {"plan": ("--plan",), "full": ("--auto",)}

SCREEN_RECHECK_SECONDS = 0.5
MAX_SCREEN_READS = 120

_READY = re.compile(r"^\s*│ >", re.MULTILINE)
_DIALOG = re.compile(r"↑/↓ select|↑↓ navigate")
_INPUT_LINE = re.compile(r"^ *│ > +(.*?) *│ *$", re.MULTILINE)
_TRUST = re.compile(r"Trust this folder\?")
_LIMIT = re.compile(r"quota|usage limit|rate.?limit|exceeded.*limit", re.IGNORECASE)


class KimiCode(Agent):
    """The agent plugin that runs `kimi` interactively."""

    screen = ScreenRules(
        ready=_READY,
        busy=re.compile(r"^\W*(?:Retrying \(|ctrl\+c: cancel)", re.MULTILINE),
        blocked=re.compile(r"1/2/3(?:/4)? choose|Trust this folder\?"),
    )
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("1",), "always": ("1",), "deny": ("3",)}
    """`always` presses "once": the permanent rule is ours, kept for the project; Kimi's own would cover more than was asked."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return Kimi's folder (login, conversations) as writable, its settings in it as read-only."""
        del private
        return agent_cli.agent_state(_home(env), "mcp.json", "plugins", "skills")

    async def detect(self) -> InstalledAgent | None:
        """Return where `kimi` is installed and its version, or None."""
        path = self._host.which("kimi")
        return await agent_cli.detect(self._host, "kimi", node_environment(path, os.environ)) if path else None

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command `kimi`. It takes no first prompt and no rules as arguments, so both are typed once it is ready."""
        home = _home(context.env)
        argv = [agent_cli.find_program(self._host, "kimi", context, INSTALL_REMEDY)]
        if context.resume is None:
            prompt = agent_cli.first_message(context)
        else:
            prompt = context.message
            argv += ["--session", context.resume] if context.resume else ["--continue"]
        if model := context.model or self._model:
            argv += ["--model", str(model)]
        argv += MODES.get(context.permissions, ())
        await run_in_own_thread(_trust_folder, home, context.workspace)
        earlier_sizes = {path.parent.parent.parent.name: size_of(path) for path in _main_wires(home, context.workspace)}
        return AgentLaunch(
            tuple(argv),
            {"KIMI_CODE_NO_AUTO_UPDATE": "1", **node_environment(argv[0], context.env)},
            paste=prompt or None,
            waits=not prompt,
            conversation=context.resume or None,
            plugin_data={"home": str(home), "prompt": "yes" if prompt else "", "before": json.dumps(earlier_sizes)},
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
        """Return the keys for the dialog, which is drawn some time after its record is written; None if it does not appear."""
        del permission, text  # the text is sent as the next message
        return await agent_cli.wait_for_dialog_keys(run, _DIALOG, "", self.permission_keys.get(decision))

    def escape_input(self, text: str) -> str:
        """Return the text with a space in front if it begins like a command of Kimi."""
        return f" {text}" if text.startswith(("/", "!", "#")) else text

    def has_unsent_text(self, screen: str, text: str) -> bool:
        """Return whether the text is still in the input line, which is the last line in a box."""
        lines = _INPUT_LINE.findall(screen)
        return bool(lines) and (agent_cli.is_beginning(text, lines[-1]) or lines[-1].lower().startswith("[paste"))

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield reports from the session's wire log, and from the screen until the first turn: a dialog, or readiness."""
        reader = _WireReader(run)
        while True:
            async for heard in reader.read():
                yield heard
            if reader.needs_screen and (screen_report := reader.read_screen(await _screen_text(run))):
                yield screen_report
            if not await run.changes.next(reader.wait_seconds):
                async for heard in reader.read():
                    yield heard
                return


class _WireReader:
    """A reader of one launch: the wire logs of its session, and its screen."""

    def __init__(self, run: RunningLaunch) -> None:
        self._run = run
        self._home = Path(run.plugin_data["home"])
        self._earlier_sizes: dict[str, int] = json.loads(run.plugin_data.get("before") or "{}")
        self._session = run.conversation
        self._journals: dict[Path, Journal] = {}
        self._wire = WireLogState(run.workspace)
        self._state = Activity.STARTING
        self._screen_reads = 0
        run.changes.watch(run.log)

    @property
    def needs_screen(self) -> bool:
        """Return whether nothing was reported yet, so that the screen may show why."""
        return self._state == Activity.STARTING and self._screen_reads < MAX_SCREEN_READS

    @property
    def wait_seconds(self) -> float | None:
        """Return the seconds to wait for a change while something is due, otherwise None."""
        return SCREEN_RECHECK_SECONDS if self.needs_screen else None

    async def read(self) -> AsyncIterator[ReportBatch]:
        """Yield the reports of new records: everything of the main agent, only the usage of its subagents."""
        if self._session is None and (session := self._new_session()):
            self._session = session
            yield ReportBatch((r.ConversationReport(session),), "transcript")
        for agent, journal in self._open_journals():
            cursor, earlier_size = (
                self._run.cursors.get(journal.cursor_name, 0),
                self._earlier_sizes.get(self._session or "", 0),
            )
            async for line in journal.lines():
                is_current = agent != "main" or line.start >= earlier_size
                reports = (
                    self._wire.read_record(line.data, now=is_current) if agent == "main" else usage_reports(line.data)
                )
                if not is_current:  # the state of an earlier process
                    reports = [report for report in reports if _state_of(report) is None]
                for report in reports:
                    self._state = _state_of(report) or self._state
                if reports and line.end > cursor:
                    yield journal.make_batch(line, *reports)

    def _new_session(self) -> str | None:
        """Return the id of a session that began after the launch, or None."""
        names = [path.parent.parent.parent.name for path in _main_wires(self._home, self._run.workspace)]
        return next((name for name in names if name not in self._earlier_sizes), None)

    def _open_journals(self) -> Iterator[tuple[str, Journal]]:
        """Return the followed wire logs with their agents' names, opening new ones."""
        if self._session:
            for path in self._wire_paths(Path(self._session).name):
                if len(self._journals) < MAX_JOURNALS and path not in self._journals and path.exists():
                    journal = Journal(path, replace(self._run, cursors={}))
                    journal.cursor_name = f"{self._session}-{path.parent.name}"
                    self._journals[path] = journal
                    self._run.changes.watch(path.parent.parent)
        return ((path.parent.name, journal) for path, journal in self._journals.items())

    def _wire_paths(self, session: str) -> list[Path]:
        """Return the paths where the wire logs of the session's agents would be; the session may have begun in another folder."""
        sessions = self._home / "sessions"
        agents = entries_in(sessions / folder_key(self._run.workspace) / session / "agents")
        agents = agents or entries_in(*(folder / session / "agents" for folder in entries_in(sessions)))
        return [agent / "wire.jsonl" for agent in agents]

    def read_screen(self, screen: str) -> ReportBatch | None:
        """Return what the screen shows before the first turn: a question of trust, or readiness."""
        self._screen_reads += 1
        if _TRUST.search(screen):
            report: r.Report = r.ActivityReport(Activity.BLOCKED, "do you trust this folder? (answer in its terminal)")
        elif _READY.search(screen) and not self._run.plugin_data.get("prompt"):
            self._state = Activity.IDLE
            report = r.ActivityReport(Activity.IDLE)
        else:
            return None
        return ReportBatch((report,), "screen")


class WireLogState:
    """The main agent as its wire log describes it."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._last_text = ""
        self._open_requests: set[str] = set()
        self._is_retrying = False
        self._last_progress: tuple[int, int, str] | None = None

    @skip_malformed
    def read_record(self, record: Mapping[str, Any], *, now: bool = True) -> list[r.Report]:
        """Return the reports of one record; `now` is False for a record of an earlier process."""
        timestamp = _time_of(record.get("time"))
        match record.get("type"):
            case "turn.prompt" | "turn.steer" if (record.get("origin") or {}).get("kind") == "user":
                text = _text(record.get("input"))
                return [r.MessageTakenReport(text, timestamp), r.ActivityReport(Activity.ACTIVE, "", timestamp)]
            case "context.append_loop_event":
                return self._loop_reports(record.get("event") or {}, timestamp)
            case "usage.record":
                resumed = [r.ActivityReport(Activity.ACTIVE, "", timestamp)] if self._is_retrying and now else []
                self._is_retrying = False
                return [*usage_reports(record), *resumed]
            case "turn.step.retrying":
                self._is_retrying = True
                attempt = f"attempt {record.get('nextAttempt')} of {record.get('maxAttempts')}"
                return [r.ActivityReport(Activity.RETRYING, f"{record.get('errorMessage')} ({attempt})", timestamp)]
            case "interaction.request":
                return self._request_report(record, timestamp)
            case "interaction.resolved":
                self._open_requests.discard(str(record.get("id")))
                return [] if self._open_requests else [r.ActivityReport(Activity.ACTIVE, "", timestamp)]
            case "turn.ended":
                return self._end_reports(record, timestamp)
        return []

    def _loop_reports(self, event: Mapping[str, Any], timestamp: datetime | None) -> list[r.Report]:
        """Collect the agent's text from an event of its loop; return progress if it called the to-do tool."""
        match event.get("type"):
            case "step.begin" | "tool.result":
                self._last_text = ""
            case "content.part":
                part = event.get("part") or {}
                self._last_text += str(part.get("text") or "") if part.get("type") == "text" else ""
            case "tool.call":
                self._last_text = ""
                return self._progress(event.get("args"), timestamp)
        return []

    def _progress(self, args: object, timestamp: datetime | None) -> list[r.Report]:
        """Return the progress of the to-do list if it changed."""
        todos = args.get("todos") if isinstance(args, Mapping) else None
        if not isinstance(todos, list) or not all(isinstance(todo, Mapping) for todo in todos):
            return []
        done = sum(todo.get("status") in ("done", "completed") for todo in todos)
        step = next((str(todo.get("title") or "") for todo in todos if todo.get("status") == "in_progress"), "")
        if self._last_progress == (done, len(todos), step):
            return []
        self._last_progress = (done, len(todos), step)
        return [r.ProgressReport(done, len(todos), step, time=timestamp)]

    def _request_report(self, record: Mapping[str, Any], timestamp: datetime | None) -> list[r.Report]:
        """Return the report of a question, or of a permission request with the folder if that is not the workspace."""
        identity = str(record.get("id") or "")
        self._open_requests.add(identity)
        request = record.get("request") or {}
        if record.get("kind") != "approval":
            questions = request.get("questions") or [request]
            subject = str((questions[0] or {}).get("question") or "it asks something")
            return [r.ActivityReport(Activity.BLOCKED, f"{subject} (answer in its terminal)", timestamp)]
        display, tool = request.get("display") or {}, str(request.get("toolName") or "a tool")
        path = display.get("path") or display.get("file_path") or display.get("filePath")
        if path:
            tool, subject = (
                "read" if display.get("operation") == "read" else "edit",
                agent_cli.relative_to_workspace(self._workspace, str(path)),
            )
        else:
            subject = str(display.get("command") or display.get("url") or "")
            folder = str(display.get("cwd") or display.get("workdir") or "")
            if folder and subject and Path(os.path.realpath(folder)) != Path(os.path.realpath(self._workspace)):
                subject = f"cd {shlex.quote(folder)} && {subject}"
        return [r.PermissionReport(tool, subject, str(request.get("action") or ""), identity, timestamp)]

    def _end_reports(self, record: Mapping[str, Any], timestamp: datetime | None) -> list[r.Report]:
        """Return how a turn ended: finished, interrupted, failed, or at a usage limit."""
        self._open_requests.clear()
        self._is_retrying = False
        if record.get("reason") == "completed":
            return [r.TurnReport(self._last_text, timestamp)]
        error = record.get("error") or {}
        if not error:
            return [r.ActivityReport(Activity.INTERRUPTED, "", timestamp)]
        message = " ".join(str(error.get("message") or error.get("code") or "").split())[:300]
        interruption = r.ActivityReport(Activity.INTERRUPTED, f"API error: {message}", timestamp)
        is_limit = _LIMIT.search(f"{error.get('code')} {message}")
        return [interruption, r.LimitReport(None, timestamp)] if is_limit else [interruption]


@skip_malformed
def usage_reports(record: Mapping[str, Any]) -> list[r.Report]:
    """Return the usage of one request to the model."""
    usage = record.get("usage")
    if record.get("type") != "usage.record" or not isinstance(usage, Mapping):
        return []
    counts = {name: value for name, value in usage.items() if isinstance(value, int)}
    return [
        r.UsageReport(
            model=str(record.get("model") or "").rpartition("/")[2],
            input=counts.get("inputOther", 0),
            output=counts.get("output", 0),
            cache_read=counts.get("inputCacheRead", 0),
            cache_write=counts.get("inputCacheCreation", 0),
            time=_time_of(record.get("time")),
        )
    ]


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


def _text(parts: object) -> str:
    """Return the text of a message's parts."""
    items = parts if isinstance(parts, list) else []
    return "\n".join(str(part["text"]) for part in items if isinstance(part, Mapping) and part.get("type") == "text")


def _time_of(value: object) -> datetime | None:
    """Return a time given in milliseconds, or None."""
    return datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int | float) else None


async def _screen_text(run: RunningLaunch) -> str:
    """Return the text of the screen, or "" if the terminal is gone."""
    try:
        return await run.screen()
    except AoError:
        return ""


def _home(env: Mapping[str, str]) -> Path:
    """Return Kimi's folder."""
    return Path(env.get("KIMI_CODE_HOME") or Path(env.get("HOME") or Path.home()) / ".kimi-code")


def node_environment(program: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return a PATH that begins with the program's folder if a Node is in it: Kimi needs a newer Node than many systems have."""
    folder = Path(program).parent
    return {"PATH": f"{folder}{os.pathsep}{env.get('PATH', os.defpath)}"} if (folder / "node").exists() else {}


def folder_key(workspace: Path) -> str:
    """Return the name under which Kimi keeps the files of one folder."""
    root = os.path.realpath(workspace).rstrip("/")
    slug = re.sub(r"[^a-z0-9._-]+", "-", root.rpartition("/")[2].lower()).strip("-")[:40].strip("-")
    slug = "workspace" if slug in ("", ".", "..") else slug
    return f"wd_{slug}_{hashlib.sha256(root.encode()).hexdigest()[:12]}"


def _main_wires(home: Path, workspace: Path) -> Sequence[Path]:
    """Return the main wire logs of the workspace's sessions, the one that changed last at the end."""
    sessions = entries_in(home / "sessions" / folder_key(workspace))
    wires = [session / "agents/main/wire.jsonl" for session in sessions if session.name.startswith("session_")]
    return sorted(recent_journals(wire for wire in wires if wire.exists()))


def _trust_folder(home: Path, workspace: Path) -> None:
    """Trust the workspace: Kimi asks for every folder, and keeps each answer in its own file."""
    file = Path("workspace-trust") / folder_key(workspace)
    with contextlib.suppress(OSError), open_below(home, file):
        return  # anything else there, such as a symlink, was made by an agent and is replaced
    record = {"root": os.path.realpath(workspace), "trustedAt": int(time.time() * 1000)}
    try:
        write_atomically(home, file, json.dumps(record, separators=(",", ":")).encode(), 0o644)
    except OSError as error:
        log.warning("a file of an agent's CLI is left as it is", file=str(home / file), error=str(error))
