"""What OpenCode's server tells of its sessions, read as reports: its events as they come, and its records when they were missed.

An event and a record of the same thing give the same report under the same key, so whatever is read twice is told once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.protocols import Activity, Heard
from agent_orchestrator.protocols import reports as r

SOURCE = "http"
ABORTED = "MessageAbortedError"
PATIENT = 120.0
"""Seconds: a provider that is not to be asked again for longer than this has reached a limit."""

_LIMIT = re.compile(
    r"usage.?limit|limit reached|usage exceeded|quota|insufficient_quota|out of credits|billing", re.IGNORECASE
)
_RATE = re.compile(r"rate.?limit|too many requests", re.IGNORECASE)

Data = Mapping[str, Any]


@dataclass(slots=True)
class _Message:
    """A message that no answer has in view yet."""

    created: int
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.parts.values())


class Ears:
    """What was heard of one launch so far: its conversation, and the conversations of its subagents."""

    def __init__(
        self,
        conversation: str | None,
        since: float,
        cursors: Mapping[str, int],
        *,
        awaits: bool = False,
        going_on: Callable[[], bool] = lambda: False,
    ) -> None:
        """`awaits`: it was started for a message, which is still to come. `going_on`: after a turn that is stopped now another begins."""
        self.conversation = conversation
        self._awaits = awaits
        self._going_on = going_on
        self._since = int(since * 1000)
        self._cursors = cursors
        self._family: set[str] = set()
        self._untaken: dict[str, _Message] = {}
        self._taken: set[str] = set()
        self._given: set[str] = set()
        self._last: Data = {}
        self._words: dict[str, str] = {}
        self._error: Data = {}
        self._permissions: dict[str, Data] = {}
        self._questions: dict[str, Data] = {}
        self._todos: list[Data] = []
        self._ended = ""
        self._busy = self._broken = False

    # -- events --------------------------------------------------------------------------------------------------------

    @forgiving
    def hear(self, event: Data) -> Iterator[Heard]:
        """What one event tells."""
        data = event.get("properties")
        if not isinstance(data, Mapping):
            return
        match event.get("type"):
            case "session.created":
                yield from self.begun(data.get("info") or {})
            case "message.updated":
                yield from self.message(data.get("info") or {})
            case "message.part.updated":
                self.part(data.get("part") or {})
            case "session.error" if data.get("sessionID") == self.conversation:
                yield from self._failed(data.get("error") or {})
            case "session.status" if data.get("sessionID") == self.conversation:
                yield from self.status(data.get("status") or {})
            case "todo.updated" if data.get("sessionID") == self.conversation:
                yield from self.todo(data.get("todos") or [])
            case "permission.asked":
                yield from self.permission(data)
            case "question.asked":
                yield from self.question(data)
            case "permission.replied":
                self._permissions.pop(str(data.get("requestID")), None)
                yield from self._answered()
            case "question.replied" | "question.rejected":
                self._questions.pop(str(data.get("requestID")), None)
                yield from self._answered()
                if said := _answer(data):
                    yield _now(r.TookReport(said))

    def begun(self, info: Data) -> Iterator[Heard]:
        """A conversation began: one that nobody's subagent holds is now what the terminal shows."""
        session, parent = str(info.get("id") or ""), info.get("parentID")
        if parent and (parent in self._family or parent == self.conversation):
            self.adopt(session)
        elif session and not parent:
            self.conversation, self._last, self._ended = session, {}, ""
            self._untaken.clear()
            yield _now(r.ConversationReport(session))

    def adopt(self, session: str) -> None:
        """A subagent's conversation: what it spends counts."""
        self._family.add(session)

    def stranded(self) -> dict[str, str]:
        """Messages that were left behind when a turn was stopped: nobody answers them unless they are given again. Told once."""
        if self._busy or self._untaken.keys() <= self._given:
            return {}
        self._given.update(self._untaken)
        return {key: message.text for key, message in self._untaken.items()}

    def floor(self, session: str) -> int:
        """What a conversation had spent before this moment has been told."""
        return self._cursors.get(session, self._since)

    def message(self, info: Data) -> Iterator[Heard]:
        """A message is there, or has changed."""
        session, key = str(info.get("sessionID") or ""), str(info.get("id") or "")
        main = session == self.conversation
        if info.get("role") == "user" and main and key not in self._taken:
            self._untaken.setdefault(key, _Message(_time(info, "created")))
            self._awaits = self._awaits and _time(info, "created") < self._since
        elif info.get("role") == "assistant" and (main or session in self._family):
            if main:
                if key != self._last.get("id"):
                    self._words = {}
                self._last = info
                yield from self._took(info)
            yield from self._usage(info)

    def part(self, part: Data) -> None:
        """A piece of a message: text of the person's, or of the agent's last words."""
        message, text = str(part.get("messageID") or ""), part.get("text")
        if part.get("type") != "text" or part.get("synthetic") or not isinstance(text, str):
            return
        if message in self._untaken:
            self._untaken[message].parts[str(part.get("id"))] = text
        elif message == self._last.get("id"):
            self._words[str(part.get("id"))] = text

    def status(self, status: Data, *, missed: bool = False) -> Iterator[Heard]:
        """The conversation is in a turn, tries again, or rests. `missed`: it came to be so while nobody listened."""
        if status.get("type") == "retry":
            self._busy = True
            yield _now(_retry(status))
        elif status.get("type") == "busy":
            self._busy, self._broken = True, False
            if not self._permissions and not self._questions:
                yield _now(r.ActivityReport(Activity.ACTIVE))
        elif self._busy or missed:
            self._busy = False
            yield from self._rest(missed)

    def todo(self, todos: Sequence[Data]) -> Iterator[Heard]:
        """Its to-do list."""
        wanted = [one for one in todos if one.get("status") != "cancelled"]
        if wanted and wanted != self._todos:
            self._todos = wanted
            done = sum(one.get("status") == "completed" for one in wanted)
            step = next((str(one.get("content")) for one in wanted if one.get("status") == "in_progress"), "")
            yield _now(r.ProgressReport(done, len(wanted), step))

    def permission(self, asked: Data) -> Iterator[Heard]:
        """It, or a subagent, wants to do something."""
        self._permissions[str(asked.get("id"))] = asked
        yield from self._first_asked()

    def question(self, asked: Data) -> Iterator[Heard]:
        """It shows a question with options."""
        if str(asked.get("id")) not in self._questions:
            self._questions[str(asked.get("id"))] = asked
            yield from self._first_asked()

    # -- what follows from them ----------------------------------------------------------------------------------------

    def _failed(self, error: Data) -> Iterator[Heard]:
        """In a turn it is the turn's end that tells; outside of one, a message was not even begun with."""
        if self._busy:
            self._error = error
        elif error.get("name") != ABORTED and not self._broken:
            self._broken = True  # what comes behind it is its trace
            yield _now(failure(error))

    def _first_asked(self) -> Iterator[Heard]:
        for asked in self._permissions.values():
            yield _now(_permission(asked))
            return
        for asked in self._questions.values():
            yield _now(r.AskReport(_question(asked)))
            return

    def _answered(self) -> Iterator[Heard]:
        if self._permissions or self._questions:
            yield from self._first_asked()
        else:
            yield _now(r.ActivityReport(Activity.ACTIVE))

    def _took(self, info: Data) -> Iterator[Heard]:
        """An answer has begun: it has all messages before it in view."""
        created = _time(info, "created")
        seen = {key: message for key, message in self._untaken.items() if message.created <= created}
        for key in seen:
            del self._untaken[key]
        self._taken.update(seen)
        told = tuple(r.TookReport(message.text) for message in seen.values() if message.text)
        if told and self._fresh("took", created):
            yield Heard(told, SOURCE, self._place("took"), min(one.created for one in seen.values()), created)

    def _usage(self, info: Data) -> Iterator[Heard]:
        session, completed = str(info.get("sessionID")), _time(info, "completed")
        spent = usage(info)
        if spent and completed and completed >= self.floor(session):
            yield Heard((spent,), SOURCE, session, _time(info, "created"), completed)

    def _rest(self, missed: bool) -> Iterator[Heard]:
        """The turn is over. By its last message: finished, interrupted or failed; none in this launch: nothing was begun."""
        last, error = self._last, self._last.get("error") or self._error
        self._error = {}
        self._permissions.clear()
        self._questions.clear()
        ended = _time(last, "completed") or _time(last, "created")
        key = f"{last.get('id')}:{ended}"
        old, again = not last or ended < self._since, key == self._ended
        if not error and not old and not last.get("finish"):
            error = {"name": ABORTED}  # stopped while the provider was about to be asked again
        if error and not (old and error is last.get("error")):
            if not (error.get("name") == ABORTED and self._going_on()):
                yield _now(failure(error))
        elif old or (again and not missed):
            if not self._awaits:
                yield _now(r.ActivityReport(Activity.IDLE))
        elif self._fresh("turns", ended):
            words = "\n\n".join(text for text in self._words.values() if text)
            yield Heard((r.TurnReport(words),), SOURCE, self._place("turns"), _time(last, "created"), ended)
        self._ended = key

    def _place(self, what: str) -> str:
        return f"{self.conversation}.{what}"

    def _fresh(self, what: str, moment: int) -> bool:
        return moment >= self._cursors.get(self._place(what), self._since)


