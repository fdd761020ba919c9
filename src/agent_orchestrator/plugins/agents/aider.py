"""`aider`: heard by its chat history, its event log and its terminal's prompts (docs/agents/aider.md)."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from agent_orchestrator.errors import Missing, UsageError
from agent_orchestrator.git_files import find_layout
from agent_orchestrator.host import ProcessId
from agent_orchestrator.plugins.agents.journals import Journal
from agent_orchestrator.plugins.agents.prompts import OpenTurn, Prompt, PromptLog, below, log_size
from agent_orchestrator.plugins.workspaces.furnish import exclude
from agent_orchestrator.protocols import (
    Activity,
    AgentContext,
    AgentLaunch,
    AgentRun,
    Delivery,
    Found,
    Heard,
    Held,
    ScreenRules,
    Turn,
    TurnLine,
    Typable,
)
from agent_orchestrator.reports import (
    ActivityReport,
    LimitReport,
    PermissionReport,
    Report,
    TookReport,
    TurnReport,
    UsageReport,
)
from agent_orchestrator.spool import SpoolReader, clean_text

if TYPE_CHECKING:
    from agent_orchestrator.host import Host

LONGEST_TASK = 100_000
"""Bytes of a task that are typed; a longer one is given as a file to read."""
LONGEST_LINE = 32 * 1024 * 1024
SETTLED = 0.2
"""Seconds without change after which a message at the end of the chat history is complete."""
ENDS_IT = 3.0
"""Seconds within which a second interrupt makes aider exit, and some."""
TAGS_CACHE = ".aider.tags.cache.v*"
QUIET = (
    "--no-check-update",
    "--no-show-release-notes",
    "--no-show-model-warnings",
    "--no-gitignore",
    "--no-analytics",
    "--no-detect-urls",
    "--disable-playwright",
    "--auto-commits",
)
"""Asks nothing at its start, fetches no address that a message happens to name, sends nothing home."""
YES = ("--yes-always", "--no-suggest-shell-commands")
"""It edits without asking, and runs no commands of the model's: the only way of working where nobody can be asked."""
PLAN = ("--chat-mode", "ask", *YES)
ASKS = {
    "Run shell command?": "shell",
    "Create new file?": "edit",
    "Allow edits to file that has not been added to the chat?": "edit",
    "Add file to the chat?": "read",
    "Add URL to the chat?": "fetch",
}
"""Its questions about something that it names right before. All others are about going on: "Attempt to fix lint errors?"."""

SEVERAL = "Run shell commands?"
_MAIN_PROMPT = re.compile(r"^(?:[\w-]+ ?)?(?:multi)?>(?: |$)", re.MULTILINE)
_DIALOG = re.compile(r"\s*(?P<question>.+?)\s*\(Y\)es/\(N\)o")
_ERROR = re.compile(r"litellm\.\w+: |Model \S+ has hit a token limit|No LLM model was specified and no API keys")
_QUOTA = re.compile(r"quota|usage limit|credit balance|insufficient credits", re.IGNORECASE)
_AGAIN_IN = re.compile(r"try again in (?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?", re.IGNORECASE)
_MODEL = re.compile(r"(?:Main m|M)odel: (\S+)")
_CACHED = re.compile(r"([\d.]+k?) cache (hit|write)")
_USER = "#### "
_EVENT, _SAID = "\x1ee", "\x1ec"
"""How a turn without a terminal marks the lines of its event log and of its chat history."""


@dataclass(frozen=True, slots=True)
class _Files:
    """What aider keeps for one session, outside the workspace."""

    folder: Path

    @property
    def chat(self) -> Path:
        return self.folder / "chat.history.md"

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def rules(self) -> Path:
        return self.folder / "instructions.md"

    @property
    def task(self) -> Path:
        return self.folder / "task.md"

    @property
    def interrupted(self) -> Path:
        return self.folder / "interrupted"


def _files(private: Path) -> _Files:
    return _Files(private / "aider")


