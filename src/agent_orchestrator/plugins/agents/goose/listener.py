"""Reports on one launch of goose, from its session store, its logs and its terminal's prompts (docs/agents/goose.md)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.plugins.agents.goose.session_store import GooseStore, parts_of
from agent_orchestrator.plugins.agents.shared.input_prompts import (
    InputPrompt,
    OpenTurn,
    PromptLog,
    resolve_in_workspace,
)
from agent_orchestrator.plugins.agents.shared.journals import Journal
from agent_orchestrator.protocols import Activity, Permission, ReportBatch, RunningLaunch
from agent_orchestrator.protocols.reports import (
    ActivityReport,
    ConversationReport,
    LimitReport,
    MessageTakenReport,
    PermissionReport,
    ProgressReport,
    Report,
    TurnReport,
    UsageReport,
)

MESSAGES_CURSOR, USAGE_CURSOR = "goose-messages", "goose-usage"
"""The names of the cursors for the session store: the number of a message, and a count of tokens."""
MAX_LAG_SECONDS = 2.0
"""Seconds that goose's log and store may be behind its terminal."""
QUESTION = "Goose would like to call the above tool, do you allow?"
ARGUMENT_COUNTS = {"write": 2, "edit": 3}
_DIALOG = re.compile(r"◆  [^\n]+\n│  [●○]")
_COLOR_CODE = re.compile(r"\x1b\[[\d;]*m")
_HIDES_CURSOR = "\x1b[?25l"
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COMMAND_ARGUMENT = re.compile(r"    command:? (?P<command>.*)", re.DOTALL)
_FILE_ARGUMENT = re.compile(r"    path:? (?P<path>[^\n]+)\n    \w+:? ")
_ARGUMENT_NAME = re.compile(r"^    \w+:? ", re.MULTILINE)
_ANSWERED_DIALOG = re.compile(r"^[◇■▲]  ", re.MULTILINE)
_INTERRUPTED_TEXT = "Interrupted, what should goose work on instead?"
FAILURE_TEXT = re.compile(r"Ran into this error: (?P<error>[^\n]{0,1999}(?:[^\s.]|\.(?=\.)))\.?[^\S\n]{0,200}\n\s*\n")
QUOTA = re.compile(r"quota|usage limit|credit", re.IGNORECASE)
_TODO_LINE = re.compile(r"^\s*[-*] \[(?P<mark>.)\] (?P<step>.*)", re.MULTILINE)


