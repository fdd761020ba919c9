"""Reading Claude Code's transcripts: what was taken up, said, used and planned, and how a turn ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.plugins.agents.shared.forge_commands import forge_calls
from agent_orchestrator.plugins.agents.shared.journals import Line, moment
from agent_orchestrator.protocols import Activity
from agent_orchestrator.protocols import reports as r

INTERRUPTED = "[Request interrupted by user"
SYNTHETIC = "<synthetic>"
"""The model of what it says itself, to fill a gap or to tell of an error."""
ENDS = frozenset({"end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded"})
"""Why the model stopped, where the turn is over unless a hook makes it go on."""

_COMMAND = re.compile(r"<command-name>\s*(?P<name>[^\s<]+)\s*</command-name>")
_SHELL = re.compile(r"\s*<bash-input>(?P<text>.*?)</bash-input>", re.DOTALL)
_OUTPUT = re.compile(r"\s*<(?:local-command|bash)-(?:stdout|stderr|caveat)>")
_RESETS = re.compile(
    r"resets\s+(?:(?P<month>[A-Z][a-z]{2})\w*\s+(?P<day>\d{1,2})(?:,|\s+at)?\s+)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]m)(?:\s*\((?P<zone>[\w/+-]+)\))?",
    re.IGNORECASE,
)
_MODEL_KIND = re.compile(r"(?:five_hour|seven_day)_(?P<model>opus|sonnet|haiku)")
_MODEL_LIMIT = re.compile(r"\b(?P<model>opus|sonnet|haiku)\b(?: weekly)? limit\b", re.IGNORECASE)
_EPOCH = re.compile(r"limit reached\|(?P<epoch>\d{9,11})")
_LIMIT_WORDS = re.compile(
    r"(?:you've|you have) (?:hit|reached) your\b.{0,200}\blimit\b|usage limit reached|\blimit reached\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ended, and the line that says so."""

    line: Line
    report: r.TurnReport | r.ActivityReport | r.LimitReport