class Aider:
    """Starts aider, types into it only at its prompt, and hears it."""

    screen = ScreenRules()
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("y", "Enter"), "deny": ("n", "Enter")}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._stream = bool(config.get("stream"))
        self._story = _Story()
        self._blank = False

    async def detect(self) -> Found | None:
        """Its version is read from its installation: starting it takes seconds."""
        path = self._host.which("aider")
        return Found(path, _version(Path(path))) if path else None

    def typed(self, text: str) -> str:
        """A message is never a command."""
        return _as_message(text)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """It takes no first prompt: the task is typed once it is ready, its rules are a file that it reads."""
        files = _files(context.private)
        files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(context, files, context.resume)
        argv = [self._program(context), *_arguments(context, files), "--fancy-input", "--no-multiline"]
        argv.append("--stream" if self._stream else "--no-stream")
        _keep_out_of_sight(context.workspace)
        text = context.message if context.resume is not None else context.task or context.prompt
        if len(text.encode()) > LONGEST_TASK:
            files.task.write_text(text, encoding="utf-8")
            argv += ["--read", str(files.task)]
            text = f"Your task is in the read-only file {files.task.name}. Do what it says."
        size = files.chat.stat().st_size if files.chat.exists() else 0
        return AgentLaunch(
            tuple(argv),
            await self._env(context),
            paste=text or None,
            waits=not text,
            conversation=str(files.chat),
            memo={"chat": str(size), "log": str(log_size(context)), **({"task": "typed"} if text else {})},
        )

    async def _env(self, context: AgentContext) -> dict[str, str]:
        """No browser is opened; without an identity aider would write one into the repository's configuration."""
        env = {"BROWSER": "true"}
        number = int(context.env.get("GIT_CONFIG_COUNT") or 0)
        for key, value in (("user.name", "aider"), ("user.email", "aider@localhost")):
            known = await self._host.run(
                ["git", "config", "--get", key], cwd=context.workspace, env=context.env or None
            )
            if known.code:
                env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
                number += 1
                env["GIT_CONFIG_COUNT"] = str(number)
        return env

    def _program(self, context: AgentContext) -> str:
        found = self._host.which("aider", context.env.get("PATH"))
        if found is None:
            raise Missing("aider is in no directory of PATH", "install it: python -m pip install aider-chat")
        return found

    # -- hearing -------------------------------------------------------------------------------------------------------

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """Its chat history tells what was taken up and said, its terminal when it waits, its event log what it cost."""
        files = _files(run.private)
        prompts = PromptLog(run.log, int(run.memo.get("log", "0")))
        chat, events = _Chat(files.chat, run), Journal(files.events, run, "record")
        run.changes.watch(run.log)
        told, asking, alive = -1, False, True
        while True:
            prompt = prompts.look()  # before the chat history: what led to a prompt is written there by then
            for heard in chat.read(prompts, final=not alive):
                yield heard
            for line in events.lines():
                chat.answering = line.data.get("event") == "message_send_starting"
                if usage := _usage(line.data, chat.story):
                    yield events.heard(line, usage)
            if prompt is None and asking:
                asking = False
                yield Heard((ActivityReport(Activity.ACTIVE),), "mode")
            elif (
                prompt is not None and prompt.start != told and (seen := _seen(prompt, chat, run.workspace)) is not None
            ):
                told, asking = prompt.start, isinstance(seen, PermissionReport)
                place = "" if seen == ActivityReport(Activity.IDLE) else run.log.name
                yield Heard((seen,), "mode", place, prompt.start, prompt.end)
            if not alive:
                break
            pending = chat.unsettled or (chat.turn is not None and chat.turn.doubtful(prompt, monotonic()))
            alive = await run.changes.next(SETTLED if pending else None)
        await asyncio.to_thread(_tidy, run.workspace)

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | Typable | None:
        """Typed only at its own prompt: what comes while it works would be cut into lines, or answer a question."""
        del text
        prompts = PromptLog(run.log, int(run.memo.get("log", "0")))
        prompt = prompts.look()
        if prompt is not None:
            return Typable() if _MAIN_PROMPT.search(prompt.text) else Held("the agent waits for a permission")
        if not prompts.began:
            return Held("the agent is not ready yet")
        if interrupt:
            self._interrupt(run, message)
        return Held("aider takes messages between its turns")

    def _interrupt(self, run: AgentRun, message: str) -> None:
        """Once for each message; and not twice in short order, which would end it."""
        mark = _files(run.private).interrupted
        if mark.exists() and (mark.read_text() == message or time.time() - mark.stat().st_mtime < ENDS_IT):
            return
        mark.write_text(message)
        self._host.kill(ProcessId(run.pid, run.started), signal.SIGINT, group=True)

    # -- headless ------------------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> Turn:
        """One message from a file. What it adds to its chat history and event log is printed, marked, behind its output."""
        files = _files(context.private)
        files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(context, files, conversation)
        _keep_out_of_sight(context.workspace)
        files.task.write_text(_as_message(prompt), encoding="utf-8")
        command = [
            self._program(context),
            *_arguments(context, files),
            *YES,
            "--no-pretty",
            "--no-fancy-input",
            "--no-stream",
        ]
        argv = ("/bin/sh", "-c", HEADLESS, "sh", str(files.chat), str(files.events), *command)
        self._story = _Story()
        return Turn((*argv, "--message-file", str(files.task)), {"BROWSER": "true"})

    def read_turn(self, line: str) -> TurnLine:
        """Its output is shown; what it means is in its chat history and event log, which come behind."""
        if line.startswith(_SAID):
            text = line[len(_SAID) :]
            self._story.line(text, gap=self._blank)
            self._blank = not text.strip()
        elif line.startswith(_EVENT):
            try:
                record = json.loads(line[len(_EVENT) :])
            except ValueError:
                return TurnLine()
            if usage := _usage(record, self._story):
                return TurnLine(reports=(usage,))
            if record.get("event") == "exit":
                return TurnLine(reports=(_as_turn(self._story),))
        else:
            return TurnLine(line)
        return TurnLine()