class GooseListener:
    """A reader of one launch: store, logs and terminal."""

    def __init__(self, run: RunningLaunch) -> None:
        self.run = run
        self.prompts = PromptLog(run.log, int(run.plugin_data.get("log", "0")))
        self.store = GooseStore(Path(run.plugin_data.get("store", "")))
        self.logs = Path(run.plugin_data.get("logs", ""))
        for path in (run.log, self.store.path, self.store.journal):
            run.changes.watch(path)
        self._journals: dict[Path, Journal] = {}
        self._session = ""
        self._store_rows: tuple[str, list[tuple[Any, ...]], list[tuple[Any, ...]]] = ("", [], [])
        """What was read from the store and is not reported yet: the session, its messages, its sums."""
        self._last_row = max(int(run.plugin_data.get("row", "0")), 0)
        self._row_cursor = run.cursors.get(MESSAGES_CURSOR, 0)
        self._model = ""
        self._last_steps = ""
        self._turn: OpenTurn | None = None
        self._turns = 0
        self._last_text = ""
        self._is_retrying = False
        self._handled_prompt = -1
        self._has_caught_up = False
        self._read_until = 0.0
        self._has_answer = False
        self._is_asking = False
        self._is_settling = False
        self._dialog_end = -1
        self._ending_prompt = -1
        self._shown_at = 0.0
        self._called_tools: list[str] = []
        """The tools called since `_region_start`, an offset in the terminal's log; meaningless unless `_has_all_calls`."""
        self._region_start = int(run.plugin_data.get("log", "0"))
        self._has_all_calls = self._row_cursor <= self._last_row
        self._spending = _Spending(run)

    @property
    def is_undecided(self) -> bool:
        """Return whether it cannot be decided yet if the turn is over or a permission is requested."""
        return (
            bool(self._read_until)
            or self._is_settling
            or (self._turn is not None and self._turn.is_undecided(self.prompts.current(), monotonic()))
        )

    async def read(self) -> AsyncIterator[ReportBatch]:
        """Yield everything new."""
        prompt = self.prompts.current()
        if self._is_store_due():
            await run_in_own_thread(self._query_store)
        async for heard in self._read_all(prompt):
            yield heard

    async def _read_all(self, prompt: InputPrompt | None) -> AsyncIterator[ReportBatch]:
        """Yield the new reports of store, logs and terminal, in this order."""
        for heard in self._read_store():
            yield heard
        async for heard in self._read_logs():
            yield heard
        for heard in self._read_prompt(prompt) if prompt is not None else self._read_running_turn():
            yield heard
        self._has_caught_up = True

    # -- its store -----------------------------------------------------------------------------------------------------

    def _is_store_due(self) -> bool:
        """Return whether to read the store: for `MAX_LAG_SECONDS` after a change, since what is written becomes readable
        later, without a signal.
        """
        if self.store.has_changed():
            self._read_until = monotonic() + MAX_LAG_SECONDS
        elif not self._read_until:
            return False
        elif monotonic() > self._read_until:
            self._read_until = 0.0
        return True

    def _query_store(self) -> None:
        """Read what is new in the store, which may be locked."""
        session = self._session or self.store.find(self.run.plugin_data.get("session", "")) or ""
        if not session:
            return
        query = """SELECT CAST(id AS INTEGER), role, content_json FROM messages
                   WHERE session_id = ? AND id > ? ORDER BY id"""
        messages = self.store.query(query, session, self._last_row)
        query = """SELECT accumulated_input_tokens, accumulated_output_tokens, accumulated_cost, model_config_json, extension_data
                   FROM sessions WHERE id = ?"""
        self._store_rows = (session, messages, self.store.query(query, session))

    def _read_store(self) -> Iterator[ReportBatch]:
        """Yield the reports of what was read from the store."""
        session, messages, sums = self._store_rows
        self._store_rows = ("", [], [])
        if session and not self._session:
            self._session = session
            yield ReportBatch((ConversationReport(session),), "record")
        for row, role, content in messages:
            self._last_row = row
            yield from self._message(row, role, parts_of(_parse_json(content)))
        for input_tokens, output_tokens, cost, model, extensions in sums:
            model_config = _parse_json(model)
            self._model = str(model_config.get("model_name", "")) if isinstance(model_config, dict) else ""
            yield from self._spending.new_usage(input_tokens or 0, output_tokens or 0, cost, self._model)
            yield from self._progress(extensions)

    @skip_malformed
    def _message(self, row: int, role: str, parts: list[dict[str, Any]]) -> Iterator[ReportBatch]:
        """Yield the report of a message that was taken, and remember the model's last text."""
        text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text").strip()
        reports: list[Report] = []
        if role == "user" and text:
            reports += [self._end_turn()] if self._turn else []
            reports += [MessageTakenReport(text), ActivityReport(Activity.ACTIVE)]
            self._turn, self._last_text = self.prompts.turn(has_caught_up=self._has_caught_up), ""
            self._turns += 1
            self._has_answer = False
        elif role == "user":
            self._has_answer = False  # a tool's result: the model continues
        elif role == "assistant":
            self._last_text, self._has_answer = text or self._last_text, bool(text)
            if self._is_retrying:
                reports.append(ActivityReport(Activity.ACTIVE))
            self._is_retrying = False
        if reports and row > self._row_cursor:
            yield ReportBatch(tuple(reports), "transcript", MESSAGES_CURSOR, row - 1, row)

    @skip_malformed
    def _progress(self, extensions: str) -> Iterator[ReportBatch]:
        """Yield the progress of the to-do list if it changed."""
        data = _parse_json(extensions)
        plan = data.get("todo.v0") if isinstance(data, dict) else None
        steps = str(plan.get("content", "")) if isinstance(plan, dict) else ""
        if steps == self._last_steps:
            return
        self._last_steps = steps
        entries = [(step["mark"], step["step"]) for step in _TODO_LINE.finditer(steps)]
        if entries:
            current = next((step for mark, step in entries if mark == "-"), "")
            current = current or next((step for mark, step in entries if mark == " "), "")
            done = sum(mark in "xX" for mark, _ in entries)
            yield ReportBatch((ProgressReport(done, len(entries), current),), "record")

    # -- its log -------------------------------------------------------------------------------------------------------

    async def _read_logs(self) -> AsyncIterator[ReportBatch]:
        """Yield retries, and remember which tools were called; both are only in the log."""
        for path in sorted(self.logs.glob("cli/*/*.log")):
            if path not in self._journals:
                self._journals[path] = Journal(path, self.run, "record")
            journal = self._journals[path]
            async for line in journal.lines():
                fields = line.data.get("fields")
                fields = fields if isinstance(fields, dict) else {}
                message = str(fields.get("message", ""))
                if message == "Tool call started":
                    self._called_tools.append(str(fields.get("tool_name")))
                elif message.startswith("Request failed, retrying") and self._turn:
                    self._is_retrying = True
                    yield journal.make_batch(line, ActivityReport(Activity.RETRYING, message))

    # -- its terminal --------------------------------------------------------------------------------------------------

    def _read_running_turn(self) -> Iterator[ReportBatch]:
        """Yield the report for a time without a prompt: a permission request if a dialog is open, activity if one was closed."""
        self._is_settling = False
        if not shows_dialog(self.prompts.tail()):
            if self._is_asking:
                self._is_asking = False
                yield ReportBatch((ActivityReport(Activity.ACTIVE),), "mode")
        elif self.prompts.bytes_read != self._dialog_end:
            # It is the last output if it is a real dialog, so wait whether more follows.
            self._dialog_end, self._is_settling = self.prompts.bytes_read, True
            self._shown_at = monotonic()
        elif not self._is_asking or self._called_tools:
            request = (
                parse_request(self._read_region(), self._called_tools, self.run.workspace)
                if self._has_all_calls
                else None
            )
            request_id = str(self._dialog_end)
            if request is None and self._has_all_calls and monotonic() - self._shown_at < MAX_LAG_SECONDS:
                self._is_settling = True
                return
            if request is None:  # without command, so that no rule answers what cannot be read with certainty
                dialog_text = self.prompts.tail().partition("◆")[0].rpartition("───")[2].strip()
                request = Permission(f"goose {request_id}", "", f"{QUESTION}\n{dialog_text}")
            self._is_asking, self._has_all_calls, self._region_start, self._called_tools = (
                True,
                True,
                self._dialog_end,
                [],
            )
            report = PermissionReport(request.tool, request.command, request.reason, request_id)
            yield ReportBatch((report,), "screen", self.run.log.name, self._dialog_end, self._dialog_end)

    def _read_region(self) -> bytes:
        """Return the terminal's output of the tool calls since `_region_start`."""
        with self.run.log.open("rb") as file:
            file.seek(self._region_start)
            return file.read(self._dialog_end - self._region_start)

    def _read_prompt(self, prompt: InputPrompt) -> Iterator[ReportBatch]:
        """Yield the end of the turn, or idle before the first one."""
        self._is_settling, self._is_asking = False, False
        if prompt.start == self._handled_prompt or not prompt.text.strip():
            return
        self._region_start, self._called_tools, self._has_all_calls = prompt.start, [], True
        if self._turn is None:
            self._handled_prompt = prompt.start
            if not self._turns:
                yield ReportBatch((ActivityReport(Activity.IDLE),), "mode")
        elif self._turn.is_ended_by(prompt, monotonic()):
            if prompt.start != self._ending_prompt:
                self._ending_prompt, self._shown_at = prompt.start, monotonic()
            if self._lacks_answer(prompt) and monotonic() - self._shown_at < MAX_LAG_SECONDS:
                self._is_settling = True
                return
            self._handled_prompt = prompt.start
            report = self._end_turn(prompt)
            yield ReportBatch((report,), "mode", self.run.log.name, prompt.start, prompt.end)

    def _lacks_answer(self, prompt: InputPrompt) -> bool:
        """Return whether the answer is missing: the prompt may be shown before it is stored."""
        return not self._has_answer and _INTERRUPTED_TEXT not in prompt.text and not FAILURE_TEXT.search(prompt.before)

    def _end_turn(self, prompt: InputPrompt | None = None) -> Report:
        """End the turn and return how it ended."""
        self._turn, self._is_retrying = None, False
        error = FAILURE_TEXT.search(prompt.before) if prompt else None
        if prompt and _INTERRUPTED_TEXT in prompt.text:
            return ActivityReport(Activity.INTERRUPTED)
        if error and QUOTA.search(error["error"]):
            return LimitReport()
        if error:
            return ActivityReport(Activity.WAITING_INPUT, error["error"])
        return TurnReport(self._last_text)