@dataclass(slots=True)
class Story:
    """What the lines of one conversation told so far."""

    in_turn: bool = False
    """Something was taken up, and nothing ended it yet."""
    began: datetime | None = None
    """When that was."""
    ending: Ending | None = None
    """How the turn ended, as far as the lines tell: it may still go on."""
    over: list[Ending] = field(default_factory=list)
    """Turns that ended for certain: the next one began."""
    asked: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Tools that were called and have no result yet, by the call's id, oldest first."""
    _said: str = ""
    _message: str = ""
    _used: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    _tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    _created: dict[str, str] = field(default_factory=dict)

    @forgiving
    def take(self, line: Line) -> list[r.Report]:
        """What a line tells at once; how the turn ended is kept in `ending`."""
        data = line.data
        if data.get("isSidechain"):
            return self._usage(data)
        match data.get("type"):
            case "user":
                return self._user(line)
            case "assistant":
                return self._assistant(line)
            case "attachment":
                return self._attachment(data)
            case "system" if data.get("subtype") == "turn_duration":
                if self.in_turn and self.ending is None:
                    self._end(line, r.TurnReport(self._said))
        return []

    def settle(self) -> Ending | None:
        """The turn is over: how it ended, once."""
        ending, self.ending = self.ending, None
        self.in_turn, self.began = False, None
        return ending

    @forgiving
    def usage_only(self, line: Line) -> list[r.Report]:
        """What a line of a subagent's transcript tells: its tokens count, nothing else does."""
        return self._usage(line.data)

    # -- people and tools ----------------------------------------------------------------------------------------------

    def _user(self, line: Line) -> list[r.Report]:
        data = line.data
        content = _message(data).get("content")
        if data.get("isMeta") or data.get("isCompactSummary"):
            return []
        if isinstance(content, list) and any(_is(block, "tool_result") for block in content):
            return self._results(data, content)
        text = _text(content)
        if text.startswith(INTERRUPTED):
            self._end(line, r.ActivityReport(Activity.INTERRUPTED, "its turn was interrupted"))
            return []
        origin = data.get("origin")
        if not text or _OUTPUT.match(text):
            return []
        if isinstance(origin, dict) and origin.get("kind") not in (None, "human"):
            self._begin(data)
            return []
        if _COMMAND.search(text) or _SHELL.match(text):
            self._turn_is_over()  # and it need not lead to another one
        else:
            self._begin(data)
        return [r.TookReport(typed(text), moment(data.get("timestamp")))]

    def _attachment(self, data: Mapping[str, Any]) -> list[r.Report]:
        """A message that came in the middle of a turn is taken up with the next request."""
        attached = data.get("attachment")
        if not isinstance(attached, dict) or attached.get("type") != "queued_command":
            return []
        origin = attached.get("origin")
        if isinstance(origin, dict) and origin.get("kind") not in (None, "human"):
            return []
        prompt = attached.get("prompt")
        text = prompt if isinstance(prompt, str) else _text(prompt)
        return [r.TookReport(text, moment(data.get("timestamp")))] if text else []

    def _results(self, data: Mapping[str, Any], content: list[Any]) -> list[r.Report]:
        told: list[r.Report] = []
        outcome = data.get("toolUseResult")
        for block in content:
            call = str(block.get("tool_use_id")) if _is(block, "tool_result") else ""
            tool, _ = self.asked.pop(call, ("", {}))
            if not isinstance(outcome, dict):
                continue
            if tool == "AskUserQuestion":
                answers = outcome.get("answers")
                given = answers.values() if isinstance(answers, dict) else ()
                told.extend(r.TookReport(str(answer), moment(data.get("timestamp"))) for answer in given)
            elif tool == "TaskCreate" and isinstance(task := outcome.get("task"), dict):
                self._tasks[str(task.get("id"))] = ("pending", self._created.pop(call, str(task.get("subject") or "")))
                told.append(self._progress())
        return told

    # -- the model -----------------------------------------------------------------------------------------------------

    def _assistant(self, line: Line) -> list[r.Report]:
        data, message = line.data, _message(line.data)
        if data.get("isApiErrorMessage"):
            self._failed(line)
            return []
        if message.get("model") == SYNTHETIC:
            return []
        self.in_turn, self.ending = True, None
        told = self._usage(data)
        if (identity := str(message.get("id") or "")) != self._message or not identity:
            self._message, self._said = identity, ""
        for block in message.get("content") or ():
            if _is(block, "text"):
                self._said = "\n\n".join(part for part in (self._said, str(block.get("text") or "").strip()) if part)
            elif _is(block, "tool_use"):
                told += self._called(block)
        if message.get("stop_reason") in ENDS:
            self._end(line, r.TurnReport(self._said))
        return told

    def _called(self, block: Mapping[str, Any]) -> list[r.Report]:
        tool, given = str(block.get("name") or ""), block.get("input")
        given = given if isinstance(given, dict) else {}
        call = str(block.get("id") or "")
        self.asked[call] = (tool, given)
        if tool == "TodoWrite":
            todos = [todo for todo in given.get("todos") or () if isinstance(todo, dict)]
            self._tasks = {
                str(number): (str(todo.get("status")), str(todo.get("activeForm") or todo.get("content") or ""))
                for number, todo in enumerate(todos)
            }
            return [self._progress()]
        if tool == "TaskCreate":
            self._created[call] = str(given.get("activeForm") or given.get("subject") or "")
        elif tool == "TaskUpdate" and (known := self._tasks.get(str(given.get("taskId")))):
            step = str(given.get("activeForm") or given.get("subject") or known[1])
            self._tasks[str(given.get("taskId"))] = (str(given.get("status") or known[0]), step)
            return [self._progress()]
        return []

    def _progress(self) -> r.ProgressReport:
        tasks = [task for task in self._tasks.values() if task[0] != "deleted"]
        done = sum(status == "completed" for status, _ in tasks)
        step = next((step for status, step in tasks if status == "in_progress"), "")
        return r.ProgressReport(done, len(tasks), step)

    def _usage(self, data: Mapping[str, Any]) -> list[r.Report]:
        """A message comes in several lines, each with what it used so far: only what is new counts."""
        message = _message(data)
        usage = message.get("usage")
        if data.get("type") != "assistant" or data.get("isApiErrorMessage") or not isinstance(usage, dict):
            return []
        now = tuple(
            _count(usage.get(key))
            for key in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        identity = str(message.get("id") or data.get("uuid"))
        before = self._used.get(identity, (0, 0, 0, 0))
        new = [max(0, count - known) for count, known in zip(now, before, strict=True)]
        self._used = {identity: (now[0], now[1], now[2], now[3])}
        calls = _forge_calls(message.get("content") or ())
        if not any(new) and not calls:
            return []
        model, when = str(message.get("model") or ""), moment(data.get("timestamp"))
        return [r.UsageReport(model, new[0], new[1], new[2], new[3], time=when, forge=calls)]

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _begin(self, data: Mapping[str, Any]) -> None:
        self._turn_is_over()
        self.in_turn, self.began = True, moment(data.get("timestamp"))
        self._said, self._message = "", ""
        self.asked.clear()

    def _turn_is_over(self) -> None:
        if self.ending:
            self.over.append(self.ending)
            self.settle()

    def _end(self, line: Line, report: r.TurnReport | r.ActivityReport | r.LimitReport) -> None:
        self.ending = Ending(line, report)

    def _failed(self, line: Line) -> None:
        text = _text(_message(line.data).get("content")) or "the model's API failed"
        resets = limit_reset(line.data, text)
        if resets is not None or (line.data.get("error") == "rate_limit" and _LIMIT_WORDS.search(text)):
            self._end(line, r.LimitReport(resets, model=limited_model(_quota(line.data), text)))
        else:
            self._end(line, r.ActivityReport(Activity.INTERRUPTED, text))


def unanswered(lines: Iterable[Line]) -> str:
    """The last message that was taken up, if nothing came after it."""
    story, text = Story(), ""
    for line in lines:
        took = [report.text for report in story.take(line) if isinstance(report, r.TookReport)]
        text = took[-1] if took else "" if story.ending or line.data.get("type") == "assistant" else text
    return text


def typed(text: str) -> str:
    """A message as it was typed: commands and shell lines are recorded in another form."""
    if shell := _SHELL.match(text):
        return f"!{shell['text']}"
    if command := _COMMAND.search(text):
        arguments, closed, _ = text.partition("<command-args>")[2].partition("</command-args>")
        return f"/{command['name'].lstrip('/')} {arguments if closed else ''}".strip()
    return text


def limit_reset(data: Mapping[str, Any], text: str) -> datetime | None:
    """When a usage limit ends: by the record's own number, or by what it says."""
    quota = _quota(data)
    if quota.get("status") == "rejected" and _count(quota.get("resetsAt")):
        return datetime.fromtimestamp(_count(quota["resetsAt"]), UTC)
    if epoch := _EPOCH.search(text):
        return datetime.fromtimestamp(int(epoch["epoch"]), UTC)
    said = _RESETS.search(text) if _LIMIT_WORDS.search(text) else None
    return _next(said, moment(data.get("timestamp")) or datetime.now(UTC)) if said else None


def _quota(data: Mapping[str, Any]) -> Mapping[str, Any]:
    quota = data.get("quotaLimits")
    if not isinstance(quota, dict):
        parameters = data.get("apiErrorParams")
        quota = parameters.get("rate_limit_info") if isinstance(parameters, dict) else None
    return quota if isinstance(quota, dict) else {}


def limited_model(quota: Mapping[str, Any], text: str) -> str:
    """The model family that a limit is for, by the record's own word or by what it says; nothing: all of the account."""
    kind = _MODEL_KIND.fullmatch(str(quota.get("rateLimitType") or ""))
    said = kind or _MODEL_LIMIT.search(text)
    return said["model"].lower() if said else ""


def _next(said: re.Match[str], now: datetime) -> datetime | None:
    """The next time that a clock shows what was said (`resets 3:30pm (Europe/Berlin)`, `resets Nov 20, 9am`)."""
    try:
        here = now.astimezone(ZoneInfo(said["zone"]) if said["zone"] else None)
        hour = int(said["hour"]) % 12 + (12 if said["half"].lower() == "pm" else 0)
        when = here.replace(hour=hour, minute=int(said["minute"] or 0), second=0, microsecond=0)
        if said["month"]:
            month = datetime.strptime(said["month"].title(), "%b").month
            when = when.replace(month=month, day=int(said["day"]))
            return when if when > here - timedelta(days=1) else when.replace(year=when.year + 1)
        return when if when > here else when + timedelta(days=1)
    except (ValueError, OSError, KeyError):
        return None


def _forge_calls(content: Iterable[Any]) -> int:
    inputs = [block.get("input") for block in content if _is(block, "tool_use") and block.get("name") == "Bash"]
    return sum(forge_calls(str(given.get("command") or "")) for given in inputs if isinstance(given, dict))


def _message(data: Mapping[str, Any]) -> Mapping[str, Any]:
    message = data.get("message")
    return message if isinstance(message, dict) else {}


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block.get("text") or "") for block in blocks if _is(block, "text"))


def _is(block: object, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
