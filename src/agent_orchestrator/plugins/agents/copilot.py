"""`copilot`: GitHub's Copilot CLI, heard by the events that it keeps of each session (docs/agents/copilot.md)."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.base.threads import aside
from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.journals import Journal, moment, size_of
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

INSTALL = "install it: npm install -g @github/copilot"
SHELL = "shell"
FILES = {"write": "edit"}
"""What it calls a file's use, where others call it something else."""

LOOK_AGAIN = 0.3
MOST_LOOKS = 200
MOST_WAITS = 8

_ASKS = re.compile(r"↑/↓ to navigate")
_DIALOG = re.compile(r"↑/↓ to navigate|^\W*Cancelling\b", re.MULTILINE)
_INPUT = re.compile(r"^─{20,}\n❯ +(.*?) *$", re.MULTILINE)
_READY = re.compile(r"/ commands · \? help")
_TRUST = re.compile(r"Do you trust the files in this folder\?")
_LOGIN = re.compile(r"(?:use|run) /login|You are not logged in|Please log ?in", re.IGNORECASE)
_RETRIES = re.compile(r"^\W*(Request failed.*Retrying\.\.\.)[\W]*$", re.MULTILINE)
_PASTED = re.compile(r'<pasted_content file="(?P<file>[^"\n]+)"[^<>\n]*/>')
_LIMIT = re.compile(r"rate.?limit|quota|usage limit|premium requests", re.IGNORECASE)


class Copilot:
    """Runs `copilot` interactively."""

    screen = ScreenRules(
        ready=_READY,
        busy=re.compile(r"^\W*Working\b", re.MULTILINE),
        blocked=re.compile(r"^\W*Do you (?:want|trust).*\?", re.MULTILINE),
    )
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("1",), "always": ("1",), "deny": ("Escape",)}
    """For good is a rule of ours, kept for the project: its own would hold for more than was asked."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Its folder: login, conversations."""
        del private
        return cli.kept(_home(env), "mcp-config.json", "agents", "hooks", "skills")

    async def detect(self) -> Found | None:
        """Is `copilot` here?"""
        return await cli.detect(self._host, "copilot")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """`copilot -i PROMPT` with a session id of ours, which also resumes; rules as custom instructions of this session."""
        home = _home(context.env)
        argv = [cli.program(self._host, "copilot", context, INSTALL), "--no-auto-update"]
        conversation = str(uuid.uuid4()) if context.resume is None else _whole(home, context.resume)
        said = _events(home, conversation)
        if not conversation:
            argv.append("--continue")
        elif said.exists() or _is_uuid(conversation):
            argv.append(f"--session-id={conversation}")
        else:
            argv.append(f"--resume={conversation}")
        if model := context.model or self._model:
            argv += ["--model", str(model)]
        argv += _permissions(context)
        resumes = context.resume is not None and (said.exists() or not _is_uuid(conversation))
        prompt = cli.fitting(context.message if resumes else context.task or context.prompt, context)
        if prompt:
            argv += ["--interactive", cli.as_argument(self.typed(prompt))]
        await aside(_trust, home, context)
        return AgentLaunch(
            tuple(argv),
            _instructions(context),
            waits=not prompt,
            conversation=conversation or None,
            memo={
                "home": str(home),
                "prompt": "yes" if prompt else "",
                "before": str(size_of(said)),
            },
        )

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Typed, but not into a dialog: one that was answered stays on the screen for a moment, and takes what is typed."""
        del message, text, interrupt
        return Held("it still shows a dialog") if _DIALOG.search(await _screen(run)) else None

    async def answer(self, run: AgentRun, permission: Permission, decision: str, text: str) -> Sequence[str] | None:
        """By the keys of its dialog, which is drawn some time after it was told of."""
        del text  # it is sent as the next message
        command = permission.command if permission.tool == SHELL else ""
        return await cli.keys_for(run, _ASKS, command, self.permission_keys.get(decision))

    def typed(self, text: str) -> str:
        """A text that begins like one of its commands gets a space in front."""
        return f" {text}" if text.startswith(("/", "!", "?", "#", "&")) else text

    def unsent(self, screen: str, text: str) -> bool:
        """Its input line is the last one between two rules."""
        lines = _INPUT.findall(screen)
        return bool(lines) and (cli.begins(text, lines[-1]) or lines[-1].startswith("[Paste #"))

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """The session's events; its screen only for what is no event: being ready, a question before the start, a retry."""
        ear = _Ear(run)
        while True:
            async for heard in ear.read():
                yield heard
            if ear.looks and (seen := ear.see(await _screen(run))):
                yield seen
            if not await run.changes.next(ear.patience):
                async for heard in ear.read():
                    yield heard
                for heard in ear.left():
                    yield heard
                return