HEADLESS = """\
chat=$1 events=$2; shift 2; touch "$chat"; size=$(wc -c <"$chat"); : >"$events"
"$@"; code=$?
tail -c +$((size + 1)) "$chat" | sed "s/^/\x1ec/"; sed "s/^/\x1ee/" "$events"; exit $code"""


# -- starting ----------------------------------------------------------------------------------------------------------


def _arguments(context: AgentContext, files: _Files) -> list[str]:
    files.rules.write_text(context.system, encoding="utf-8")
    argv = [*QUIET, *(PLAN if context.permissions == "plan" else ())]
    argv += ["--chat-history-file", str(files.chat), "--input-history-file", str(files.folder / "input.history")]
    argv += ["--llm-history-file", "", "--analytics-log", str(files.events)]
    if context.system:
        argv += ["--read", str(files.rules)]
    if context.model:
        argv += ["--model", context.model]
    if context.commands and context.permissions in ("auto-edit", "full"):
        argv += ["--test-cmd", " && ".join(context.commands), "--auto-test"]
    if files.chat.exists():
        argv.append("--restore-chat-history")
    return argv


def _as_message(text: str) -> str:
    """A first character that aider would take for a command, or for the begin of several lines, gets a blank before it."""
    text = text.replace("\0", "")
    return f" {text}" if text.startswith(("/", "!", "{")) else text


def _adopt(context: AgentContext, files: _Files, conversation: str | None) -> None:
    """A conversation begun by hand is continued in a copy of its chat history."""
    if not conversation or files.chat.exists() or Path(conversation) == files.chat:
        return
    source = context.repo / Path(conversation).expanduser()
    source = source / ".aider.chat.history.md" if source.is_dir() else source
    if not source.is_file():
        raise UsageError(f"there is no chat history of aider at {source}", "name a .aider.chat.history.md")
    shutil.copyfile(source, files.chat)


def _keep_out_of_sight(workspace: Path) -> None:
    """aider keeps its map of the repository in the workspace, wherever its other files are: Git must not see it."""
    layout = find_layout(workspace)
    if layout is not None:
        exclude(layout, [f"/{TAGS_CACHE}/"])


def _tidy(workspace: Path) -> None:
    for folder in workspace.glob(TAGS_CACHE):
        shutil.rmtree(folder, ignore_errors=True)


