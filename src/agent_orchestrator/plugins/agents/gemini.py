"""The plugin `gemini`: runs Google's Gemini CLI and reads its chat records and its window title (docs/agents/gemini.md)."""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.plugins.agents.shared.input_prompts import log_size
from agent_orchestrator.plugins.agents.shared.journals import Journal, parse_time, past_lines, size_of
from agent_orchestrator.plugins.agents.shared.window_titles import WindowTitle, WindowTitleReader
from agent_orchestrator.protocols import (
    Activity,
    Agent,
    AgentContext,
    AgentLaunch,
    AgentState,
    Delivery,
    InstalledAgent,
    NotReady,
    ReportBatch,
    RunningLaunch,
    ScreenRules,
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL_REMEDY = "install it: npm install -g @google/gemini-cli"
MODES = {"default": "default", "plan": "plan", "auto-edit": "auto_edit", "full": "yolo"}
SHELLS = frozenset({"Shell", "run_shell_command"})
TOOL_NAMES = {"Shell": "run_shell_command", "Edit": "replace", "WriteFile": "write_file", "WebFetch": "web_fetch"}
"""Gemini's tool names by the names that its dialogs show."""

SETTLE_SECONDS = 1.0
"""Seconds that a turn's last record may be written after the title has shown the end of the turn."""
SCREEN_RECHECK_SECONDS = 0.3
MAX_SCREEN_READS = 100

_READY = re.compile(r"^\s*[>*!]\s+Type your message", re.MULTILINE)
_INPUT_LINE = re.compile(r"^ [>*!] +(.*?) *$", re.MULTILINE)
_LOGIN = re.compile(r"How would you like to authenticate|Enter Gemini API Key|Waiting for auth", re.IGNORECASE)
_DIALOG_HEADING = re.compile(r"^[^\S\n]*+(?:│[^\S\n]*+)?\?[^\S\n]++(?P<said>\S.*)$", re.MULTILINE)
_CONFIRM_LINE = re.compile(r"^[^\w\n]*+((?:Allow|Apply|Do you want).*\?)[^\w\n?]*+$", re.MULTILINE)
_LIMIT = re.compile(r"usage limit reached|exhausted your (?:daily )?(?:quota|capacity)|quota will reset", re.IGNORECASE)


class Gemini(Agent):
    """The agent plugin that runs `gemini` interactively."""

    screen = ScreenRules(
        ready=_READY,
        busy=re.compile(r"esc to cancel"),
        blocked=re.compile(r"^\W*(?:Allow execution of|Apply this change|Do you want to proceed).*\?", re.MULTILINE),
    )
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("1",), "always": ("1",), "deny": ("Escape",)}
    """`always` presses "once": the permanent rule is ours, kept for the project; Gemini's own would cover more than was asked."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return Gemini's folder (login, conversations) as writable, its settings in it as read-only."""
        del private
        return agent_cli.agent_state(
            _home(env), "settings.json", "GEMINI.md", "commands", "extensions", "policies", "skills"
        )

    async def detect(self) -> InstalledAgent | None:
        """Return where `gemini` is installed and its version, or None."""
        return await agent_cli.detect(self._host, "gemini")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command `gemini -i PROMPT` with a session id of ours, or with `--resume` if that session has had a message."""
        home = _home(context.env)
        argv = [agent_cli.find_program(self._host, "gemini", context, INSTALL_REMEDY), "--skip-trust"]
        if model := context.model or self._model:
            argv += ["--model", str(model)]
        argv += ["--approval-mode", MODES.get(context.permissions, "default")]
        if policy := _write_policy(context):
            for path in (home / "policies", policy):
                argv += ["--policy", str(path)]
        prompt, conversation = agent_cli.first_message(context), context.resume
        if conversation is None or (
            _is_uuid(conversation) and not await run_in_own_thread(_has_messages, home, conversation)
        ):
            conversation = conversation or str(uuid.uuid4())
            argv += ["--session-id", conversation]
        else:
            argv += ["--resume", conversation or "latest"]
            prompt = agent_cli.shorten_to_argument(context.message, context)
        if prompt:
            argv += ["--prompt-interactive", agent_cli.as_argument(self.escape_input(prompt))]
        await run_in_own_thread(_choose_login, home, context.env)
        return AgentLaunch(
            tuple(argv),
            await self._git_identity(context),
            waits=not prompt,
            conversation=conversation or None,
            plugin_data={
                "home": str(home),
                "log": str(log_size(context)),
                "prompt": "yes" if prompt else "",
                "resumed": "yes" if "--resume" in argv else "",
                "before": json.dumps({path.name: size_of(path) for path in _chat_files(home, conversation)}),
            },
        )

    async def _git_identity(self, context: AgentContext) -> dict[str, str]:
        """Return the Git author as variables: Gemini's shell hides the user's global Git configuration, but passes variables on."""
        if "GIT_AUTHOR_NAME" in context.env:
            return {}
        try:
            result = await self._host.run(
                ["git", "var", "GIT_AUTHOR_IDENT"], cwd=context.workspace, env=context.env, timeout=5.0
            )
        except AoError:
            return {}
        match = re.match(r"(.*) <([^>]*)>", result.text)
        if result.code or not match:
            return {}
        return {
            f"GIT_{role}_{field}": match[group]
            for role in ("AUTHOR", "COMMITTER")
            for group, field in ((1, "NAME"), (2, "EMAIL"))
        }

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield reports from the chat records and the window title, and from the screen where neither says enough."""
        listener = _GeminiListener(run)
        while True:
            async for heard in listener.read():
                yield heard
            if listener.needs_screen and (screen_report := listener.read_screen(await _screen_text(run))):
                yield screen_report
            if not await run.changes.next(listener.wait_seconds):
                async for heard in listener.read():
                    yield heard
                return

    async def deliver(self, run: RunningLaunch, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Return `NotReady` until the conversation is set up, since the input line that is shown before loses its text; then None,
        so that it is typed.
        """
        del message, text, interrupt
        return None if await run_in_own_thread(_has_begun, run) else NotReady("the agent is not ready yet")

    def escape_input(self, text: str) -> str:
        """Return the text with a space in front if it begins like a command of Gemini."""
        return f" {text}" if text.startswith(("/", "!", "?")) else text

    def has_unsent_text(self, screen: str, text: str) -> bool:
        """Return whether the text is still in the input line: Enter right after a paste only adds a line break."""
        lines = _INPUT_LINE.findall(screen)
        return bool(lines) and (agent_cli.is_beginning(text, lines[-1]) or lines[-1].startswith("[Pasted Text:"))


class _GeminiListener:
    """A reader of one launch: its chat files, its window titles and its screen."""

    def __init__(self, run: RunningLaunch) -> None:
        self._run = run
        self._titles = WindowTitleReader(run, int(run.plugin_data.get("log") or 0))
        self._journals: dict[Path, Journal] = {}
        self._conversation = ChatState(resumed=bool(run.plugin_data.get("resumed")))
        self._earlier_sizes: dict[str, int] = json.loads(run.plugin_data.get("before") or "{}")
        self._state = Activity.STARTING
        self._ready_title: tuple[WindowTitle, float] | None = None
        self._screen_reads = 0
        self.needs_screen = not run.plugin_data.get("prompt")
        """Whether the screen must be read, since it shows something that is in no record."""

    @property
    def wait_seconds(self) -> float | None:
        """Return the seconds to wait for a change while something is due, otherwise None."""
        return SCREEN_RECHECK_SECONDS if self._ready_title or (self.needs_screen and self._screen_reads) else None

    async def read(self) -> AsyncIterator[ReportBatch]:
        """Yield the reports of new chat records, then those of new titles."""
        for journal in self._open_journals():
            cursor, earlier_size = (
                self._run.cursors.get(journal.cursor_name, 0),
                self._earlier_sizes.get(journal.path.name, 0),
            )
            async for line in journal.lines():
                is_current = line.start >= earlier_size
                reports = self._conversation.read_record(line.data, now=is_current)
                if not is_current:  # the state of an earlier process
                    reports = [report for report in reports if not isinstance(report, r.ActivityReport)]
                for report in reports:
                    if isinstance(report, r.ActivityReport):
                        self._state, self.needs_screen = report.state, False
                if reports and line.end > cursor:
                    yield journal.make_batch(line, *reports)
        for title in self._titles.read():
            for heard in self._read_title(title):
                yield heard
        for heard in self._end_settled_turn():
            yield heard

    def _open_journals(self) -> list[Journal]:
        """Return the journals of the conversation's files, opening new ones."""
        for path in _chat_files(Path(self._run.plugin_data["home"]), self._run.conversation or ""):
            if path not in self._journals:
                self._journals[path] = Journal(path, replace(self._run, cursors={}))
        return list(self._journals.values())

    def _read_title(self, title: WindowTitle) -> Iterator[ReportBatch]:
        """Yield the report of a title: waiting for a permission, working, or ready."""
        if title.text.startswith("✋"):
            self._ready_title, self.needs_screen, self._screen_reads = None, True, 1
        elif title.text.startswith(("✦", "⏲")):
            self._ready_title, self.needs_screen = None, False
            if self._state != Activity.ACTIVE:
                self._state = Activity.ACTIVE
                yield self._titles.make_batch(title, r.ActivityReport(Activity.ACTIVE))
        elif title.text.startswith("◇"):
            if self._conversation.is_in_turn:
                self._ready_title, self.needs_screen = (title, time.monotonic() + SETTLE_SECONDS), False
            elif self._state == Activity.STARTING:
                self.needs_screen, self._screen_reads = True, 1

    def _end_settled_turn(self) -> Iterator[ReportBatch]:
        """Yield the end of the turn once the title has shown it and the last text is recorded, or `SETTLE_SECONDS` have passed."""
        if self._ready_title and not self._conversation.is_in_turn:
            self._ready_title = None
        elif self._ready_title and (self._conversation.last_text or time.monotonic() > self._ready_title[1]):
            title, self._ready_title = self._ready_title[0], None
            self._conversation.is_in_turn, self._state = False, Activity.IDLE
            yield self._titles.make_batch(title, r.TurnReport(self._conversation.last_text))

    def read_screen(self, screen: str) -> ReportBatch | None:
        """Return a report if the screen shows a dialog, or a state before the first turn; None if not drawn yet."""
        report = (
            dialog_report(screen)
            if self._conversation.is_in_turn
            else opening_report(screen, begun=self._conversation.is_set_up)
        )
        is_idle = isinstance(report, r.ActivityReport) and report.state == Activity.IDLE
        self._screen_reads += 1
        # The screen is not drawn yet, or the first prompt is about to be taken.
        if report is None or (is_idle and self._run.plugin_data.get("prompt")):
            self.needs_screen = self._screen_reads < MAX_SCREEN_READS
            return None
        self._state, self.needs_screen = Activity.IDLE if is_idle else Activity.BLOCKED, False
        return ReportBatch((report,), "screen")


class ChatState:
    """A conversation as its records describe it."""

    def __init__(self, *, resumed: bool = False) -> None:
        self._resumed = resumed
        self.is_in_turn = False
        """Whether a turn is running; one that an earlier process left unfinished does not count."""
        self.is_set_up = False
        """Whether this process has set its conversation up; what is typed before that is not sent."""
        self.last_text = ""
        """The last text of this turn, if the turn may end with it."""
        self._counted_ids: set[str] = set()
        self._last_progress: tuple[int, int, str] | None = None

    @skip_malformed
    def read_record(self, record: Mapping[str, Any], *, now: bool = True) -> list[r.Report]:
        """Return the reports of one record; `now` is False for a record of an earlier process."""
        timestamp = parse_time(record.get("timestamp"))
        if now and ("sessionId" if self._resumed else "messages") in record.get("$set", {}):
            self.is_set_up = True
        text = _text(record.get("displayContent") or record.get("content"))
        match record.get("type"):
            case "user":
                self.last_text = ""
                if not text or text.startswith("<session_context>"):
                    return []
                self.is_in_turn = now
                return [
                    r.MessageTakenReport(agent_cli.without_rules(text), timestamp),
                    r.ActivityReport(Activity.ACTIVE, "", timestamp),
                ]
            case "gemini":
                calls = record.get("toolCalls") or []
                self.last_text = "" if calls else text
                return [*self._usage(record, timestamp), *self._progress(calls, timestamp)]
            case "info" if text.startswith("Request cancelled"):
                self.is_in_turn = False
                return [r.ActivityReport(Activity.INTERRUPTED, "", timestamp)]
            case "error":
                self.is_in_turn = False
                detail = " ".join(text.split())[:300]
                reports: list[r.Report] = [r.ActivityReport(Activity.INTERRUPTED, detail, timestamp)]
                return [*reports, r.LimitReport(None, timestamp)] if _LIMIT.search(text) else reports
        return []

    def _usage(self, record: Mapping[str, Any], timestamp: Any) -> list[r.Report]:
        """Return the usage of one answer, once per answer."""
        tokens, key = record.get("tokens"), str(record.get("id"))
        if not isinstance(tokens, Mapping) or key in self._counted_ids:
            return []
        self._counted_ids.add(key)
        counts = {name: value for name, value in tokens.items() if isinstance(value, int)}
        cached = counts.get("cached", 0)
        return [
            r.UsageReport(
                model=str(record.get("model") or ""),
                input=max(0, counts.get("input", 0) - cached) + counts.get("tool", 0),
                output=counts.get("output", 0) + counts.get("thoughts", 0),
                cache_read=cached,
                time=timestamp,
            )
        ]

    def _progress(self, calls: Sequence[Mapping[str, Any]], timestamp: Any) -> list[r.Report]:
        """Return the progress of the to-do list for each call that changed it."""
        reports: list[r.Report] = []
        for call in calls:
            todos = call.get("args", {}).get("todos") if call.get("name") == "write_todos" else None
            if not isinstance(todos, list):
                continue
            active_todos = [todo for todo in todos if isinstance(todo, Mapping) and todo.get("status") != "cancelled"]
            done = sum(todo.get("status") == "completed" for todo in active_todos)
            step = next(
                (str(todo.get("description")) for todo in active_todos if todo.get("status") == "in_progress"), ""
            )
            if self._last_progress != (done, len(active_todos), step):
                self._last_progress = (done, len(active_todos), step)
                reports.append(r.ProgressReport(done, len(active_todos), step, time=timestamp))
        return reports


def dialog_report(screen: str) -> r.Report | None:
    """Return the permission request or question of the dialog on the screen, or None."""
    headings = list(_DIALOG_HEADING.finditer(screen))
    confirms = list(_CONFIRM_LINE.finditer(screen))
    if not headings:
        return None
    tool, argument = _parse_heading(headings[-1]["said"])
    if not confirms:
        question = " ".join(part for part in (tool, argument) if part)
        return r.ActivityReport(Activity.WAITING_INPUT, question) if re.search(r"\d\. ", screen) else None
    command = _command_in_box(screen[headings[-1].end() :].partition("\n")[2])
    if not command and tool in SHELLS:
        command = f"$ {argument}"  # the heading may cut it: `$ ` keeps a rule from matching it as the command
    return r.PermissionReport(tool, command or argument, confirms[-1][1])


def _parse_heading(heading: str) -> tuple[str, str]:
    """Return the tool and its argument from a dialog's heading, where two spaces separate them; the edge of the box may follow."""
    tool, *rest = re.split(r"\s{2,}", heading, maxsplit=1)
    if rest and (argument := _strip_symbols(rest[0])):
        return tool, argument
    words = tool.split(" ")
    while len(words) > 1 and not _strip_symbols(words[-1]):
        words.pop()
    return " ".join(words), ""


def _strip_symbols(text: str) -> str:
    """Return the text without trailing characters that belong to no word."""
    end = len(text)
    while end and not (text[end - 1].isalnum() or text[end - 1] == "_"):
        end -= 1
    return text[:end]


def _command_in_box(below: str) -> str:
    """Return the whole command from the box below the dialog's heading."""
    command_lines: list[str] | None = None
    for line in below.splitlines():
        outer_box = re.fullmatch(r"\s*│ ?(.*?)\s*│?\s*", line)
        text = outer_box[1].strip() if outer_box else line.strip()
        if re.fullmatch(r"╭─+╮?", text) and command_lines is None:
            command_lines = []
        elif re.fullmatch(r"╰─+╯?", text):  # lines inside the box begin with its edge
            break
        elif command_lines is not None and (inner_box := re.fullmatch(r"│\s?(.*?)\s*│?", text)):
            command_lines.append(inner_box[1])
    return "\n".join(command_lines or ()).strip()


def opening_report(screen: str, *, begun: bool) -> r.Report | None:
    """Return what Gemini waits for before its first turn: a login, or a message; None while it is starting."""
    if _LOGIN.search(screen):
        return r.ActivityReport(Activity.WAITING_INPUT, "how should it log in? (answer in its terminal)")
    is_ready = begun and _READY.search(screen) and "Resuming session" not in screen
    return r.ActivityReport(Activity.IDLE) if is_ready else None


async def _screen_text(run: RunningLaunch) -> str:
    """Return the text of the screen, or "" if the terminal is gone."""
    try:
        return await run.screen()
    except AoError:
        return ""


def _text(content: object) -> str:
    """Return the text of a record's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "\n".join(part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str))


def _home(env: Mapping[str, str]) -> Path:
    """Return Gemini's folder."""
    return Path(env.get("GEMINI_CLI_HOME") or env.get("HOME") or Path.home()) / ".gemini"


def _is_uuid(text: str) -> bool:
    """Return whether the text is a UUID in its usual form."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _chat_files(home: Path, conversation: str) -> list[Path]:
    """Return the files of a conversation: a resumed one continues in the old file and leaves an empty new one."""
    if not _is_uuid(conversation):
        return []
    return sorted(home.glob(f"tmp/*/chats/session-*-{conversation[:8]}.jsonl"))


def _has_begun(run: RunningLaunch) -> bool:
    """Return whether this launch has set its conversation up, so that it takes messages."""
    earlier_sizes: dict[str, int] = json.loads(run.plugin_data.get("before") or "{}")
    chat = ChatState(resumed=bool(run.plugin_data.get("resumed")))
    for path in _chat_files(Path(run.plugin_data["home"]), run.conversation or ""):
        with contextlib.suppress(OSError):
            for line in past_lines(path, earlier_sizes.get(path.name, 0)):
                with contextlib.suppress(ValueError, RecursionError):
                    chat.read_record(json.loads(line))
    return chat.is_set_up


def _has_messages(home: Path, conversation: str) -> bool:
    """Return whether the conversation has a message of a user, so that it can be resumed."""
    for path in _chat_files(home, conversation):
        with contextlib.suppress(OSError):
            if any(b'"type":"user"' in line and not line.startswith(b'{"$set"') for line in past_lines(path)):
                return True
    return False


def _write_policy(context: AgentContext) -> Path | None:
    """Write the rules for what needs no permission as a policy file in the session's folder; return its path, or None without rules."""
    tools = [
        TOOL_NAMES.get(permission.tool, permission.tool)
        for permission in context.allowed
        if permission.tool not in SHELLS and not permission.command
    ]
    rules = [f"toolName = {json.dumps(tool)}" for tool in dict.fromkeys(tools)]
    if context.permissions == "auto-edit":
        rules.append('toolName = "run_shell_command"\ncommandPrefix = "git status"')
    if not rules:
        return None
    path = context.private / "gemini-policy.toml"
    text = "\n".join(f'[[rule]]\n{rule}\ndecision = "allow"\npriority = 100\n' for rule in rules)
    path.write_text(text, encoding="utf-8")
    return path


def _choose_login(home: Path, env: Mapping[str, str]) -> None:
    """Set the login method in Gemini's settings if a key is in the environment, so that it does not ask; the user's earlier
    choice stays.
    """
    if env.get("GEMINI_API_KEY"):
        method = "gemini-api-key"
    elif env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        method = "vertex-ai"
    else:
        return

    def choose(settings: dict[str, Any]) -> bool:
        """Set the method; return whether the settings changed."""
        security = settings.setdefault("security", {})
        login = security.setdefault("auth", {}) if isinstance(security, dict) else None
        if not isinstance(login, dict) or login.get("selectedType"):
            return False
        login["selectedType"] = method
        return True

    agent_cli.merge_json(home / "settings.json", choose, home)
