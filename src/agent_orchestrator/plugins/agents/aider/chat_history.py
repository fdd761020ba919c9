"""Parses aider's chat history, event log and prompts into reports (docs/agents/aider.md)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from agent_orchestrator.plugins.agents.shared.input_prompts import (
    InputPrompt,
    OpenTurn,
    PromptLog,
    resolve_in_workspace,
)
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader, clean_text
from agent_orchestrator.protocols import Activity, ReportBatch, RunningLaunch
from agent_orchestrator.protocols.reports import (
    ActivityReport,
    LimitReport,
    MessageTakenReport,
    PermissionReport,
    Report,
    TurnReport,
    UsageReport,
)

MAX_LINE_BYTES = 32 * 1024 * 1024
QUESTION_TOOLS = {
    "Run shell command?": "shell",
    "Create new file?": "edit",
    "Allow edits to file that has not been added to the chat?": "edit",
    "Add file to the chat?": "read",
    "Add URL to the chat?": "fetch",
}
"""The questions about what aider names in the line before, with the tool; all others are about going on: "Attempt to fix lint
errors?".
"""
SEVERAL_COMMANDS_QUESTION = "Run shell commands?"
MAIN_PROMPT = re.compile(r"^(?:[\w-]+ ?)?(?:multi)?>(?: |$)", re.MULTILINE)
_CHOICES = "(Y)es/(N)o"
_ERROR_LINE = re.compile(r"litellm\.\w+: |Model \S+ has hit a token limit|No LLM model was specified and no API keys")
_QUOTA_TEXT = re.compile(r"quota|usage limit|credit balance|insufficient credits", re.IGNORECASE)
_RETRY_IN = re.compile(r"try again in (?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?", re.IGNORECASE)
_MODEL_LINE = re.compile(r"(?:Main m|M)odel: (\S+)")
_CACHE_COUNT = re.compile(r"([\d.]+k?) cache (hit|write)")
_USER_PREFIX = "#### "


class TurnHistory:
    """One turn in aider's chat history, read line by line: `> ` is the program, `#### ` the user, the rest the model."""

    def __init__(self) -> None:
        self.model = ""
        self.begin()

    def begin(self) -> None:
        """Begin a new turn."""
        self.answer_lines: list[str] = []
        self.subject: list[str] = []
        self.error = ""
        self.interrupted = False
        self.retrying = False
        self.cached: dict[str, int] = {}
        self._speaker = ""

    def read_line(self, text: str, *, gap: bool) -> Report | None:
        """Read one line and return a report if a retry begins or ends; `gap` means that a blank line is before it."""
        previous_speaker = "" if gap else self._speaker
        if text.startswith("> ") and not (previous_speaker == "model" and not text.endswith("  ")):
            self._speaker = "program" if text.endswith("  ") else "program goes on"
            return self._program_line(text[2:].strip(), is_new=True)
        if previous_speaker == "program goes on":  # a text of several lines has the prefix only on the first
            self._speaker = "program" if text.endswith("  ") else previous_speaker
            return self._program_line(text.strip(), is_new=False)
        if not text.strip() or text.startswith(("# aider chat started at ", _USER_PREFIX)):
            return None
        self._speaker = "model"
        self.answer_lines.append(text)
        self.error = ""
        return self._end_retry()

    def _program_line(self, text: str, *, is_new: bool) -> Report | None:
        """Read a line of the program; `is_new` is False if it continues the line before."""
        self.subject = [text] if is_new else [*self.subject, text]
        if _ERROR_LINE.match(text):
            self.error = text
        elif text.startswith("Retrying in "):
            self.retrying = True
            return ActivityReport(Activity.RETRYING, self.error)
        elif text == "^C again to exit":
            self.interrupted = True
        elif text.startswith("Tokens: "):
            self.cached = {kind: _parse_count(number) for number, kind in _CACHE_COUNT.findall(text)}
            return self._end_retry()
        elif model_line := _MODEL_LINE.match(text):
            self.model = model_line[1]
        return None

    def _end_retry(self) -> Report | None:
        """Return that aider works again if it was retrying, otherwise None."""
        was_retrying, self.retrying = self.retrying, False
        return ActivityReport(Activity.ACTIVE) if was_retrying else None

    def end_report(self) -> Report:
        """Return how the turn ended: interrupted, usage limit, failed, or answered."""
        if self.interrupted:
            return ActivityReport(Activity.INTERRUPTED)
        if self.error and _QUOTA_TEXT.search(self.error):
            return LimitReport(_resets_at(self.error))
        if self.error:
            return ActivityReport(Activity.WAITING_INPUT, self.error)
        return TurnReport(_without_edits(self.answer_lines))