class _Spending:
    """The usage that is not reported yet, from the store's growing sums.

    The reported sums are kept in a file, where a restart finds them by their count of tokens.
    """

    def __init__(self, run: RunningLaunch) -> None:
        self._path = run.private / "goose" / "usage.jsonl"
        reported, cursor = _parse_json(run.plugin_data.get("spent")) or [0, 0, 0.0], run.cursors.get(USAGE_CURSOR, 0)
        for line in self._path.read_text().splitlines() if self._path.exists() else []:
            sums = _parse_json(line)
            if isinstance(sums, list) and len(sums) == 3 and sums[0] + sums[1] == cursor:
                reported = sums
        self._reported = (int(reported[0]), int(reported[1]), float(reported[2]))

    @skip_malformed
    def new_usage(self, input_tokens: int, output_tokens: int, cost: float | None, model: str) -> Iterator[ReportBatch]:
        """Yield the usage since the last call."""
        reported, sums = self._reported, (input_tokens, output_tokens, float(cost or 0))
        if sums[0] + sums[1] <= reported[0] + reported[1]:
            return
        with self._path.open("a") as file:
            file.write(json.dumps(sums) + "\n")
        self._reported = sums
        dollars = sums[2] - reported[2]
        report = UsageReport(
            model,
            max(0, input_tokens - reported[0]),
            max(0, output_tokens - reported[1]),
            usd=dollars if dollars > 0 else None,
        )
        yield ReportBatch((report,), "record", USAGE_CURSOR, reported[0] + reported[1], input_tokens + output_tokens)