def usage(info: Data) -> r.UsageReport | None:
    """What an answer, or a step of one, cost; dollars as OpenCode reckons them."""
    tokens = info.get("tokens") or {}
    cache = tokens.get("cache") or {}
    spent = r.UsageReport(
        model=f"{info.get('providerID') or ''}/{info.get('modelID') or ''}".strip("/"),
        input=int(tokens.get("input") or 0),
        output=int(tokens.get("output") or 0) + int(tokens.get("reasoning") or 0),
        cache_read=int(cache.get("read") or 0),
        cache_write=int(cache.get("write") or 0),
        usd=float(info.get("cost") or 0) or None,
    )
    return spent if spent.input or spent.output or spent.cache_read or spent.cache_write else None


def _now(report: r.Report) -> Heard:
    return Heard((report,), SOURCE)


def _time(info: Data, which: str) -> int:
    value = (info.get("time") or {}).get(which)
    return int(value) if isinstance(value, int | float) else 0


def _retry(status: Data) -> r.Report:
    message, due = str(status.get("message") or "the provider failed"), status.get("next")
    again = datetime.fromtimestamp(due / 1000, UTC) if isinstance(due, int | float) and due else None
    far = again is not None and (again - datetime.now(UTC)).total_seconds() > PATIENT
    if far or status.get("action") or _LIMIT.search(message):
        return r.LimitReport(again if far else None)
    return r.ActivityReport(Activity.RETRYING, message)