def _version(program: Path) -> str:
    for found in program.resolve().parent.parent.glob("lib/python*/site-packages/aider_chat-*.dist-info"):
        return found.name.removeprefix("aider_chat-").removesuffix(".dist-info")
    return ""


# -- reading -----------------------------------------------------------------------------------------------------------


class _Story:
    """What aider's chat history tells of a turn, line by line: `> ` is the program, `#### ` the user, the rest the model."""

    def __init__(self) -> None:
        self.model = ""
        self.begin()

    def begin(self) -> None:
        """A new turn."""
        self.words: list[str] = []
        self.subject: list[str] = []
        self.error = ""
        self.interrupted = False
        self.retrying = False
        self.cached: dict[str, int] = {}
        self._speaks = ""

    def line(self, text: str, *, gap: bool) -> Report | None:
        """Take one line; `gap`: a blank one stands before it. Tells of retries."""
        before = "" if gap else self._speaks
        if text.startswith("> ") and not (before == "model" and not text.endswith("  ")):
            self._speaks = "program" if text.endswith("  ") else "program goes on"
            return self._program(text[2:].strip(), anew=True)
        if before == "program goes on":  # text of several lines has the mark only once
            self._speaks = "program" if text.endswith("  ") else before
            return self._program(text.strip(), anew=False)
        if not text.strip() or text.startswith(("# aider chat started at ", _USER)):
            return None
        self._speaks = "model"
        self.words.append(text)
        self.error = ""
        return self._recovered()

    def _program(self, text: str, *, anew: bool) -> Report | None:
        self.subject = [text] if anew else [*self.subject, text]
        if _ERROR.match(text):
            self.error = text
        elif text.startswith("Retrying in "):
            self.retrying = True
            return ActivityReport(Activity.RETRYING, self.error)
        elif text == "^C again to exit":
            self.interrupted = True
        elif text.startswith("Tokens: "):
            self.cached = {kind: _number(number) for number, kind in _CACHED.findall(text)}
            return self._recovered()
        elif named := _MODEL.match(text):
            self.model = named[1]
        return None

    def _recovered(self) -> Report | None:
        was, self.retrying = self.retrying, False
        return ActivityReport(Activity.ACTIVE) if was else None

    def ended(self) -> Report:
        """How the turn ended."""
        if self.interrupted:
            return ActivityReport(Activity.INTERRUPTED)
        if self.error and _QUOTA.search(self.error):
            return LimitReport(_resets_at(self.error))
        if self.error:
            return ActivityReport(Activity.WAITING_INPUT, self.error)
        return TurnReport(_without_edits(self.words))


@dataclass(slots=True)
class _Message:
    """A message of the user, as far as it was read."""

    start: int
    end: int
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class _Chat:
    """A launch's part of the chat history, and the turn it is in."""

    def __init__(self, path: Path, run: AgentRun) -> None:
        self._place = path.name
        self._told = run.cursors.get(self._place, 0)
        self._reader = SpoolReader(path, int(run.memo.get("chat", "0")), LONGEST_LINE)
        run.changes.watch(path)
        self.story = _Story()
        self.turn: OpenTurn | None = None
        self.turns = 0
        self.answering = False
        """The model is asked or answers just now: what looks like a question of aider's may be the model's text."""
        self.idle_first = "task" not in run.memo
        self._message: _Message | None = None
        self._end = 0
        self._caught_up = False

    @property
    def unsettled(self) -> bool:
        """A message stands at the end: more of it may come."""
        return self._message is not None

    def read(self, prompts: PromptLog, *, final: bool) -> Iterator[Heard]:
        """What came since."""
        came = False
        while True:
            for start, line in self._reader.read(final=final):
                came = True
                yield from self._line(start, line, prompts)
            if not self._reader.more:
                break
        if not came or final:
            yield from self._take(prompts)
        self._caught_up = True

    def _line(self, start: int, line: bytes, prompts: PromptLog) -> Iterator[Heard]:
        text, end, gap = clean_text(line.decode(errors="replace")), start + len(line) + 1, start != self._end
        self._end = end
        if text.startswith(_USER) and text.endswith("  "):
            if self._message is not None and not gap:
                self._message.lines.append(text[len(_USER) : -2])
                self._message.end = end
                return
            yield from self._take(prompts)
            self._message = _Message(start, end, [text[len(_USER) : -2]])
            return
        yield from self._take(prompts)
        if (report := self.story.line(text, gap=gap)) is not None and end > self._told:
            yield Heard((report,), "transcript", self._place, start, end)

    def _take(self, prompts: PromptLog) -> Iterator[Heard]:
        """The message is complete."""
        message, self._message = self._message, None
        if message is None or message.text == "<blank>" or "(Y)es/(N)o" in message.text:
            return
        reports: list[Report] = [self.end_turn()] if self.turn else []
        reports += [TookReport(message.text), ActivityReport(Activity.ACTIVE)]
        self.turn = prompts.turn(known=self._caught_up)
        self.turns += 1
        self.story.begin()
        if message.end > self._told:
            yield Heard(tuple(reports), "transcript", self._place, message.start, message.end)

    def end_turn(self) -> Report:
        """How the turn ended."""
        self.turn = None
        return self.story.ended()