@dataclass(slots=True)
class _UnfinishedMessage:
    """A message of the user, as far as it was read."""

    start: int
    end: int
    lines: list[str]

    @property
    def text(self) -> str:
        """Return the lines as one text."""
        return "\n".join(self.lines)


class ChatHistory:
    """A launch's part of the chat history, and the turn it is in."""

    def __init__(self, path: Path, run: RunningLaunch) -> None:
        self._cursor_name = path.name
        self._cursor = run.cursors.get(self._cursor_name, 0)
        self._reader = SpoolReader(path, int(run.plugin_data.get("chat", "0")), MAX_LINE_BYTES)
        run.changes.watch(path)
        self.turn_history = TurnHistory()
        self.turn: OpenTurn | None = None
        self.turns = 0
        self.is_model_answering = False
        """Whether a request to the model runs: what looks like a question of aider may then be the model's text."""
        self.is_idle_at_start = "task" not in run.plugin_data
        self._open_message: _UnfinishedMessage | None = None
        self._last_end = 0
        self._has_caught_up = False

    @property
    def has_open_message(self) -> bool:
        """Return whether the last message may still continue."""
        return self._open_message is not None

    async def read(self, prompts: PromptLog, *, final: bool) -> AsyncIterator[ReportBatch]:
        """Yield the reports of new lines; other tasks run in between."""
        has_lines = False
        while True:
            for start, line in self._reader.read(final=final):
                has_lines = True
                for heard in self._read_line(start, line, prompts):
                    yield heard
            if not self._reader.has_more:
                break
            await asyncio.sleep(0)
        if not has_lines or final:
            for heard in self._take_message(prompts):
                yield heard
        self._has_caught_up = True

    def _read_line(self, start: int, line: bytes, prompts: PromptLog) -> Iterator[ReportBatch]:
        """Read one line: a message's line is collected, any other ends the message before."""
        text, end, gap = clean_text(line.decode(errors="replace")), start + len(line) + 1, start != self._last_end
        self._last_end = end
        if text.startswith(_USER_PREFIX) and text.endswith("  "):
            if self._open_message is not None and not gap:
                self._open_message.lines.append(text[len(_USER_PREFIX) : -2])
                self._open_message.end = end
                return
            yield from self._take_message(prompts)
            self._open_message = _UnfinishedMessage(start, end, [text[len(_USER_PREFIX) : -2]])
            return
        yield from self._take_message(prompts)
        if (report := self.turn_history.read_line(text, gap=gap)) is not None and end > self._cursor:
            yield ReportBatch((report,), "transcript", self._cursor_name, start, end)

    def _take_message(self, prompts: PromptLog) -> Iterator[ReportBatch]:
        """Yield the report of the collected message, which is complete."""
        message, self._open_message = self._open_message, None
        if message is None or message.text == "<blank>" or "(Y)es/(N)o" in message.text:
            return
        reports: list[Report] = [self.end_turn()] if self.turn else []
        reports += [MessageTakenReport(message.text), ActivityReport(Activity.ACTIVE)]
        self.turn = prompts.turn(has_caught_up=self._has_caught_up)
        self.turns += 1
        self.turn_history.begin()
        if message.end > self._cursor:
            yield ReportBatch(tuple(reports), "transcript", self._cursor_name, message.start, message.end)

    def end_turn(self) -> Report:
        """End the turn and return how it ended."""
        self.turn = None
        return self.turn_history.end_report()


