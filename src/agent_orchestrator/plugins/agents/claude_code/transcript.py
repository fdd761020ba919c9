"""Reads Claude Code's transcripts: messages taken, answers, usage and plans, and how a turn ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.plugins.agents.shared.forge_commands import forge_calls
from agent_orchestrator.plugins.agents.shared.journals import JournalLine, parse_time
from agent_orchestrator.protocols import Activity
from agent_orchestrator.protocols import reports as r

INTERRUPTION_PREFIX = "[Request interrupted by user"
SYNTHETIC_MODEL = "<synthetic>"
"""The model name of messages that Claude Code writes itself, to fill a gap or show an error."""
FINAL_STOP_REASONS = frozenset({"end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded"})
"""The stop reasons after which the turn is over, unless a hook continues it."""

_COMMAND_NAME = re.compile(r"<command-name>\s*(?P<name>[^\s<]+)\s*</command-name>")
_SHELL_INPUT = re.compile(r"\s*<bash-input>(?P<text>.*?)</bash-input>", re.DOTALL)
_SHELL_OUTPUT = re.compile(r"\s*<(?:local-command|bash)-(?:stdout|stderr|caveat)>")
_RESET_TEXT = re.compile(
    r"resets\s+(?:(?P<month>[A-Z][a-z]{2})\w*\s+(?P<day>\d{1,2})(?:,|\s+at)?\s+)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]m)(?:\s*\((?P<zone>[\w/+-]+)\))?",
    re.IGNORECASE,
)
_MODEL_KIND = re.compile(r"(?:five_hour|seven_day)_(?P<model>opus|sonnet|haiku)")
_MODEL_LIMIT = re.compile(r"\b(?P<model>opus|sonnet|haiku)\b(?: weekly)? limit\b", re.IGNORECASE)
_RESET_EPOCH = re.compile(r"limit reached\|(?P<epoch>\d{9,11})")
_LIMIT_WORDS = re.compile(
    r"(?:you've|you have) (?:hit|reached) your\b.{0,200}\blimit\b|usage limit reached|\blimit reached\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class TurnEnding:
    """How a turn ended, and the line with that information."""

    line: JournalLine
    report: r.TurnReport | r.ActivityReport | r.LimitReport


@dataclass(slots=True)
class TranscriptState:
    """The state of one conversation after the lines read so far."""

    is_in_turn: bool = False
    """Whether a message was taken and the turn has not ended."""
    turn_began_at: datetime | None = None
    """The time at which the turn began."""
    ending: TurnEnding | None = None
    """How the turn ended by the lines so far; it may still go on."""
    ended_turns: list[TurnEnding] = field(default_factory=list)
    """Turns that have certainly ended, since the next one began."""
    open_calls: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Tool calls without a result, by the call's id, oldest first: the tool and its arguments."""
    _last_text: str = ""
    _message_id: str = ""
    _counted_usage: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    _tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    _created_steps: dict[str, str] = field(default_factory=dict)

    @skip_malformed
    def read_line(self, line: JournalLine) -> list[r.Report]:
        """Return the reports of a line; how the turn ended is kept in `ending`."""
        data = line.data
        if data.get("isSidechain"):
            return self._usage_reports(data)
        match data.get("type"):
            case "user":
                return self._read_user_line(line)
            case "assistant":
                return self._read_assistant_line(line)
            case "attachment":
                return self._read_attachment(data)
            case "system" if data.get("subtype") == "turn_duration":
                if self.is_in_turn and self.ending is None:
                    self._set_ending(line, r.TurnReport(self._last_text))
        return []

    def end_turn(self) -> TurnEnding | None:
        """End the turn and return how it ended, or None if no line says so."""
        ending, self.ending = self.ending, None
        self.is_in_turn, self.turn_began_at = False, None
        return ending

    @skip_malformed
    def read_usage(self, line: JournalLine) -> list[r.Report]:
        """Return the usage in a line of a subagent's transcript, from which nothing else counts."""
        return self._usage_reports(line.data)

    # -- people and tools ----------------------------------------------------------------------------------------------

    def _read_user_line(self, line: JournalLine) -> list[r.Report]:
        """Handle a line of a user or a tool result; return the message that was taken."""
        data = line.data
        content = _message(data).get("content")
        if data.get("isMeta") or data.get("isCompactSummary"):
            return []
        if isinstance(content, list) and any(_is_block(block, "tool_result") for block in content):
            return self._read_tool_results(data, content)
        text = _text_of(content)
        if text.startswith(INTERRUPTION_PREFIX):
            self._set_ending(line, r.ActivityReport(Activity.INTERRUPTED, "its turn was interrupted"))
            return []
        origin = data.get("origin")
        if not text or _SHELL_OUTPUT.match(text):
            return []
        if isinstance(origin, dict) and origin.get("kind") not in (None, "human"):
            self._begin_turn(data)
            return []
        if _COMMAND_NAME.search(text) or _SHELL_INPUT.match(text):
            self._close_ended_turn()  # a command does not always begin another turn
        else:
            self._begin_turn(data)
        return [r.MessageTakenReport(typed_text(text), parse_time(data.get("timestamp")))]

    def _read_attachment(self, data: Mapping[str, Any]) -> list[r.Report]:
        """Return the report of a message that was queued during a turn and is taken with the next request."""
        attachment = data.get("attachment")
        if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
            return []
        origin = attachment.get("origin")
        if isinstance(origin, dict) and origin.get("kind") not in (None, "human"):
            return []
        prompt = attachment.get("prompt")
        text = prompt if isinstance(prompt, str) else _text_of(prompt)
        return [r.MessageTakenReport(text, parse_time(data.get("timestamp")))] if text else []

    def _read_tool_results(self, data: Mapping[str, Any], content: list[Any]) -> list[r.Report]:
        """Handle tool results; return answers to questions and the progress of tasks."""
        reports: list[r.Report] = []
        outcome = data.get("toolUseResult")
        for block in content:
            call = str(block.get("tool_use_id")) if _is_block(block, "tool_result") else ""
            tool, _ = self.open_calls.pop(call, ("", {}))
            if not isinstance(outcome, dict):
                continue
            if tool == "AskUserQuestion":
                answers = outcome.get("answers")
                texts = answers.values() if isinstance(answers, dict) else ()
                reports.extend(r.MessageTakenReport(str(answer), parse_time(data.get("timestamp"))) for answer in texts)
            elif tool == "TaskCreate" and isinstance(task := outcome.get("task"), dict):
                self._tasks[str(task.get("id"))] = (
                    "pending",
                    self._created_steps.pop(call, str(task.get("subject") or "")),
                )
                reports.append(self._progress_report())
        return reports

    # -- the model -----------------------------------------------------------------------------------------------------

    def _read_assistant_line(self, line: JournalLine) -> list[r.Report]:
        """Handle a line of the model; return its new usage, and the progress of the to-do list if a tool call changes it."""
        data, message = line.data, _message(line.data)
        if data.get("isApiErrorMessage"):
            self._set_error_ending(line)
            return []
        if message.get("model") == SYNTHETIC_MODEL:
            return []
        self.is_in_turn, self.ending = True, None
        reports = self._usage_reports(data)
        if (identity := str(message.get("id") or "")) != self._message_id or not identity:
            self._message_id, self._last_text = identity, ""
        for block in message.get("content") or ():
            if _is_block(block, "text"):
                self._last_text = "\n\n".join(
                    part for part in (self._last_text, str(block.get("text") or "").strip()) if part
                )
            elif _is_block(block, "tool_use"):
                reports += self._add_tool_call(block)
        if message.get("stop_reason") in FINAL_STOP_REASONS:
            self._set_ending(line, r.TurnReport(self._last_text))
        return reports

    def _add_tool_call(self, block: Mapping[str, Any]) -> list[r.Report]:
        """Remember a tool call; return a report of the to-do list's progress if the call changes that list, else none."""
        tool, arguments = str(block.get("name") or ""), block.get("input")
        arguments = arguments if isinstance(arguments, dict) else {}
        call = str(block.get("id") or "")
        self.open_calls[call] = (tool, arguments)
        if tool == "TodoWrite":
            todos = [todo for todo in arguments.get("todos") or () if isinstance(todo, dict)]
            self._tasks = {
                str(number): (str(todo.get("status")), str(todo.get("activeForm") or todo.get("content") or ""))
                for number, todo in enumerate(todos)
            }
            return [self._progress_report()]
        if tool == "TaskCreate":
            self._created_steps[call] = str(arguments.get("activeForm") or arguments.get("subject") or "")
        elif tool == "TaskUpdate" and (old_task := self._tasks.get(str(arguments.get("taskId")))):
            step = str(arguments.get("activeForm") or arguments.get("subject") or old_task[1])
            self._tasks[str(arguments.get("taskId"))] = (str(arguments.get("status") or old_task[0]), step)
            return [self._progress_report()]
        return []

    def _progress_report(self) -> r.ProgressReport:
        """Return the progress of the to-do list."""
        tasks = [task for task in self._tasks.values() if task[0] != "deleted"]
        done = sum(status == "completed" for status, _ in tasks)
        step = next((step for status, step in tasks if status == "in_progress"), "")
        return r.ProgressReport(done, len(tasks), step)

    def _usage_reports(self, data: Mapping[str, Any]) -> list[r.Report]:
        """Return the usage that is new: a message has several lines, each with its usage so far."""
        message = _message(data)
        usage = message.get("usage")
        if data.get("type") != "assistant" or data.get("isApiErrorMessage") or not isinstance(usage, dict):
            return []
        counts = tuple(
            _count(usage.get(key))
            for key in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        identity = str(message.get("id") or data.get("uuid"))
        old_counts = self._counted_usage.get(identity, (0, 0, 0, 0))
        new_counts = [max(0, count - old_count) for count, old_count in zip(counts, old_counts, strict=True)]
        self._counted_usage = {identity: (counts[0], counts[1], counts[2], counts[3])}
        calls = _forge_calls(message.get("content") or ())
        if not any(new_counts) and not calls:
            return []
        model, time = str(message.get("model") or ""), parse_time(data.get("timestamp"))
        return [
            r.UsageReport(model, new_counts[0], new_counts[1], new_counts[2], new_counts[3], time=time, forge=calls)
        ]

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _begin_turn(self, data: Mapping[str, Any]) -> None:
        """Begin a turn."""
        self._close_ended_turn()
        self.is_in_turn, self.turn_began_at = True, parse_time(data.get("timestamp"))
        self._last_text, self._message_id = "", ""
        self.open_calls.clear()

    def _close_ended_turn(self) -> None:
        """Move the ending to `over`, since a new message was taken."""
        if self.ending:
            self.ended_turns.append(self.ending)
            self.end_turn()

    def _set_ending(self, line: JournalLine, report: r.TurnReport | r.ActivityReport | r.LimitReport) -> None:
        """Remember how the turn ended."""
        self.ending = TurnEnding(line, report)

    def _set_error_ending(self, line: JournalLine) -> None:
        """Remember an API error as the ending: a usage limit, or an interruption."""
        text = _text_of(_message(line.data).get("content")) or "the model's API failed"
        reset_time = limit_reset(line.data, text)
        if reset_time is not None or (line.data.get("error") == "rate_limit" and _LIMIT_WORDS.search(text)):
            self._set_ending(line, r.LimitReport(reset_time, model=limited_model(_limit_data(line.data), text)))
        else:
            self._set_ending(line, r.ActivityReport(Activity.INTERRUPTED, text))


def unanswered_message(lines: Iterable[JournalLine]) -> str:
    """Return the last message that was taken if nothing came after it, otherwise ""."""
    story, text = TranscriptState(), ""
    for line in lines:
        texts = [report.text for report in story.read_line(line) if isinstance(report, r.MessageTakenReport)]
        text = texts[-1] if texts else "" if story.ending or line.data.get("type") == "assistant" else text
    return text


def typed_text(text: str) -> str:
    """Return a message as it was typed, since commands and shell lines are recorded in another form."""
    if shell := _SHELL_INPUT.match(text):
        return f"!{shell['text']}"
    if command := _COMMAND_NAME.search(text):
        arguments, closed, _ = text.partition("<command-args>")[2].partition("</command-args>")
        return f"/{command['name'].lstrip('/')} {arguments if closed else ''}".strip()
    return text


def limit_reset(data: Mapping[str, Any], text: str) -> datetime | None:
    """Return when a usage limit ends, by the record's number or by its text, or None."""
    quota = _limit_data(data)
    if quota.get("status") == "rejected" and _count(quota.get("resetsAt")):
        return datetime.fromtimestamp(_count(quota["resetsAt"]), UTC)
    if epoch := _RESET_EPOCH.search(text):
        return datetime.fromtimestamp(int(epoch["epoch"]), UTC)
    reset_text = _RESET_TEXT.search(text) if _LIMIT_WORDS.search(text) else None
    return _next_occurrence(reset_text, parse_time(data.get("timestamp")) or datetime.now(UTC)) if reset_text else None


def _limit_data(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the record's data about the limit, or an empty object."""
    quota = data.get("quotaLimits")
    if not isinstance(quota, dict):
        parameters = data.get("apiErrorParams")
        quota = parameters.get("rate_limit_info") if isinstance(parameters, dict) else None
    return quota if isinstance(quota, dict) else {}


def limited_model(quota: Mapping[str, Any], text: str) -> str:
    """Return the model family that a limit applies to, by the record's type or by its text; "" if it is the whole account's."""
    kind = _MODEL_KIND.fullmatch(str(quota.get("rateLimitType") or ""))
    match = kind or _MODEL_LIMIT.search(text)
    return match["model"].lower() if match else ""


def _next_occurrence(reset_text: re.Match[str], now: datetime) -> datetime | None:
    """Return the next time at which a clock shows the given time (`resets 3:30pm (Europe/Berlin)`, `resets Nov 20, 9am`)."""
    try:
        local_now = now.astimezone(ZoneInfo(reset_text["zone"]) if reset_text["zone"] else None)
        hour = int(reset_text["hour"]) % 12 + (12 if reset_text["half"].lower() == "pm" else 0)
        reset_time = local_now.replace(hour=hour, minute=int(reset_text["minute"] or 0), second=0, microsecond=0)
        if reset_text["month"]:
            month = datetime.strptime(reset_text["month"].title(), "%b").month
            reset_time = reset_time.replace(month=month, day=int(reset_text["day"]))
            return (
                reset_time
                if reset_time > local_now - timedelta(days=1)
                else reset_time.replace(year=reset_time.year + 1)
            )
        return reset_time if reset_time > local_now else reset_time + timedelta(days=1)
    except (ValueError, OSError, KeyError):
        return None


def _forge_calls(content: Iterable[Any]) -> int:
    """Return the number of calls to a forge in the shell commands of a message."""
    inputs = [block.get("input") for block in content if _is_block(block, "tool_use") and block.get("name") == "Bash"]
    return sum(forge_calls(str(arguments.get("command") or "")) for arguments in inputs if isinstance(arguments, dict))


def _message(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message of a line, or an empty object."""
    message = data.get("message")
    return message if isinstance(message, dict) else {}


def _text_of(content: object) -> str:
    """Return the text of a message's content, a string or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text") or "") for block in blocks if _is_block(block, "text"))


def _is_block(block: object, kind: str) -> bool:
    """Return whether a block is of this type."""
    return isinstance(block, dict) and block.get("type") == kind


def _count(value: object) -> int:
    """Return a count that is a sane number, otherwise 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
