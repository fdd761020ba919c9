"""`gemini`: Google's Gemini CLI, heard by its chat records and the title it gives its window (docs/agents/gemini.md)."""

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

from agent_orchestrator.base.threads import aside
from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.input_prompts import log_size
from agent_orchestrator.plugins.agents.shared.journals import Journal, moment, past_lines, size_of
from agent_orchestrator.plugins.agents.shared.window_titles import Title, Titles
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
    ScreenRules,
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL = "install it: npm install -g @google/gemini-cli"
MODES = {"default": "default", "plan": "plan", "auto-edit": "auto_edit", "full": "yolo"}
SHELLS = frozenset({"Shell", "run_shell_command"})
TOOLS = {"Shell": "run_shell_command", "Edit": "replace", "WriteFile": "write_file", "WebFetch": "web_fetch"}
"""Tools by the names that a dialog shows."""

SETTLE = 1.0
"""Seconds that a turn's last record may come after the title has said that the turn is over."""
LOOK_AGAIN = 0.3
MOST_LOOKS = 100

_READY = re.compile(r"^\s*[>*!]\s+Type your message", re.MULTILINE)
_INPUT = re.compile(r"^ [>*!] +(.*?) *$", re.MULTILINE)
_LOGIN = re.compile(r"How would you like to authenticate|Enter Gemini API Key|Waiting for auth", re.IGNORECASE)
_ASKED = re.compile(r"^[^\S\n]*+(?:│[^\S\n]*+)?\?[^\S\n]++(?P<said>\S.*)$", re.MULTILINE)
_CONFIRM = re.compile(r"^[^\w\n]*+((?:Allow|Apply|Do you want).*\?)[^\w\n?]*+$", re.MULTILINE)
_LIMIT = re.compile(r"usage limit reached|exhausted your (?:daily )?(?:quota|capacity)|quota will reset", re.IGNORECASE)