def failure(error: Data) -> r.Report:
    """A turn that ended without an answer."""
    name, data = str(error.get("name") or ""), error.get("data") or {}
    message = " ".join(str(data.get("message") or name).partition("\n    at ")[0].split())
    if name == ABORTED:
        return r.ActivityReport(Activity.INTERRUPTED)
    headers = data.get("responseHeaders") or {}
    if _LIMIT.search(f"{message} {data.get('responseBody') or ''}") or (
        data.get("statusCode") == 429 and not _RATE.search(message)
    ):
        return r.LimitReport(_resets(headers))
    code = data.get("statusCode")
    return r.ActivityReport(Activity.WAITING_INPUT, f"{message} (HTTP {code})" if code else message)


def _resets(headers: Mapping[str, Any]) -> datetime | None:
    try:
        wait = float(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() + wait, UTC)


def _permission(asked: Data) -> r.PermissionReport:
    """A shell command whole, anything else by the patterns that were not allowed: a file of the workspace, a folder, an address."""
    tool, details = str(asked.get("permission") or ""), asked.get("metadata") or {}
    command, patterns = str(details.get("command") or ""), ", ".join(map(str, asked.get("patterns") or ()))
    return r.PermissionReport(
        tool,
        command if tool == "bash" and command else patterns,
        str(details.get("description") or ("" if tool == "bash" else command)),
        str(asked.get("id") or ""),
    )


def _question(asked: Data) -> str:
    lines = []
    for one in asked.get("questions") or ():
        lines.append(str(one.get("question") or one.get("header") or ""))
        lines += [f"- {option.get('label')}: {option.get('description')}" for option in one.get("options") or ()]
    return "\n".join(lines)


def _answer(data: Data) -> str:
    return "\n".join(", ".join(str(label) for label in answer) for answer in data.get("answers") or ())
