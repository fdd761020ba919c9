"""`kimicode`: Moonshot's Kimi Code CLI (`kimi`), heard by the wire log that it keeps of each session (docs/agents/kimicode.md)."""

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

from agent_orchestrator.base.files.safe import opened, put
from agent_orchestrator.base.threads import aside
from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.journals import MOST_BESIDE, Journal, entries_in, latest, size_of
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
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

log = structlog.get_logger(__name__)

INSTALL = "install it: npm install -g @moonshot-ai/kimi-code (it needs Node 22.19 or newer)"
MODES: Mapping[str, tuple[str, ...]] = {"plan": ("--plan",), "full": ("--auto",)}

LOOK_AGAIN = 0.5
MOST_LOOKS = 120

_READY = re.compile(r"^\s*│ >", re.MULTILINE)
_DIALOG = re.compile(r"↑/↓ select|↑↓ navigate")
_INPUT = re.compile(r"^ *│ > +(.*?) *│ *$", re.MULTILINE)
_TRUST = re.compile(r"Trust this folder\?")
_LIMIT = re.compile(r"quota|usage limit|rate.?limit|exceeded.*limit", re.IGNORECASE)


class KimiCode:
    """Runs `kimi` interactively."""

    screen = ScreenRules(
        ready=_READY,
        busy=re.compile(r"^\W*(?:Retrying \(|ctrl\+c: cancel)", re.MULTILINE),
        blocked=re.compile(r"1/2/3(?:/4)? choose|Trust this folder\?"),
    )
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("1",), "always": ("1",), "deny": ("3",)}
    """For good is a rule of ours, kept for the project: its own would hold for more than was asked."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Its folder: login, conversations."""
        del private
        return cli.kept(_home(env), "mcp.json", "plugins", "skills")

    async def detect(self) -> Found | None:
        """Is `kimi` here?"""
        path = self._host.which("kimi")
        return await cli.detect(self._host, "kimi", own_node(path, os.environ)) if path else None

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """`kimi`; it takes neither a first prompt nor rules of ours on its command line, so both are typed once it is ready."""
        home = _home(context.env)
        argv = [cli.program(self._host, "kimi", context, INSTALL)]
        if context.resume is None:
            prompt = cli.opening(context)
        else:
            prompt = context.message
            argv += ["--session", context.resume] if context.resume else ["--continue"]
        if model := context.model or self._model:
            argv += ["--model", str(model)]
        argv += MODES.get(context.permissions, ())
        await aside(_trust, home, context.workspace)
        before = {path.parent.parent.parent.name: size_of(path) for path in _wires(home, context.workspace)}
        return AgentLaunch(
            tuple(argv),
            {"KIMI_CODE_NO_AUTO_UPDATE": "1", **own_node(argv[0], context.env)},
            paste=prompt or None,
            waits=not prompt,
            conversation=context.resume or None,
            memo={"home": str(home), "prompt": "yes" if prompt else "", "before": json.dumps(before)},
        )

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Typed, but not into a dialog: one that was answered stays on the screen for a moment, and takes what is typed."""
        del message, text, interrupt
        return Held("it still shows a dialog") if _DIALOG.search(await _screen(run)) else None

    async def answer(self, run: AgentRun, permission: Permission, decision: str, text: str) -> Sequence[str] | None:
        """By the keys of its dialog, which is drawn some time after it was told of."""
        del permission, text  # which is sent as the next message
        return await cli.keys_for(run, _DIALOG, "", self.permission_keys.get(decision))

    def typed(self, text: str) -> str:
        """A text that begins like one of its commands gets a space in front."""
        return f" {text}" if text.startswith(("/", "!", "#")) else text

    def unsent(self, screen: str, text: str) -> bool:
        """Its input line is the last one in a box."""
        lines = _INPUT.findall(screen)
        return bool(lines) and (cli.begins(text, lines[-1]) or lines[-1].lower().startswith("[paste"))

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """The session's wire log; its screen only until the first turn: a dialog, or being ready."""
        ear = _Ear(run)
        while True:
            async for heard in ear.read():
                yield heard
            if ear.looks and (seen := ear.see(await _screen(run))):
                yield seen
            if not await run.changes.next(ear.patience):
                async for heard in ear.read():
                    yield heard
                return