class Gemini:
    """Runs `gemini` interactively."""

    screen = ScreenRules(
        ready=_READY,
        busy=re.compile(r"esc to cancel"),
        blocked=re.compile(r"^\W*(?:Allow execution of|Apply this change|Do you want to proceed).*\?", re.MULTILINE),
    )
    interrupt_keys = ("Escape",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("1",), "always": ("1",), "deny": ("Escape",)}
    """For good is a rule of ours, kept for the project: its own would hold for more than was asked."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Its folder: login, conversations."""
        del private
        return cli.kept(_home(env), "settings.json", "GEMINI.md", "commands", "extensions", "policies", "skills")

    async def detect(self) -> Found | None:
        """Is `gemini` here?"""
        return await cli.detect(self._host, "gemini")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """`gemini -i PROMPT` with a session id of ours; `--resume` if that session has said something before."""
        home = _home(context.env)
        argv = [cli.program(self._host, "gemini", context, INSTALL), "--skip-trust"]
        if model := context.model or self._model:
            argv += ["--model", str(model)]
        argv += ["--approval-mode", MODES.get(context.permissions, "default")]
        if policy := _policy(context):
            for path in (home / "policies", policy):
                argv += ["--policy", str(path)]
        prompt, conversation = cli.opening(context), context.resume
        if conversation is None or (_is_uuid(conversation) and not await aside(_spoken, home, conversation)):
            conversation = conversation or str(uuid.uuid4())
            argv += ["--session-id", conversation]
        else:
            argv += ["--resume", conversation or "latest"]
            prompt = cli.fitting(context.message, context)
        if prompt:
            argv += ["--prompt-interactive", cli.as_argument(self.typed(prompt))]
        await aside(_answer_login, home, context.env)
        return AgentLaunch(
            tuple(argv),
            await self._identity(context),
            waits=not prompt,
            conversation=conversation or None,
            memo={
                "home": str(home),
                "log": str(log_size(context)),
                "prompt": "yes" if prompt else "",
                "resumed": "yes" if "--resume" in argv else "",
                "before": json.dumps({path.name: size_of(path) for path in _chats(home, conversation)}),
            },
        )

    async def _identity(self, context: AgentContext) -> dict[str, str]:
        """Who commits: its shell hides the user's global Git configuration from Git, variables it passes on."""
        if "GIT_AUTHOR_NAME" in context.env:
            return {}
        try:
            told = await self._host.run(
                ["git", "var", "GIT_AUTHOR_IDENT"], cwd=context.workspace, env=context.env, timeout=5.0
            )
        except AoError:
            return {}
        match = re.match(r"(.*) <([^>]*)>", told.text)
        if told.code or not match:
            return {}
        return {
            f"GIT_{who}_{what}": match[n] for who in ("AUTHOR", "COMMITTER") for n, what in ((1, "NAME"), (2, "EMAIL"))
        }

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """What it records in its chat, and when its title says that it works, waits for a permission, or is ready."""
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

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Typed, but not before it has set its conversation up: until then it shows an input line that loses what it gets."""
        del message, text, interrupt
        return None if await aside(_begun, run) else Held("the agent is not ready yet")

    def typed(self, text: str) -> str:
        """A text that begins like one of its commands gets a space in front."""
        return f" {text}" if text.startswith(("/", "!", "?")) else text

    def unsent(self, screen: str, text: str) -> bool:
        """Enter right after a paste is a line break to it."""
        lines = _INPUT.findall(screen)
        return bool(lines) and (cli.begins(text, lines[-1]) or lines[-1].startswith("[Pasted Text:"))


class _Ear:
    """What was heard of one launch so far."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._titles = Titles(run, int(run.memo.get("log") or 0))
        self._chats: dict[Path, Journal] = {}
        self._chat = Chat(resumed=bool(run.memo.get("resumed")))
        self._before: dict[str, int] = json.loads(run.memo.get("before") or "{}")
        self._state = Activity.STARTING
        self._ready: tuple[Title, float] | None = None
        self._tries = 0
        self.looks = not run.memo.get("prompt")
        """Something is on the screen that no record tells of."""

    @property
    def patience(self) -> float | None:
        """How long to wait for a change when something is known to come."""
        return LOOK_AGAIN if self._ready or (self.looks and self._tries) else None

    async def read(self) -> AsyncIterator[Heard]:
        """The chat's records first, then what the title said meanwhile."""
        for journal in self._open():
            told, before = self._run.cursors.get(journal.place, 0), self._before.get(journal.path.name, 0)
            async for line in journal.lines():
                now = line.start >= before
                found = self._chat.take(line.data, now=now)
                if not now:  # what an earlier process was doing
                    found = [report for report in found if not isinstance(report, r.ActivityReport)]
                for report in found:
                    if isinstance(report, r.ActivityReport):
                        self._state, self.looks = report.state, False
                if found and line.end > told:
                    yield journal.heard(line, *found)
        for title in self._titles.read():
            for heard in self._entitled(title):
                yield heard
        for heard in self._settled():
            yield heard

    def _open(self) -> list[Journal]:
        for path in _chats(Path(self._run.memo["home"]), self._run.conversation or ""):
            if path not in self._chats:
                self._chats[path] = Journal(path, replace(self._run, cursors={}))
        return list(self._chats.values())

    def _entitled(self, title: Title) -> Iterator[Heard]:
        if title.text.startswith("✋"):
            self._ready, self.looks, self._tries = None, True, 1
        elif title.text.startswith(("✦", "⏲")):
            self._ready, self.looks = None, False
            if self._state != Activity.ACTIVE:
                self._state = Activity.ACTIVE
                yield self._titles.heard(title, r.ActivityReport(Activity.ACTIVE))
        elif title.text.startswith("◇"):
            if self._chat.open:
                self._ready, self.looks = (title, time.monotonic() + SETTLE), False
            elif self._state == Activity.STARTING:
                self.looks, self._tries = True, 1

    def _settled(self) -> Iterator[Heard]:
        """The turn is over by its title; its last words are in the chat, now or in a moment."""
        if self._ready and not self._chat.open:
            self._ready = None
        elif self._ready and (self._chat.said or time.monotonic() > self._ready[1]):
            title, self._ready = self._ready[0], None
            self._chat.open, self._state = False, Activity.IDLE
            yield self._titles.heard(title, r.TurnReport(self._chat.said))

    def see(self, screen: str) -> Heard | None:
        """What the screen says while the title asks for a person, or before anything was said at all."""
        report = asked(screen) if self._chat.open else opening_screen(screen, begun=self._chat.begun)
        idle = isinstance(report, r.ActivityReport) and report.state == Activity.IDLE
        self._tries += 1
        if report is None or (idle and self._run.memo.get("prompt")):  # not painted yet, or about to take its prompt up
            self.looks = self._tries < MOST_LOOKS
            return None
        self._state, self.looks = Activity.IDLE if idle else Activity.BLOCKED, False
        return Heard((report,), "screen")