class _Ear:
    """What was heard of one launch so far."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        path = _events(Path(run.memo["home"]), run.conversation or "")
        self._journal = Journal(path, replace(run, cursors={}))
        self._journal.place = f"copilot-{path.parent.name}"
        self._told = run.cursors.get(self._journal.place, 0)
        self._before = int(run.memo.get("before") or 0)
        self._events = Events(run.workspace, path.parent)
        self._state = Activity.STARTING
        self._tries = 0
        self._stopped: Heard | None = None
        """Its turn was stopped; told once it takes messages again, for what is typed before that is lost."""
        run.changes.watch(run.log)

    @property
    def looks(self) -> bool:
        """Something may be on the screen that is no event: before the first turn, and while the model keeps it waiting."""
        return self._starts or self._events.waits or self._stopped is not None

    @property
    def patience(self) -> float | None:
        """How long to wait for a change when something is known to come."""
        return LOOK_AGAIN if self._starts or self._stopped else None

    @property
    def _starts(self) -> bool:
        return self._state == Activity.STARTING and self._tries < MOST_LOOKS

    async def read(self) -> AsyncIterator[Heard]:
        """The events that came since."""
        async for line in self._journal.lines():
            now = line.start >= self._before
            found = [report for report in self._events.take(line.data, now=now) if not self._known(report, now=now)]
            for report in found if now else ():
                self._state = _state_of(report) or self._state
            if not found or line.end <= self._told:
                continue
            if self._stopped:
                yield self._stopped
                self._stopped = None
            heard = self._journal.heard(line, *found)
            if any(isinstance(report, r.ActivityReport) and report.state == Activity.INTERRUPTED for report in found):
                self._stopped, self._tries = heard, 0
            else:
                yield heard

    def left(self) -> list[Heard]:
        """What was not told yet when it ended."""
        return [self._stopped] if self._stopped else []

    def _known(self, report: r.Report, *, now: bool) -> bool:
        """It is active all the time, or it is what an earlier process was doing."""
        state = _state_of(report)
        return state is not None and (not now or (state == self._state == Activity.ACTIVE))

    def see(self, screen: str) -> Heard | None:
        """What the screen says that no event does."""
        self._tries += 1
        report: r.Report | None = None
        if self._stopped:
            heard = (
                self._stopped if _READY.search(screen) or self._tries > MOST_WAITS or self._run.ended.is_set() else None
            )
            self._stopped = None if heard else self._stopped
            return heard
        if self._state != Activity.STARTING:
            retries = retried(screen)
            if retries and self._state != Activity.RETRYING:
                report = r.ActivityReport(Activity.RETRYING, retries)
        elif _TRUST.search(screen):
            report = r.PermissionReport(
                "folder trust", str(self._run.workspace), "Do you trust the files in this folder?"
            )
        elif _LOGIN.search(screen):
            report = r.ActivityReport(Activity.WAITING_INPUT, "it is not logged in: ao attach, then /login")
        elif _READY.search(screen) and not self._run.memo.get("prompt"):
            report = r.ActivityReport(Activity.IDLE)
        if report is None:
            return None
        if not isinstance(report, r.PermissionReport):
            self._state = _state_of(report) or self._state
        return Heard((report,), "screen")


class Events:
    """A session as its events tell it."""

    def __init__(self, workspace: Path, folder: Path) -> None:
        """`folder`: where Copilot keeps what belongs to the session."""
        self._workspace = workspace
        self._folder = folder
        self.waits = False
        """A request to the model is under way."""
        self._said: str | None = None
        self._asked: set[str] = set()

    @forgiving
    def take(self, event: Mapping[str, Any], *, now: bool = True) -> list[r.Report]:
        """What one event says; not `now`: an earlier process wrote it."""
        data, when = event.get("data") or {}, moment(event.get("timestamp"))
        kind = event.get("type")
        if kind == "session.usage_record":
            return _usage(data.get("usage") or {}, when)
        if event.get("agentId") or data.get("parentToolCallId"):
            return []  # a subagent's
        self.waits = now and kind in ("user.message", "assistant.turn_start")
        match kind:
            case "user.message":
                said = _unfolded(str(data.get("content") or ""), self._folder)
                return [r.TookReport(said, when), r.ActivityReport(Activity.ACTIVE, "", when)]
            case "assistant.turn_start":
                self._said = None
                return [r.ActivityReport(Activity.ACTIVE, "", when)]
            case "assistant.message":
                self._said = None if data.get("toolRequests") else str(data.get("content") or "")
                return [r.ActivityReport(Activity.ACTIVE, "", when)]
            case "assistant.turn_end" if self._said is not None:
                return [r.TurnReport(self._said, when)]
            case "permission.requested":
                return self._permission(data, when)
            case "permission.completed":
                self._asked.discard(str(data.get("requestId")))
                refused = (data.get("result") or {}).get("kind") != "approved"  # which may end the turn, in a moment
                return [] if self._asked or refused else [r.ActivityReport(Activity.ACTIVE, "", when)]
            case "user_input.requested" | "elicitation.requested":
                what = data.get("question") or data.get("message") or "it asks something"
                return [r.ActivityReport(Activity.BLOCKED, f"{what} (answer in its terminal)", when)]
            case "user_input.completed" | "elicitation.completed":
                return [r.ActivityReport(Activity.ACTIVE, "", when)]
            case "abort":
                self._asked.clear()
                return [r.ActivityReport(Activity.INTERRUPTED, "", when)]
            case "session.error":
                return _failed(data, when)
        return []

    def _permission(self, data: Mapping[str, Any], when: datetime | None) -> list[r.Report]:
        request = data.get("permissionRequest") or {}
        identity = str(data.get("requestId") or "")
        self._asked.add(identity)
        tool, reason = str(request.get("kind") or "a tool"), str(request.get("intention") or "")
        if path := request.get("fileName") or request.get("path"):
            return [
                r.PermissionReport(
                    FILES.get(tool, tool), cli.inside(self._workspace, str(path)), reason, identity, when
                )
            ]
        what = next((request[key] for key in ("fullCommandText", "url", "toolName") if request.get(key)), "")
        return [r.PermissionReport(tool, str(what), reason, identity, when)]


def _usage(usage: Mapping[str, Any], when: datetime | None) -> list[r.Report]:
    def count(key: str) -> int:
        value = usage.get(key)
        return int(value) if isinstance(value, int | float) else 0

    read, written = count("cacheReadTokens"), count("cacheWriteTokens")
    fresh = max(0, count("inputTokens") - read - written)
    return [r.UsageReport(str(usage.get("model") or ""), fresh, count("outputTokens"), read, written, time=when)]


def _failed(data: Mapping[str, Any], when: datetime | None) -> list[r.Report]:
    """It gave up: a limit of the account's, or the model did not answer."""
    message = " ".join(str(data.get("message") or "").split())[:300]
    limited = data.get("errorType") in ("rate_limit", "quota") or (
        data.get("statusCode") == 429 and _LIMIT.search(message)
    )
    stopped = r.ActivityReport(Activity.INTERRUPTED, f"API error: {message}", when)
    return [stopped, r.LimitReport(None, when)] if limited else [stopped]


