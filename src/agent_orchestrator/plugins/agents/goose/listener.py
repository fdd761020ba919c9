"""What is heard of a goose: by its session store, its logs and its terminal's prompts (docs/agents/goose.md)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from agent_orchestrator.base.threads import aside
from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.plugins.agents.goose.session_store import Store, parts_of
from agent_orchestrator.plugins.agents.shared.input_prompts import OpenTurn, Prompt, PromptLog, below
from agent_orchestrator.plugins.agents.shared.journals import Journal
from agent_orchestrator.protocols import Activity, AgentRun, Heard, Permission
from agent_orchestrator.protocols.reports import (
    ActivityReport,
    ConversationReport,
    LimitReport,
    PermissionReport,
    ProgressReport,
    Report,
    TookReport,
    TurnReport,
    UsageReport,
)

MESSAGES, USAGE = "goose-messages", "goose-usage"
"""Where in the session store something was read: a message's number, a count of tokens."""
LOGGED_WITHIN = 2.0
"""Seconds that goose's log and store may be behind its terminal."""
QUESTION = "Goose would like to call the above tool, do you allow?"
ARGUMENTS = {"write": 2, "edit": 3}
_DIALOG = re.compile(r"◆  [^\n]+\n│  [●○]")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_HIDES_CURSOR = "\x1b[?25l"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COMMAND = re.compile(r"    command:? (?P<command>.*)", re.DOTALL)
_FILE = re.compile(r"    path:? (?P<path>[^\n]+)\n    \w+:? ")
_ARGUMENT = re.compile(r"^    \w+:? ", re.MULTILINE)
_ANSWERED = re.compile(r"^[◇■▲]  ", re.MULTILINE)
_INTERRUPTED = "Interrupted, what should goose work on instead?"
FAILED = re.compile(r"Ran into this error: (?P<error>[^\n]{0,1999}(?:[^\s.]|\.(?=\.)))\.?[^\S\n]{0,200}\n\s*\n")
QUOTA = re.compile(r"quota|usage limit|credit", re.IGNORECASE)
_STEP = re.compile(r"^\s*[-*] \[(?P<mark>.)\] (?P<step>.*)", re.MULTILINE)


