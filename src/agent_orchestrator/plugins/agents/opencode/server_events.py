"""Turns the sessions of OpenCode's server into reports: from events as they arrive, and from records when events were missed.

An event and a record of the same thing give the same report under the same key, so what is read twice is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.protocols import Activity, ReportBatch
from agent_orchestrator.protocols import reports as r

SOURCE = "http"
ABORTED = "MessageAbortedError"
MAX_RETRY_WAIT = 120.0
"""Seconds: a provider that must not be asked again for longer than this has reached a usage limit."""

_LIMIT = re.compile(
    r"usage.?limit|limit reached|usage exceeded|quota|insufficient_quota|out of credits|billing", re.IGNORECASE
)
_RATE = re.compile(r"rate.?limit|too many requests", re.IGNORECASE)

Data = Mapping[str, Any]


@dataclass(slots=True)
class _UnansweredMessage:
    """A user message that no answer of the model includes yet."""

    created: int
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the text of all parts."""
        return "\n".join(self.parts.values())


class ConversationReader:
    """The state of one launch: its conversation and those of its subagents, as read so far."""

    def __init__(
        self,
        conversation: str | None,
        since: float,
        cursors: Mapping[str, int],
        *,
        awaits: bool = False,
        going_on: Callable[[], bool] = lambda: False,
    ) -> None:
        """`awaits`: the first message is still to come. `going_on`: returns whether another turn follows the one that is being
        stopped.
        """
        self.conversation = conversation
        self._awaits_message = awaits
        self._is_turn_following = going_on
        self._since = int(since * 1000)
        self._cursors = cursors
        self._family: set[str] = set()
        self._waiting_messages: dict[str, _UnansweredMessage] = {}
        self._answered_messages: set[str] = set()
        self._returned_ids: set[str] = set()
        self._last_message: Data = {}
        self._last_text: dict[str, str] = {}
        self._error: Data = {}
        self._permissions: dict[str, Data] = {}
        self._questions: dict[str, Data] = {}
        self._todos: list[Data] = []
        self._ended_key = ""
        self._busy = self._has_failed = False

    # -- events --------------------------------------------------------------------------------------------------------

    @skip_malformed
    def read_event(self, event: Data) -> Iterator[ReportBatch]:
        """Return the reports of one event."""
        data = event.get("properties")
        if not isinstance(data, Mapping):
            return
        match event.get("type"):
            case "session.created":
                yield from self.begin_conversation(data.get("info") or {})
            case "message.updated":
                yield from self.read_message(data.get("info") or {})
            case "message.part.updated":
                self.read_part(data.get("part") or {})
            case "session.error" if data.get("sessionID") == self.conversation:
                yield from self._handle_error(data.get("error") or {})
            case "session.status" if data.get("sessionID") == self.conversation:
                yield from self.read_status(data.get("status") or {})
            case "todo.updated" if data.get("sessionID") == self.conversation:
                yield from self.read_todos(data.get("todos") or [])
            case "permission.asked":
                yield from self.read_permission(data)
            case "question.asked":
                yield from self.read_question(data)
            case "permission.replied":
                self._permissions.pop(str(data.get("requestID")), None)
                yield from self._report_after_answer()
            case "question.replied" | "question.rejected":
                self._questions.pop(str(data.get("requestID")), None)
                yield from self._report_after_answer()
                if answer_text := _answer_text(data):
                    yield _without_cursor(r.MessageTakenReport(answer_text))

    def begin_conversation(self, info: Data) -> Iterator[ReportBatch]:
        """Handle a new conversation: one of a subagent is adopted, any other is now the one that the terminal shows."""
        session, parent = str(info.get("id") or ""), info.get("parentID")
        if parent and (parent in self._family or parent == self.conversation):
            self.adopt(session)
        elif session and not parent:
            self.conversation, self._last_message, self._ended_key = session, {}, ""
            self._waiting_messages.clear()
            yield _without_cursor(r.ConversationReport(session))

    def adopt(self, session: str) -> None:
        """Follow the conversation of a subagent, whose usage counts."""
        self._family.add(session)

    def unanswered_messages(self) -> dict[str, str]:
        """Return the text of messages, by id, that were left unanswered when a turn was stopped; each is returned once."""
        if self._busy or self._waiting_messages.keys() <= self._returned_ids:
            return {}
        self._returned_ids.update(self._waiting_messages)
        return {key: message.text for key, message in self._waiting_messages.items()}

    def reported_until(self, session: str) -> int:
        """Return the time in milliseconds up to which the usage of a conversation has been reported."""
        return self._cursors.get(session, self._since)

    def read_message(self, info: Data) -> Iterator[ReportBatch]:
        """Handle a new or changed message: a user's waits for an answer, an answer takes the messages before it and reports its usage."""
        session, key = str(info.get("sessionID") or ""), str(info.get("id") or "")
        main = session == self.conversation
        if info.get("role") == "user" and main and key not in self._answered_messages:
            self._waiting_messages.setdefault(key, _UnansweredMessage(_time(info, "created")))
            self._awaits_message = self._awaits_message and _time(info, "created") < self._since
        elif info.get("role") == "assistant" and (main or session in self._family):
            if main:
                if key != self._last_message.get("id"):
                    self._last_text = {}
                self._last_message = info
                yield from self._report_taken(info)
            yield from self._report_usage(info)

    def read_part(self, part: Data) -> None:
        """Handle a part of a message: text of a waiting user message, or of the agent's latest one."""
        message, text = str(part.get("messageID") or ""), part.get("text")
        if part.get("type") != "text" or part.get("synthetic") or not isinstance(text, str):
            return
        if message in self._waiting_messages:
            self._waiting_messages[message].parts[str(part.get("id"))] = text
        elif message == self._last_message.get("id"):
            self._last_text[str(part.get("id"))] = text

    def read_status(self, status: Data, *, missed: bool = False) -> Iterator[ReportBatch]:
        """Report that the conversation works, retries or rests. `missed`: the status began before the events were read."""
        if status.get("type") == "retry":
            self._busy = True
            yield _without_cursor(_retry_report(status))
        elif status.get("type") == "busy":
            self._busy, self._has_failed = True, False
            if not self._permissions and not self._questions:
                yield _without_cursor(r.ActivityReport(Activity.ACTIVE))
        elif self._busy or missed:
            self._busy = False
            yield from self._report_end(missed)

    def read_todos(self, todos: Sequence[Data]) -> Iterator[ReportBatch]:
        """Report the progress of the to-do list if it changed."""
        steps = [todo for todo in todos if todo.get("status") != "cancelled"]
        if steps and steps != self._todos:
            self._todos = steps
            done = sum(todo.get("status") == "completed" for todo in steps)
            step = next((str(todo.get("content")) for todo in steps if todo.get("status") == "in_progress"), "")
            yield _without_cursor(r.ProgressReport(done, len(steps), step))

    def read_permission(self, request: Data) -> Iterator[ReportBatch]:
        """Report a permission request of the agent or a subagent."""
        self._permissions[str(request.get("id"))] = request
        yield from self._report_first_request()

    def read_question(self, request: Data) -> Iterator[ReportBatch]:
        """Report a question with options, once."""
        if str(request.get("id")) not in self._questions:
            self._questions[str(request.get("id"))] = request
            yield from self._report_first_request()

    # -- reports derived from them --------------------------------------------------------------------------------------

    def _handle_error(self, error: Data) -> Iterator[ReportBatch]:
        """Keep an error for the end of the turn; outside of a turn report it at once, since a message could not even be started on."""
        if self._busy:
            self._error = error
        elif error.get("name") != ABORTED and not self._has_failed:
            self._has_failed = True  # the errors that follow are consequences of this one
            yield _without_cursor(failure(error))

    def _report_first_request(self) -> Iterator[ReportBatch]:
        """Report the oldest open permission request, or else the oldest open question."""
        for request in self._permissions.values():
            yield _without_cursor(_permission_report(request))
            return
        for request in self._questions.values():
            yield _without_cursor(r.AskReport(_question_text(request)))
            return

    def _report_after_answer(self) -> Iterator[ReportBatch]:
        """Report the next open request, or that the agent works."""
        if self._permissions or self._questions:
            yield from self._report_first_request()
        else:
            yield _without_cursor(r.ActivityReport(Activity.ACTIVE))

    def _report_taken(self, info: Data) -> Iterator[ReportBatch]:
        """Report that an answer has taken all user messages before it."""
        created = _time(info, "created")
        answered = {key: message for key, message in self._waiting_messages.items() if message.created <= created}
        for key in answered:
            del self._waiting_messages[key]
        self._answered_messages.update(answered)
        reports = tuple(r.MessageTakenReport(message.text) for message in answered.values() if message.text)
        if reports and self._is_new("took", created):
            yield ReportBatch(
                reports,
                SOURCE,
                self._cursor_name("took"),
                min(waiting.created for waiting in answered.values()),
                created,
            )

    def _report_usage(self, info: Data) -> Iterator[ReportBatch]:
        """Report the usage of a completed answer that was not reported before."""
        session, completed = str(info.get("sessionID")), _time(info, "completed")
        report = parse_usage(info)
        if report and completed and completed >= self.reported_until(session):
            yield ReportBatch((report,), SOURCE, session, _time(info, "created"), completed)

    def _report_end(self, missed: bool) -> Iterator[ReportBatch]:
        """Report how the turn ended by its last message: finished, interrupted or failed; idle if this launch had no turn."""
        last, error = self._last_message, self._last_message.get("error") or self._error
        self._error = {}
        self._permissions.clear()
        self._questions.clear()
        ended = _time(last, "completed") or _time(last, "created")
        key = f"{last.get('id')}:{ended}"
        is_old, is_repeated = not last or ended < self._since, key == self._ended_key
        if not error and not is_old and not last.get("finish"):
            error = {"name": ABORTED}  # it was stopped while a retry was due
        if error and not (is_old and error is last.get("error")):
            if not (error.get("name") == ABORTED and self._is_turn_following()):
                yield _without_cursor(failure(error))
        elif is_old or (is_repeated and not missed):
            if not self._awaits_message:
                yield _without_cursor(r.ActivityReport(Activity.IDLE))
        elif self._is_new("turns", ended):
            words = "\n\n".join(text for text in self._last_text.values() if text)
            yield ReportBatch((r.TurnReport(words),), SOURCE, self._cursor_name("turns"), _time(last, "created"), ended)
        self._ended_key = key

    def _cursor_name(self, kind: str) -> str:
        """Return the name of a cursor of this conversation."""
        return f"{self.conversation}.{kind}"

    def _is_new(self, kind: str, time: int) -> bool:
        """Return whether something of this time (milliseconds) is past the cursor, so not reported yet."""
        return time >= self._cursors.get(self._cursor_name(kind), self._since)