def report_of_prompt(prompt: InputPrompt, chat: ChatHistory, workspace: Path) -> Report | None:
    """Return what an open prompt means; None if it is not drawn yet or has no news."""
    prompt_text = prompt.text.replace("\n", "")
    question, choices, _ = prompt_text.partition(_CHOICES)
    if choices and (question := question.strip()):
        if question == SEVERAL_COMMANDS_QUESTION or (chat.is_model_answering and not chat.turn_history.error):
            # Without command, so that no rule answers: a command's lines can hide others, and a model's text can look like a question.
            prompt_text = "\n".join([question, *chat.turn_history.subject])
            return PermissionReport(f"aider {prompt.start}", "", prompt_text)
        if question in QUESTION_TOOLS:
            subject = "\n".join(chat.turn_history.subject)
            if QUESTION_TOOLS[question] in ("edit", "read"):
                subject = resolve_in_workspace(workspace, subject)
            return PermissionReport(QUESTION_TOOLS[question], subject, question, str(prompt.start))
        return PermissionReport("continue", question, request=str(prompt.start))
    if not MAIN_PROMPT.search(prompt.text):
        return None
    if chat.turn is not None:
        return chat.end_turn() if chat.turn.is_ended_by(prompt, monotonic()) else None
    return ActivityReport(Activity.IDLE) if chat.is_idle_at_start and not chat.turns else None


def parse_usage(record: Mapping[str, Any], story: TurnHistory) -> UsageReport | None:
    """Return the usage of a request, or None. aider's input count includes cached tokens, and those written to the cache twice."""
    counts = record.get("properties")
    if record.get("event") != "message_send" or not isinstance(counts, dict):
        return None
    main_model = str(counts.get("main_model") or "")
    cache_read, cache_write = story.cached.get("hit", 0), story.cached.get("write", 0)
    try:
        return UsageReport(
            model=story.model or ("" if main_model.endswith("REDACTED") else main_model),
            input=max(0, int(counts.get("prompt_tokens") or 0) - cache_read - 2 * cache_write),
            output=int(counts.get("completion_tokens") or 0),
            cache_read=cache_read,
            cache_write=cache_write,
            usd=float(counts["cost"]) if counts.get("cost") else None,
            time=datetime.fromtimestamp(record["time"], UTC) if record.get("time") else None,
        )
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _parse_count(text: str) -> int:
    """Return a number such as `850`, `1.2k` or `28k`."""
    return round(float(text.rstrip("k")) * (1000 if text.endswith("k") else 1))


def headless_end_report(story: TurnHistory) -> Report:
    """Return how a headless turn ended; a failure becomes a question, since no prompt waits for an answer."""
    report = story.end_report()
    if isinstance(report, ActivityReport) and report.state == Activity.WAITING_INPUT:
        return TurnReport(f"The model could not be asked ({report.detail}). Shall it be tried again?")
    return report if isinstance(report, TurnReport | LimitReport) else TurnReport()


def _resets_at(error: str) -> datetime | None:
    """Return when a limit ends by the waiting time in its message, or None."""
    match = _RETRY_IN.search(error)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return datetime.now(UTC) + timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _without_edits(lines: list[str]) -> str:
    """Return the text around the code blocks, without the file name before each; the whole text if nothing remains."""
    kept_lines: list[str] = []
    is_in_block = False
    for line in lines:
        if line.startswith("```"):
            if not is_in_block and kept_lines and " " not in kept_lines[-1].strip():
                kept_lines.pop()
            is_in_block = not is_in_block
        elif not is_in_block:
            kept_lines.append(line)
    return "\n".join(kept_lines).strip() or "\n".join(lines).strip()