class Ear:
    """Everything that is heard of one launch."""

    def __init__(self, run: AgentRun) -> None:
        self.run = run
        self.prompts = PromptLog(run.log, int(run.memo.get("log", "0")))
        self.store = Store(Path(run.memo.get("store", "")))
        self.logs = Path(run.memo.get("logs", ""))
        for path in (run.log, self.store.path, self.store.journal):
            run.changes.watch(path)
        self._journals: dict[Path, Journal] = {}
        self._session = ""
        self._found: tuple[str, list[tuple[Any, ...]], list[tuple[Any, ...]]] = ("", [], [])
        """What the store was found to have, until it is told: the session, its messages, its sums."""
        self._row = max(int(run.memo.get("row", "0")), 0)
        self._told_row = run.cursors.get(MESSAGES, 0)
        self._model = ""
        self._steps = ""
        self._turn: OpenTurn | None = None
        self._turns = 0
        self._words = ""
        self._retrying = False
        self._prompt = -1
        self._caught_up = False
        self._until = 0.0
        self._answered = False
        self._asks = False
        self._settling = False
        self._printed = -1
        self._ending = -1
        self._since = 0.0
        self._started: list[str] = []
        """The tools called since `_begin`, a place in the terminal's log; meaningless unless `_counts`."""
        self._begin = int(run.memo.get("log", "0"))
        self._counts = self._told_row <= self._row
        self._spent = _Spending(run)

    @property
    def pending(self) -> bool:
        """It cannot be told yet whether the turn is over, or whether something is asked."""
        return (
            bool(self._until)
            or self._settling
            or (self._turn is not None and self._turn.doubtful(self.prompts.look(), monotonic()))
        )

    async def hear(self) -> AsyncIterator[Heard]:
        """What came since."""
        prompt = self.prompts.look()
        if self._stored():
            await aside(self._ask)
        async for heard in self._heard(prompt):
            yield heard

    async def _heard(self, prompt: Prompt | None) -> AsyncIterator[Heard]:
        for heard in self._read_store():
            yield heard
        async for heard in self._read_logs():
            yield heard
        for heard in self._at_prompt(prompt) if prompt is not None else self._at_work():
            yield heard
        self._caught_up = True

    # -- its store -----------------------------------------------------------------------------------------------------

    def _stored(self) -> bool:
        """What is written can be read only a moment later, and nothing tells of that: so it is looked at for a while."""
        if self.store.changed():
            self._until = monotonic() + LOGGED_WITHIN
        elif not self._until:
            return False
        elif monotonic() > self._until:
            self._until = 0.0
        return True

    def _ask(self) -> None:
        """What the store has that was not read; it may be locked."""
        session = self._session or self.store.find(self.run.memo.get("session", "")) or ""
        if not session:
            return
        query = """SELECT CAST(id AS INTEGER), role, content_json FROM messages
                   WHERE session_id = ? AND id > ? ORDER BY id"""
        messages = self.store.ask(query, session, self._row)
        query = """SELECT accumulated_input_tokens, accumulated_output_tokens, accumulated_cost, model_config_json, extension_data
                   FROM sessions WHERE id = ?"""
        self._found = (session, messages, self.store.ask(query, session))

    def _read_store(self) -> Iterator[Heard]:
        session, messages, sums = self._found
        self._found = ("", [], [])
        if session and not self._session:
            self._session = session
            yield Heard((ConversationReport(session),), "record")
        for row, role, content in messages:
            self._row = row
            yield from self._message(row, role, parts_of(_json(content)))
        for given, taken, cost, model, extensions in sums:
            named = _json(model)
            self._model = str(named.get("model_name", "")) if isinstance(named, dict) else ""
            yield from self._spent.since(given or 0, taken or 0, cost, self._model)
            yield from self._progress(extensions)

    @forgiving
    def _message(self, row: int, role: str, parts: list[dict[str, Any]]) -> Iterator[Heard]:
        said = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text").strip()
        reports: list[Report] = []
        if role == "user" and said:
            reports += [self._end()] if self._turn else []
            reports += [TookReport(said), ActivityReport(Activity.ACTIVE)]
            self._turn, self._words = self.prompts.turn(known=self._caught_up), ""
            self._turns += 1
            self._answered = False
        elif role == "user":
            self._answered = False  # a tool's result: more is to come
        elif role == "assistant":
            self._words, self._answered = said or self._words, bool(said)
            if self._retrying:
                reports.append(ActivityReport(Activity.ACTIVE))
            self._retrying = False
        if reports and row > self._told_row:
            yield Heard(tuple(reports), "transcript", MESSAGES, row - 1, row)

    @forgiving
    def _progress(self, extensions: str) -> Iterator[Heard]:
        data = _json(extensions)
        plan = data.get("todo.v0") if isinstance(data, dict) else None
        steps = str(plan.get("content", "")) if isinstance(plan, dict) else ""
        if steps == self._steps:
            return
        self._steps = steps
        found = [(step["mark"], step["step"]) for step in _STEP.finditer(steps)]
        if found:
            now = next((step for mark, step in found if mark == "-"), "")
            now = now or next((step for mark, step in found if mark == " "), "")
            done = sum(mark in "xX" for mark, _ in found)
            yield Heard((ProgressReport(done, len(found), now),), "record")

    # -- its log -------------------------------------------------------------------------------------------------------

    async def _read_logs(self) -> AsyncIterator[Heard]:
        """Retries of requests to the model are told only in its log, and which tool it calls."""
        for path in sorted(self.logs.glob("cli/*/*.log")):
            if path not in self._journals:
                self._journals[path] = Journal(path, self.run, "record")
            journal = self._journals[path]
            async for line in journal.lines():
                fields = line.data.get("fields")
                fields = fields if isinstance(fields, dict) else {}
                message = str(fields.get("message", ""))
                if message == "Tool call started":
                    self._started.append(str(fields.get("tool_name")))
                elif message.startswith("Request failed, retrying") and self._turn:
                    self._retrying = True
                    yield journal.heard(line, ActivityReport(Activity.RETRYING, message))

    # -- its terminal --------------------------------------------------------------------------------------------------

    def _at_work(self) -> Iterator[Heard]:
        self._settling = False
        if not shows_dialog(self.prompts.tail()):
            if self._asks:
                self._asks = False
                yield Heard((ActivityReport(Activity.ACTIVE),), "mode")
        elif self.prompts.printed != self._printed:
            self._printed, self._settling = self.prompts.printed, True  # it is the last thing printed, if it is one
            self._since = monotonic()
        elif not self._asks or self._started:
            request = asked(self._shown(), self._started, self.run.workspace) if self._counts else None
            number = str(self._printed)
            if request is None and self._counts and monotonic() - self._since < LOGGED_WITHIN:
                self._settling = True
                return
            if request is None:  # no rule may answer what cannot be read for certain
                shown = self.prompts.tail().partition("◆")[0].rpartition("───")[2].strip()
                request = Permission(f"goose {number}", "", f"{QUESTION}\n{shown}")
            self._asks, self._counts, self._begin, self._started = True, True, self._printed, []
            report = PermissionReport(request.tool, request.command, request.reason, number)
            yield Heard((report,), "screen", self.run.log.name, self._printed, self._printed)

    def _shown(self) -> bytes:
        with self.run.log.open("rb") as file:
            file.seek(self._begin)
            return file.read(self._printed - self._begin)

    def _at_prompt(self, prompt: Prompt) -> Iterator[Heard]:
        self._settling, self._asks = False, False
        if prompt.start == self._prompt or not prompt.text.strip():
            return
        self._begin, self._started, self._counts = prompt.start, [], True
        if self._turn is None:
            self._prompt = prompt.start
            if not self._turns:
                yield Heard((ActivityReport(Activity.IDLE),), "mode")
        elif self._turn.over(prompt, monotonic()):
            if prompt.start != self._ending:
                self._ending, self._since = prompt.start, monotonic()
            if self._lacks_words(prompt) and monotonic() - self._since < LOGGED_WITHIN:
                self._settling = True
                return
            self._prompt = prompt.start
            report = self._end(prompt)
            yield Heard((report,), "mode", self.run.log.name, prompt.start, prompt.end)

    def _lacks_words(self, prompt: Prompt) -> bool:
        """Its prompt may be shown before its answer is stored."""
        return not self._answered and _INTERRUPTED not in prompt.text and not FAILED.search(prompt.before)

    def _end(self, prompt: Prompt | None = None) -> Report:
        """How the turn ended."""
        self._turn, self._retrying = None, False
        failed = FAILED.search(prompt.before) if prompt else None
        if prompt and _INTERRUPTED in prompt.text:
            return ActivityReport(Activity.INTERRUPTED)
        if failed and QUOTA.search(failed["error"]):
            return LimitReport()
        if failed:
            return ActivityReport(Activity.WAITING_INPUT, failed["error"])
        return TurnReport(self._words)