def shows_dialog(screen: str) -> bool:
    """Return whether goose waits for an answer to a dialog."""
    dialogs = list(_DIALOG.finditer(screen))
    return bool(dialogs) and not _ANSWERED_DIALOG.search(screen, dialogs[-1].end())


def parse_request(region: bytes, started: list[str], workspace: Path) -> Permission | None:
    """Return the permission request of the dialog at the end of the terminal's output, or None if it cannot be read with
    certainty.

    Everything that a model says and a tool prints is shown too, and may look like a request. So it counts only if the terminal
    showed as many requests as goose's log has, and this one has only one possible meaning.
    """
    text = _COLOR_CODE.sub("", region.decode(errors="replace")).replace("\r\n", "\n").replace(_HIDES_CURSOR, "")
    head, _, last_call = text.rpartition("▸ ")
    body, _, dialog = last_call.partition("\n\n◆  ")
    if not started or head.count("▸") + 1 != len(started) or "◆" in dialog or _CONTROL_CHARACTER.search(body):
        return None
    name, _, arguments = body.partition("\n")
    tool = started[-1]
    if tool.rpartition("__")[2] != name.split(" ")[0]:
        return None
    if tool == "shell" and (command := _COMMAND_ARGUMENT.fullmatch(arguments)):
        return Permission("shell", command["command"], QUESTION)
    if (
        tool in ("write", "edit")
        and (file := _FILE_ARGUMENT.match(arguments))
        and len(_ARGUMENT_NAME.findall(arguments)) == ARGUMENT_COUNTS[tool]
    ):
        return Permission("edit", resolve_in_workspace(workspace, file["path"]), QUESTION)
    if tool == "todo__todo_write":
        return Permission("continue", tool, QUESTION)
    return Permission(tool, arguments.strip(), QUESTION)


def _parse_json(text: object) -> Any:
    """Return the parsed JSON, or an empty object."""
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return {}