def _seen(prompt: Prompt, chat: _Chat, workspace: Path) -> Report | None:
    """What an open prompt means; none while it is not drawn yet, or where it is one that says nothing new."""
    shown = prompt.text.replace("\n", "")
    if asked := _DIALOG.match(shown):
        question = asked["question"]
        if question == SEVERAL or (chat.answering and not chat.story.error):
            # No rule may answer: lines of a command can hide others, and a model's text can look like a question.
            shown = "\n".join([question, *chat.story.subject])
            return PermissionReport(f"aider {prompt.start}", "", shown)
        if question in ASKS:
            about = "\n".join(chat.story.subject)
            if ASKS[question] in ("edit", "read"):
                about = below(workspace, about)
            return PermissionReport(ASKS[question], about, question, str(prompt.start))
        return PermissionReport("continue", question, request=str(prompt.start))
    if not _MAIN_PROMPT.search(prompt.text):
        return None
    if chat.turn is not None:
        return chat.end_turn() if chat.turn.over(prompt, monotonic()) else None
    return ActivityReport(Activity.IDLE) if chat.idle_first and not chat.turns else None


def _usage(record: Mapping[str, Any], story: _Story) -> UsageReport | None:
    """What a request took. The sum of what was sent counts cached tokens too, and those written to the cache twice."""
    counts = record.get("properties")
    if record.get("event") != "message_send" or not isinstance(counts, dict):
        return None
    named = str(counts.get("main_model") or "")
    hit, written = story.cached.get("hit", 0), story.cached.get("write", 0)
    try:
        return UsageReport(
            model=story.model or ("" if named.endswith("REDACTED") else named),
            input=max(0, int(counts.get("prompt_tokens") or 0) - hit - 2 * written),
            output=int(counts.get("completion_tokens") or 0),
            cache_read=hit,
            cache_write=written,
            usd=float(counts["cost"]) if counts.get("cost") else None,
            time=datetime.fromtimestamp(record["time"], UTC) if record.get("time") else None,
        )
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _number(text: str) -> int:
    """`850`, `1.2k`, `28k`."""
    return round(float(text.rstrip("k")) * (1000 if text.endswith("k") else 1))


def _as_turn(story: _Story) -> Report:
    """How a turn without a terminal ended; what went wrong is asked, for nothing waits at a prompt."""
    ended = story.ended()
    if isinstance(ended, ActivityReport) and ended.state == Activity.WAITING_INPUT:
        return TurnReport(f"The model could not be asked ({ended.detail}). Shall it be tried again?")
    return ended if isinstance(ended, TurnReport | LimitReport) else TurnReport()


def _resets_at(error: str) -> datetime | None:
    found = _AGAIN_IN.search(error)
    if found is None or not any(found.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return datetime.now(UTC) + timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _without_edits(lines: list[str]) -> str:
    """What was said around the blocks of code, each of which has the name of its file before it."""
    said: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("```"):
            if not inside and said and " " not in said[-1].strip():
                said.pop()
            inside = not inside
        elif not inside:
            said.append(line)
    return "\n".join(said).strip() or "\n".join(lines).strip()