def parse_usage(info: Data) -> r.UsageReport | None:
    """Return the usage of an answer or of a step of one, or None if it used nothing; the cost in dollars is OpenCode's own figure."""
    tokens = info.get("tokens") or {}
    cache = tokens.get("cache") or {}
    report = r.UsageReport(
        model=f"{info.get('providerID') or ''}/{info.get('modelID') or ''}".strip("/"),
        input=int(tokens.get("input") or 0),
        output=int(tokens.get("output") or 0) + int(tokens.get("reasoning") or 0),
        cache_read=int(cache.get("read") or 0),
        cache_write=int(cache.get("write") or 0),
        usd=float(info.get("cost") or 0) or None,
    )
    return report if report.input or report.output or report.cache_read or report.cache_write else None


def _without_cursor(report: r.Report) -> ReportBatch:
    """Wrap a report that holds now and has no cursor."""
    return ReportBatch((report,), SOURCE)


def _time(info: Data, key: str) -> int:
    """Return a time of a message in milliseconds, or 0."""
    value = (info.get("time") or {}).get(key)
    return int(value) if isinstance(value, int | float) else 0


def _retry_report(status: Data) -> r.Report:
    """Return a usage limit if the retry is more than `MAX_RETRY_WAIT` seconds away or its message names a limit, otherwise a retry."""
    message, due = str(status.get("message") or "the provider failed"), status.get("next")
    retry_at = datetime.fromtimestamp(due / 1000, UTC) if isinstance(due, int | float) and due else None
    is_far = retry_at is not None and (retry_at - datetime.now(UTC)).total_seconds() > MAX_RETRY_WAIT
    if is_far or status.get("action") or _LIMIT.search(message):
        return r.LimitReport(retry_at if is_far else None)
    return r.ActivityReport(Activity.RETRYING, message)