class Chat:
    """A conversation as its records tell it."""

    def __init__(self, *, resumed: bool = False) -> None:
        self._resumed = resumed
        self.open = False
        """In a turn; one that an earlier process left open is not."""
        self.begun = False
        """This process has set its conversation up: what is typed before that is not sent."""
        self.said = ""
        """The last words of this turn, if it may end with them."""
        self._counted: set[str] = set()
        self._steps: tuple[int, int, str] | None = None

    @forgiving
    def take(self, record: Mapping[str, Any], *, now: bool = True) -> list[r.Report]:
        """What one record says; not `now`: an earlier process wrote it."""
        when = moment(record.get("timestamp"))
        if now and ("sessionId" if self._resumed else "messages") in record.get("$set", {}):
            self.begun = True
        text = _text(record.get("displayContent") or record.get("content"))
        match record.get("type"):
            case "user":
                self.said = ""
                if not text or text.startswith("<session_context>"):
                    return []
                self.open = now
                return [r.TookReport(cli.without_rules(text), when), r.ActivityReport(Activity.ACTIVE, "", when)]
            case "gemini":
                calls = record.get("toolCalls") or []
                self.said = "" if calls else text
                return [*self._usage(record, when), *self._progress(calls, when)]
            case "info" if text.startswith("Request cancelled"):
                self.open = False
                return [r.ActivityReport(Activity.INTERRUPTED, "", when)]
            case "error":
                self.open = False
                detail = " ".join(text.split())[:300]
                reports: list[r.Report] = [r.ActivityReport(Activity.INTERRUPTED, detail, when)]
                return [*reports, r.LimitReport(None, when)] if _LIMIT.search(text) else reports
        return []

    def _usage(self, record: Mapping[str, Any], when: Any) -> list[r.Report]:
        tokens, key = record.get("tokens"), str(record.get("id"))
        if not isinstance(tokens, Mapping) or key in self._counted:
            return []
        self._counted.add(key)
        count = {name: value for name, value in tokens.items() if isinstance(value, int)}
        cached = count.get("cached", 0)
        return [
            r.UsageReport(
                model=str(record.get("model") or ""),
                input=max(0, count.get("input", 0) - cached) + count.get("tool", 0),
                output=count.get("output", 0) + count.get("thoughts", 0),
                cache_read=cached,
                time=when,
            )
        ]

    def _progress(self, calls: Sequence[Mapping[str, Any]], when: Any) -> list[r.Report]:
        found: list[r.Report] = []
        for call in calls:
            todos = call.get("args", {}).get("todos") if call.get("name") == "write_todos" else None
            if not isinstance(todos, list):
                continue
            kept = [todo for todo in todos if isinstance(todo, Mapping) and todo.get("status") != "cancelled"]
            done = sum(todo.get("status") == "completed" for todo in kept)
            step = next((str(todo.get("description")) for todo in kept if todo.get("status") == "in_progress"), "")
            if self._steps != (done, len(kept), step):
                self._steps = (done, len(kept), step)
                found.append(r.ProgressReport(done, len(kept), step, time=when))
        return found


def asked(screen: str) -> r.Report | None:
    """The dialog on the screen: a permission, or a question of the agent's own."""
    heads = list(_ASKED.finditer(screen))
    confirms = list(_CONFIRM.finditer(screen))
    if not heads:
        return None
    tool, shown = _head(heads[-1]["said"])
    if not confirms:
        question = " ".join(part for part in (tool, shown) if part)
        return r.ActivityReport(Activity.WAITING_INPUT, question) if re.search(r"\d\. ", screen) else None
    what = _inner(screen[heads[-1].end() :].partition("\n")[2])
    if not what and tool in SHELLS:
        what = f"$ {shown}"  # the head shows it in part: no rule may take that for the command
    return r.PermissionReport(tool, what or shown, confirms[-1][1])