def _state_of(report: r.Report) -> Activity | None:
    match report:
        case r.ActivityReport():
            return report.state
        case r.TurnReport():
            return Activity.IDLE
        case r.PermissionReport():
            return Activity.BLOCKED
    return None


def retried(screen: str) -> str:
    """The notice that a request is tried again, if it is the last thing that it shows."""
    above = screen.partition("\n────")[0]
    lines = [line.strip(" ┃│\t") for line in above.splitlines()]
    shown = [line for line in lines if line][:-1]  # the last one is the folder
    match = _RETRIES.match(shown[-1]) if shown else None
    return match[1] if match else ""


async def _screen(run: AgentRun) -> str:
    try:
        return await run.screen()
    except AoError:
        return ""


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("COPILOT_HOME") or Path(env.get("HOME") or Path.home()) / ".copilot")


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _events(home: Path, conversation: str) -> Path:
    return home / "session-state" / (conversation or "none") / "events.jsonl"


def _unfolded(text: str, folder: Path) -> str:
    """A message as it was sent: a long one is kept by Copilot in a file of the session, and the model is told where."""

    def content(found: re.Match[str]) -> str:
        file = Path(found["file"])
        try:
            return read_plain(file).decode() if file.resolve().is_relative_to(folder.resolve()) else found[0]
        except (OSError, ValueError):
            return found[0]

    return _PASTED.sub(content, text)


def _whole(home: Path, conversation: str) -> str:
    """The whole id of a session that is named by its beginning."""
    if not re.fullmatch(r"[0-9a-f-]{7,}", conversation):
        return conversation
    found = [path.name for path in home.glob(f"session-state/{conversation}*") if path.is_dir()]
    return found[0] if len(found) == 1 else conversation


def _permissions(context: AgentContext) -> list[str]:
    match context.permissions:
        case "full":
            return ["--allow-all"]
        case "plan":
            return ["--plan"]
    flags = ["--allow-tool=write"] if context.permissions == "auto-edit" else []
    names = {ours: its for its, ours in FILES.items()}
    flags += [f"--allow-tool={names.get(one.tool, one.tool)}" for one in context.allowed if not one.command]
    return list(dict.fromkeys(flags))


def _instructions(context: AgentContext) -> dict[str, str]:
    """How to work here, as custom instructions in a folder of the session's own."""
    if not context.system:
        return {}
    folder = context.private / "copilot"
    folder.mkdir(exist_ok=True)
    (folder / "worker.instructions.md").write_text(context.system, encoding="utf-8")
    known = context.env.get("COPILOT_CUSTOM_INSTRUCTIONS_DIRS")
    return {"COPILOT_CUSTOM_INSTRUCTIONS_DIRS": f"{known},{folder}" if known else str(folder)}


def _trust(home: Path, context: AgentContext) -> None:
    """The user's own checkout is trusted, and with it all its worktrees; a clone is trusted by itself."""
    worktree = (context.workspace / ".git").is_file() and (context.repo / ".git").exists()
    folder = context.repo if worktree else context.workspace

    def add(config: dict[str, Any]) -> bool:
        trusted = config.setdefault("trustedFolders", [])
        if not isinstance(trusted, list) or {str(folder), *map(str, folder.parents)} & set(map(str, trusted)):
            return False
        trusted.append(str(folder))
        return True

    cli.merge_json(home / "config.json", add, home)