def failure(error: Data) -> r.Report:
    """Return the report for a turn that ended without an answer: interrupted, usage limit, or waiting for a person."""
    name, data = str(error.get("name") or ""), error.get("data") or {}
    message = " ".join(str(data.get("message") or name).partition("\n    at ")[0].split())
    if name == ABORTED:
        return r.ActivityReport(Activity.INTERRUPTED)
    headers = data.get("responseHeaders") or {}
    if _LIMIT.search(f"{message} {data.get('responseBody') or ''}") or (
        data.get("statusCode") == 429 and not _RATE.search(message)
    ):
        return r.LimitReport(_reset_time(headers))
    code = data.get("statusCode")
    return r.ActivityReport(Activity.WAITING_INPUT, f"{message} (HTTP {code})" if code else message)


def _reset_time(headers: Mapping[str, Any]) -> datetime | None:
    """Return when the limit ends by the `retry-after` header in seconds, or None."""
    try:
        wait = float(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() + wait, UTC)


def _permission_report(request: Data) -> r.PermissionReport:
    """Return the report of a permission request: a shell command in full, anything else by the patterns that were not allowed
    (file, folder, address).
    """
    tool, details = str(request.get("permission") or ""), request.get("metadata") or {}
    command, patterns = str(details.get("command") or ""), ", ".join(map(str, request.get("patterns") or ()))
    return r.PermissionReport(
        tool,
        command if tool == "bash" and command else patterns,
        str(details.get("description") or ("" if tool == "bash" else command)),
        str(request.get("id") or ""),
    )


def _question_text(request: Data) -> str:
    """Return the text of all questions of a request, with their options."""
    lines = []
    for question in request.get("questions") or ():
        lines.append(str(question.get("question") or question.get("header") or ""))
        lines += [f"- {option.get('label')}: {option.get('description')}" for option in question.get("options") or ()]
    return "\n".join(lines)


def _answer_text(data: Data) -> str:
    """Return the answers to a question as text, one line per question."""
    return "\n".join(", ".join(str(label) for label in answer) for answer in data.get("answers") or ())