def _head(said: str) -> tuple[str, str]:
    """The tool, and what it is to be used for, two spaces apart; the edge of the box may stand behind them."""
    tool, *rest = re.split(r"\s{2,}", said, maxsplit=1)
    if rest and (what := _bare(rest[0])):
        return tool, what
    words = tool.split(" ")
    while len(words) > 1 and not _bare(words[-1]):
        words.pop()
    return " ".join(words), ""


def _bare(text: str) -> str:
    """Without what is no word at its end."""
    end = len(text)
    while end and not (text[end - 1].isalnum() or text[end - 1] == "_"):
        end -= 1
    return text[:end]


def _inner(below: str) -> str:
    """The whole command, which stands in a box of its own below the head of the dialog."""
    found: list[str] | None = None
    for line in below.splitlines():
        outer = re.fullmatch(r"\s*│ ?(.*?)\s*│?\s*", line)
        text = outer[1].strip() if outer else line.strip()
        if re.fullmatch(r"╭─+╮?", text) and found is None:
            found = []
        elif re.fullmatch(r"╰─+╯?", text):  # what stands in the box has its edge before it
            break
        elif found is not None and (inner := re.fullmatch(r"│\s?(.*?)\s*│?", text)):
            found.append(inner[1])
    return "\n".join(found or ()).strip()


def opening_screen(screen: str, *, begun: bool) -> r.Report | None:
    """What it waits for before its first turn: a login, or a message."""
    if _LOGIN.search(screen):
        return r.ActivityReport(Activity.WAITING_INPUT, "how should it log in? (answer in its terminal)")
    ready = begun and _READY.search(screen) and "Resuming session" not in screen
    return r.ActivityReport(Activity.IDLE) if ready else None


async def _screen(run: AgentRun) -> str:
    try:
        return await run.screen()
    except AoError:
        return ""


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "\n".join(part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str))


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("GEMINI_CLI_HOME") or env.get("HOME") or Path.home()) / ".gemini"


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _chats(home: Path, conversation: str) -> list[Path]:
    """The files of one conversation: a resumed one goes on in the old file and leaves an empty new one."""
    if not _is_uuid(conversation):
        return []
    return sorted(home.glob(f"tmp/*/chats/session-*-{conversation[:8]}.jsonl"))


def _begun(run: AgentRun) -> bool:
    """This launch has set its conversation up, and takes messages."""
    before: dict[str, int] = json.loads(run.memo.get("before") or "{}")
    chat = Chat(resumed=bool(run.memo.get("resumed")))
    for path in _chats(Path(run.memo["home"]), run.conversation or ""):
        with contextlib.suppress(OSError):
            for line in past_lines(path, before.get(path.name, 0)):
                with contextlib.suppress(ValueError, RecursionError):
                    chat.take(json.loads(line))
    return chat.begun


def _spoken(home: Path, conversation: str) -> bool:
    """Is there something to resume?"""
    for path in _chats(home, conversation):
        with contextlib.suppress(OSError):
            if any(b'"type":"user"' in line and not line.startswith(b'{"$set"') for line in past_lines(path)):
                return True
    return False


def _policy(context: AgentContext) -> Path | None:
    """What it may do without asking, as a file of its policy engine's in the session's own folder."""
    tools = [TOOLS.get(one.tool, one.tool) for one in context.allowed if one.tool not in SHELLS and not one.command]
    rules = [f"toolName = {json.dumps(tool)}" for tool in dict.fromkeys(tools)]
    if context.permissions == "auto-edit":
        rules.append('toolName = "run_shell_command"\ncommandPrefix = "git status"')
    if not rules:
        return None
    path = context.private / "gemini-policy.toml"
    text = "\n".join(f'[[rule]]\n{rule}\ndecision = "allow"\npriority = 100\n' for rule in rules)
    path.write_text(text, encoding="utf-8")
    return path


def _answer_login(home: Path, env: Mapping[str, str]) -> None:
    """With a key in its environment it need not ask how to log in; a choice that the user made before stays."""
    if env.get("GEMINI_API_KEY"):
        way = "gemini-api-key"
    elif env.get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
        way = "vertex-ai"
    else:
        return

    def choose(settings: dict[str, Any]) -> bool:
        security = settings.setdefault("security", {})
        login = security.setdefault("auth", {}) if isinstance(security, dict) else None
        if not isinstance(login, dict) or login.get("selectedType"):
            return False
        login["selectedType"] = way
        return True

    cli.merge_json(home / "settings.json", choose, home)