class _Spending:
    """What was spent, from sums that only grow. The sums told are kept in a file, found again by their count of tokens."""

    def __init__(self, run: AgentRun) -> None:
        self._path = run.private / "goose" / "usage.jsonl"
        before, told = _json(run.memo.get("spent")) or [0, 0, 0.0], run.cursors.get(USAGE, 0)
        for line in self._path.read_text().splitlines() if self._path.exists() else []:
            sums = _json(line)
            if isinstance(sums, list) and len(sums) == 3 and sums[0] + sums[1] == told:
                before = sums
        self._told = (int(before[0]), int(before[1]), float(before[2]))

    @forgiving
    def since(self, given: int, taken: int, cost: float | None, model: str) -> Iterator[Heard]:
        """What was spent since the last call."""
        before, now = self._told, (given, taken, float(cost or 0))
        if now[0] + now[1] <= before[0] + before[1]:
            return
        with self._path.open("a") as file:
            file.write(json.dumps(now) + "\n")
        self._told = now
        spent = now[2] - before[2]
        report = UsageReport(
            model, max(0, given - before[0]), max(0, taken - before[1]), usd=spent if spent > 0 else None
        )
        yield Heard((report,), "record", USAGE, before[0] + before[1], given + taken)


def shows_dialog(shown: str) -> bool:
    """Does goose ask something just now?"""
    found = list(_DIALOG.finditer(shown))
    return bool(found) and not _ANSWERED.search(shown, found[-1].end())


def asked(region: bytes, started: list[str], workspace: Path) -> Permission | None:
    """What is asked by the dialog at the end of what the terminal showed; none where it cannot be read for certain.

    Everything a model says and a tool prints is shown too, and may look like a request. So it counts only if the terminal showed as
    many requests as goose's log has, and nothing in this one could be of another meaning.
    """
    text = _COLOUR.sub("", region.decode(errors="replace")).replace("\r\n", "\n").replace(_HIDES_CURSOR, "")
    head, _, rest = text.rpartition("▸ ")
    body, _, dialog = rest.partition("\n\n◆  ")
    if not started or head.count("▸") + 1 != len(started) or "◆" in dialog or _CONTROL.search(body):
        return None
    name, _, given = body.partition("\n")
    tool = started[-1]
    if tool.rpartition("__")[2] != name.split(" ")[0]:
        return None
    if tool == "shell" and (command := _COMMAND.fullmatch(given)):
        return Permission("shell", command["command"], QUESTION)
    if tool in ("write", "edit") and (file := _FILE.match(given)) and len(_ARGUMENT.findall(given)) == ARGUMENTS[tool]:
        return Permission("edit", below(workspace, file["path"]), QUESTION)
    if tool == "todo__todo_write":
        return Permission("continue", tool, QUESTION)
    return Permission(tool, given.strip(), QUESTION)


def _json(text: object) -> Any:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return {}