class _Ear:
    """What was heard of one launch so far."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._home = Path(run.memo["home"])
        self._before: dict[str, int] = json.loads(run.memo.get("before") or "{}")
        self._session = run.conversation
        self._journals: dict[Path, Journal] = {}
        self._wire = Wire(run.workspace)
        self._state = Activity.STARTING
        self._tries = 0
        run.changes.watch(run.log)

    @property
    def looks(self) -> bool:
        """Nothing was heard yet: its screen may say why."""
        return self._state == Activity.STARTING and self._tries < MOST_LOOKS

    @property
    def patience(self) -> float | None:
        """How long to wait for a change when something is known to come."""
        return LOOK_AGAIN if self.looks else None

    async def read(self) -> AsyncIterator[Heard]:
        """What the wire logs say since: the main agent's everything, its subagents' what they used."""
        if self._session is None and (found := self._new_session()):
            self._session = found
            yield Heard((r.ConversationReport(found),), "transcript")
        for agent, journal in self._open():
            told, before = self._run.cursors.get(journal.place, 0), self._before.get(self._session or "", 0)
            async for line in journal.lines():
                now = agent != "main" or line.start >= before
                reports = self._wire.take(line.data, now=now) if agent == "main" else used(line.data)
                if not now:  # what an earlier process was doing
                    reports = [report for report in reports if _state_of(report) is None]
                for report in reports:
                    self._state = _state_of(report) or self._state
                if reports and line.end > told:
                    yield journal.heard(line, *reports)

    def _new_session(self) -> str | None:
        names = [path.parent.parent.parent.name for path in _wires(self._home, self._run.workspace)]
        return next((name for name in names if name not in self._before), None)

    def _open(self) -> Iterator[tuple[str, Journal]]:
        if self._session:
            for path in self._agents(Path(self._session).name):
                if len(self._journals) < MOST_BESIDE and path not in self._journals and path.exists():
                    journal = Journal(path, replace(self._run, cursors={}))
                    journal.place = f"{self._session}-{path.parent.name}"
                    self._journals[path] = journal
                    self._run.changes.watch(path.parent.parent)
        return ((path.parent.name, journal) for path, journal in self._journals.items())

    def _agents(self, session: str) -> list[Path]:
        """The wire logs that the session's agents would have: it may have begun in another folder."""
        sessions = self._home / "sessions"
        found = entries_in(sessions / folder_key(self._run.workspace) / session / "agents")
        found = found or entries_in(*(folder / session / "agents" for folder in entries_in(sessions)))
        return [agent / "wire.jsonl" for agent in found]

    def see(self, screen: str) -> Heard | None:
        """What it waits for before its first turn."""
        self._tries += 1
        if _TRUST.search(screen):
            report: r.Report = r.ActivityReport(Activity.BLOCKED, "do you trust this folder? (answer in its terminal)")
        elif _READY.search(screen) and not self._run.memo.get("prompt"):
            self._state = Activity.IDLE
            report = r.ActivityReport(Activity.IDLE)
        else:
            return None
        return Heard((report,), "screen")


