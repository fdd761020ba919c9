"""Aider's chat history, event log and prompts, read as reports (docs/agents/aider.md)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from agent_orchestrator.plugins.agents.shared.input_prompts import OpenTurn, Prompt, PromptLog, below
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader, clean_text
from agent_orchestrator.protocols import Activity, AgentRun, Heard
from agent_orchestrator.protocols.reports import (
    ActivityReport,
    LimitReport,
    PermissionReport,
    Report,
    TookReport,
    TurnReport,
    UsageReport,
)

LONGEST_LINE = 32 * 1024 * 1024
ASKS = {
    "Run shell command?": "shell",
    "Create new file?": "edit",
    "Allow edits to file that has not been added to the chat?": "edit",
    "Add file to the chat?": "read",
    "Add URL to the chat?": "fetch",
}
"""Its questions about something that it names right before. All others are about going on: "Attempt to fix lint errors?"."""
SEVERAL = "Run shell commands?"
MAIN_PROMPT = re.compile(r"^(?:[\w-]+ ?)?(?:multi)?>(?: |$)", re.MULTILINE)
_CHOICES = "(Y)es/(N)o"
_ERROR = re.compile(r"litellm\.\w+: |Model \S+ has hit a token limit|No LLM model was specified and no API keys")
_QUOTA = re.compile(r"quota|usage limit|credit balance|insufficient credits", re.IGNORECASE)
_AGAIN_IN = re.compile(r"try again in (?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?", re.IGNORECASE)
_MODEL = re.compile(r"(?:Main m|M)odel: (\S+)")
_CACHED = re.compile(r"([\d.]+k?) cache (hit|write)")
_USER = "#### "


class Story:
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


class Chat:
    """A launch's part of the chat history, and the turn it is in."""

    def __init__(self, path: Path, run: AgentRun) -> None:
        self._place = path.name
        self._told = run.cursors.get(self._place, 0)
        self._reader = SpoolReader(path, int(run.memo.get("chat", "0")), LONGEST_LINE)
        run.changes.watch(path)
        self.story = Story()
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

    async def read(self, prompts: PromptLog, *, final: bool) -> AsyncIterator[Heard]:
        """What came since. Of much, others have their turn in between."""
        came = False
        while True:
            for start, line in self._reader.read(final=final):
                came = True
                for heard in self._line(start, line, prompts):
                    yield heard
            if not self._reader.more:
                break
            await asyncio.sleep(0)
        if not came or final:
            for heard in self._take(prompts):
                yield heard
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


def seen(prompt: Prompt, chat: Chat, workspace: Path) -> Report | None:
    """What an open prompt means; none while it is not drawn yet, or where it is one that says nothing new."""
    shown = prompt.text.replace("\n", "")
    question, asked, _ = shown.partition(_CHOICES)
    if asked and (question := question.strip()):
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
    if not MAIN_PROMPT.search(prompt.text):
        return None
    if chat.turn is not None:
        return chat.end_turn() if chat.turn.over(prompt, monotonic()) else None
    return ActivityReport(Activity.IDLE) if chat.idle_first and not chat.turns else None


def usage(record: Mapping[str, Any], story: Story) -> UsageReport | None:
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


def as_turn(story: Story) -> Report:
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