class Wire:
    """The main agent as its wire log tells it."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._said = ""
        self._asked: set[str] = set()
        self._retries = False
        self._steps: tuple[int, int, str] | None = None

    @forgiving
    def take(self, record: Mapping[str, Any], *, now: bool = True) -> list[r.Report]:
        """What one record says; not `now`: an earlier process wrote it."""
        when = _moment(record.get("time"))
        match record.get("type"):
            case "turn.prompt" | "turn.steer" if (record.get("origin") or {}).get("kind") == "user":
                text = _text(record.get("input"))
                return [r.TookReport(text, when), r.ActivityReport(Activity.ACTIVE, "", when)]
            case "context.append_loop_event":
                return self._loop(record.get("event") or {}, when)
            case "usage.record":
                answered = [r.ActivityReport(Activity.ACTIVE, "", when)] if self._retries and now else []
                self._retries = False
                return [*used(record), *answered]
            case "turn.step.retrying":
                self._retries = True
                attempt = f"attempt {record.get('nextAttempt')} of {record.get('maxAttempts')}"
                return [r.ActivityReport(Activity.RETRYING, f"{record.get('errorMessage')} ({attempt})", when)]
            case "interaction.request":
                return self._request(record, when)
            case "interaction.resolved":
                self._asked.discard(str(record.get("id")))
                return [] if self._asked else [r.ActivityReport(Activity.ACTIVE, "", when)]
            case "turn.ended":
                return self._ended(record, when)
        return []

    def _loop(self, event: Mapping[str, Any], when: datetime | None) -> list[r.Report]:
        match event.get("type"):
            case "step.begin" | "tool.result":
                self._said = ""
            case "content.part":
                part = event.get("part") or {}
                self._said += str(part.get("text") or "") if part.get("type") == "text" else ""
            case "tool.call":
                self._said = ""
                return self._progress(event.get("args"), when)
        return []

    def _progress(self, args: object, when: datetime | None) -> list[r.Report]:
        todos = args.get("todos") if isinstance(args, Mapping) else None
        if not isinstance(todos, list) or not all(isinstance(todo, Mapping) for todo in todos):
            return []
        done = sum(todo.get("status") in ("done", "completed") for todo in todos)
        step = next((str(todo.get("title") or "") for todo in todos if todo.get("status") == "in_progress"), "")
        if self._steps == (done, len(todos), step):
            return []
        self._steps = (done, len(todos), step)
        return [r.ProgressReport(done, len(todos), step, time=when)]

    def _request(self, record: Mapping[str, Any], when: datetime | None) -> list[r.Report]:
        identity = str(record.get("id") or "")
        self._asked.add(identity)
        request = record.get("request") or {}
        if record.get("kind") != "approval":
            questions = request.get("questions") or [request]
            what = str((questions[0] or {}).get("question") or "it asks something")
            return [r.ActivityReport(Activity.BLOCKED, f"{what} (answer in its terminal)", when)]
        shown, tool = request.get("display") or {}, str(request.get("toolName") or "a tool")
        path = shown.get("path") or shown.get("file_path") or shown.get("filePath")
        if path:
            tool, what = "read" if shown.get("operation") == "read" else "edit", cli.inside(self._workspace, str(path))
        else:
            what = str(shown.get("command") or shown.get("url") or "")
            folder = str(shown.get("cwd") or shown.get("workdir") or "")
            if folder and what and Path(os.path.realpath(folder)) != Path(os.path.realpath(self._workspace)):
                what = f"cd {shlex.quote(folder)} && {what}"
        return [r.PermissionReport(tool, what, str(request.get("action") or ""), identity, when)]

    def _ended(self, record: Mapping[str, Any], when: datetime | None) -> list[r.Report]:
        self._asked.clear()
        self._retries = False
        if record.get("reason") == "completed":
            return [r.TurnReport(self._said, when)]
        error = record.get("error") or {}
        if not error:
            return [r.ActivityReport(Activity.INTERRUPTED, "", when)]
        message = " ".join(str(error.get("message") or error.get("code") or "").split())[:300]
        stopped = r.ActivityReport(Activity.INTERRUPTED, f"API error: {message}", when)
        limited = _LIMIT.search(f"{error.get('code')} {message}")
        return [stopped, r.LimitReport(None, when)] if limited else [stopped]


@forgiving
def used(record: Mapping[str, Any]) -> list[r.Report]:
    """What a request to the model used."""
    usage = record.get("usage")
    if record.get("type") != "usage.record" or not isinstance(usage, Mapping):
        return []
    count = {name: value for name, value in usage.items() if isinstance(value, int)}
    return [
        r.UsageReport(
            model=str(record.get("model") or "").rpartition("/")[2],
            input=count.get("inputOther", 0),
            output=count.get("output", 0),
            cache_read=count.get("inputCacheRead", 0),
            cache_write=count.get("inputCacheCreation", 0),
            time=_moment(record.get("time")),
        )
    ]


def _state_of(report: r.Report) -> Activity | None:
    match report:
        case r.ActivityReport():
            return report.state
        case r.TurnReport():
            return Activity.IDLE
        case r.PermissionReport():
            return Activity.BLOCKED
    return None


def _text(parts: object) -> str:
    found = parts if isinstance(parts, list) else []
    return "\n".join(str(part["text"]) for part in found if isinstance(part, Mapping) and part.get("type") == "text")


def _moment(value: object) -> datetime | None:
    return datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int | float) else None


async def _screen(run: AgentRun) -> str:
    try:
        return await run.screen()
    except AoError:
        return ""


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("KIMI_CODE_HOME") or Path(env.get("HOME") or Path.home()) / ".kimi-code")


def own_node(program: str, env: Mapping[str, str]) -> dict[str, str]:
    """It needs a newer Node than many systems have: one that was installed beside it comes first."""
    folder = Path(program).parent
    return {"PATH": f"{folder}{os.pathsep}{env.get('PATH', os.defpath)}"} if (folder / "node").exists() else {}


def folder_key(workspace: Path) -> str:
    """The name under which it keeps what belongs to one folder."""
    root = os.path.realpath(workspace).rstrip("/")
    slug = re.sub(r"[^a-z0-9._-]+", "-", root.rpartition("/")[2].lower()).strip("-")[:40].strip("-")
    slug = "workspace" if slug in ("", ".", "..") else slug
    return f"wd_{slug}_{hashlib.sha256(root.encode()).hexdigest()[:12]}"


def _wires(home: Path, workspace: Path) -> Sequence[Path]:
    sessions = entries_in(home / "sessions" / folder_key(workspace))
    wires = [one / "agents/main/wire.jsonl" for one in sessions if one.name.startswith("session_")]
    return sorted(latest(wire for wire in wires if wire.exists()))


def _trust(home: Path, workspace: Path) -> None:
    """It asks for every folder; the answer is a file of its own for each."""
    file = Path("workspace-trust") / folder_key(workspace)
    with contextlib.suppress(OSError), opened(home, file):
        return  # anything else in its place, a symlink say, is an agent's doing, and is replaced
    record = {"root": os.path.realpath(workspace), "trustedAt": int(time.time() * 1000)}
    try:
        put(home, file, json.dumps(record, separators=(",", ":")).encode(), 0o644)
    except OSError as error:
        log.warning("a file of an agent's CLI is left as it is", file=str(home / file), error=str(error))
