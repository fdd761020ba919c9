"""Sends notifications: each is an effect of the outbox, recorded with its event, and its result is again an event.

A receiver that reports a failure is tried again, with growing pauses, for a day. If it may have received the message,
because it did not answer or the daemon died meanwhile, it gets the message once more under the same id, and then no
more; receivers that recognize ids, as those of our webhook do, are tried until they confirm. A row's `attempts` counts
only these doubtful attempts. Nothing waits for a notification.

Look here when a notification did not arrive or arrived twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.notices import NOTIFY, Notice, notice_from_intent
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.signals import ConfigurationReloaded
from agent_orchestrator.errors import AoError, Doubtful, Missing, NotFound, Temporary
from agent_orchestrator.fleet.notifications import notification_text, rate_limit
from agent_orchestrator.fleet.notifications.answer_links import AnswerLinks
from agent_orchestrator.fleet.notifications.receiver_health import Health
from agent_orchestrator.fleet.notifications.targets import NotifierTarget, NotifierTargets
from agent_orchestrator.protocols import Notification, Notifier
from agent_orchestrator.protocols.text import one_line
from agent_orchestrator.sessions.part import Core, Part

MAX_AGE_SECONDS = 86_400.0
"""Seconds after which a notification that could not be sent is dropped."""
SEND_TIMEOUT = 90.0
"""Seconds that a notifier may take to send a message."""
QUESTION_TRIGGERS = ("agent-needs-input", "agent-blocked")
QUESTION_RECHECK = 60.0
"""Seconds after which it is checked whether a question still waits for an answer."""
DOUBTFUL_RETRY_SECONDS = 30.0
"""Seconds before a message that may have arrived is sent once more."""
MAX_RECALLED_EVENTS = 1000
"""The number of past events of a kind that a new daemon reads."""

log = structlog.get_logger()


class NotificationSender(Part):
    """Sends notifications to people by the notifiers that they configured."""

    def __init__(self, core: Core, targets: NotifierTargets, answers: AnswerLinks, health: Health) -> None:
        super().__init__(core)
        self.targets = targets
        self.answers = answers
        self.health = health
        self._past: dict[str, rate_limit.SendHistory] = {}
        self._settled: dict[str, None] = {}
        """Keys of receiver and notice that are settled, perhaps as part of another notice's message."""
        self._has_recalled = False
        self.on_signal(ConfigurationReloaded, self._apply_settings)

    def effects(self) -> dict[str, Effect]:
        """Return the effect that sends a notification."""
        return {NOTIFY: Effect(self.deliver, record_attempt_first=True)}

    def _apply_settings(self, _signal: ConfigurationReloaded) -> None:
        """Apply changed settings: forget the notifiers that were made, and try failing receivers again at once."""
        self.targets.forget()
        self.health.reset(self.targets.receivers())

    # -- sending one notification --------------------------------------------------------------------------------------

    async def deliver(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Send a notification, alone or with others, or postpone it by raising Again; `attempts` is how often it may
        have been sent already.
        """
        await self.recall()
        notice, now = notice_from_intent(intent), self.clock()
        target = self.targets.find(notice.project, str(intent.args["notifier"]))
        if target is None or self._is_settled(target, notice):
            return []
        if now - notice.at > MAX_AGE_SECONDS:
            return self._settle(target, intent, [notice], "late", reason="it could not be sent for a day")
        if self._is_answered(notice, now):
            return self._settle(target, intent, [notice], "late", reason="it is not asked any more")
        if until := self.health.retry_time(target.receiver, now):
            raise RetryLater(until - now)
        waiting = await self._pending_for(target)
        marks = {candidate.id: self._mark(candidate) for candidate in (notice, *waiting)}
        past = self._past.get(target.receiver, rate_limit.SendHistory())
        match rate_limit.decide(notice, waiting, marks, target.send_limits, past, now):
            case rate_limit.Postpone(until):
                raise RetryLater(until - now)
            case rate_limit.Skip():
                return self._settle(target, intent, [notice], "repeated", reason="the same was said a moment ago")
            case rate_limit.Send(notices, repeated):
                return await self._send(target, intent, attempts, notices, (*notices, *repeated), marks)

    async def _send(
        self,
        target: NotifierTarget,
        intent: Intent,
        attempts: int,
        notices: Sequence[Notice],
        settled: Sequence[Notice],
        marks: Mapping[str, str],
    ) -> Sequence[Event]:
        sent_marks = [marks[notice.id] for notice in notices]
        try:
            notifier = self.targets.create_notifier(target)
            keyed = notifier.keyed
            if attempts >= 2 and not keyed:
                return self._settle(
                    target, intent, settled, "doubtful", marks=sent_marks, reason="it may have arrived, twice"
                )
            await send(notifier, self.create_notification(target, notices))
        except Doubtful as error:
            if not keyed and attempts >= 1:
                return self._settle(target, intent, settled, "doubtful", marks=sent_marks, reason=error.text)
            if keyed:
                raise self._retry_later(target, intent, error) from None
            raise Temporary(error.text, error.remedy, self.clock() + DOUBTFUL_RETRY_SECONDS) from None
        except AoError as error:
            return self._handle_failure(target, intent, settled, error)
        return self._settle(target, intent, settled, "sent", marks=sent_marks)

    def create_notification(self, target: NotifierTarget, notices: Sequence[Notice]) -> Notification:
        """Return what is sent for these notices, with secrets redacted."""
        url = (target.project.notifications.url or self.core.sites.local.url).rstrip("/")
        if len(notices) > 1:
            notification = notification_text.combined_notification(notices, url)
        else:
            full_notice, actions = self.answers.with_actions(notices[0], target, url)
            notification = notification_text.single_notification(full_notice, url, actions)
        return REDACTOR.redact_tree(notification, ("id", "url", "token", "session_id", "project"))

    def _is_answered(self, notice: Notice, now: float) -> bool:
        """Return whether a question that could not be sent at once has been answered meanwhile."""
        facts = self.flow.sessions.get(notice.session)
        is_late_question = now - notice.at > QUESTION_RECHECK and notice.trigger in QUESTION_TRIGGERS
        return is_late_question and facts is not None and facts.activity.state not in ("blocked", "waiting_input")

    # -- results -------------------------------------------------------------------------------------------------------

    def _handle_failure(
        self, target: NotifierTarget, intent: Intent, notices: Sequence[Notice], error: AoError
    ) -> Sequence[Event]:
        if isinstance(error, Missing) and target.settings.plugin == "desktop":
            log.debug("no desktop here", error=error.text)
            return []  # there is no desktop to notify on; `ao doctor` reports that
        if error.retryable:
            raise self._retry_later(target, intent, error) from None
        events = self._failure_events(target, notices[0], error)
        return [*events, *self._settle(target, intent, notices, "failed", reason=error.text)]

    def _retry_later(self, target: NotifierTarget, intent: Intent, error: AoError) -> RetryLater:
        now = self.clock()
        events = self._failure_events(target, notice_from_intent(intent), error)
        return RetryLater(max(1.0, self.health.retry_time(target.receiver, now) - now), *events)

    def _failure_events(self, target: NotifierTarget, notice: Notice, error: AoError) -> list[Event]:
        now = self.clock()
        body = self.health.record_failure(target.name, target.receiver, notice.project, error, now)
        if body is None:
            return []
        log.warning("a notifier fails", notifier=target.name, error=str(error))
        key = f"notifier-failing:{target.receiver}:{now:.6f}"
        return [Event(body, now, "daemon", key, notice.project or None, self._existing_session(notice.session))]

    def _existing_session(self, session: str) -> str | None:
        return session if session in self.flow.sessions else None

    def _settle(
        self,
        target: NotifierTarget,
        intent: Intent,
        notices: Sequence[Notice],
        outcome: str,
        *,
        marks: Sequence[str] = (),
        reason: str = "",
    ) -> list[Event]:
        """Mark all these notices as settled and return the events that record it; their own rows find that out when they are due."""
        now, first_notice = self.clock(), notices[0]
        urgent = first_notice.urgent
        if outcome in ("sent", "doubtful"):
            self._remember(target.receiver, marks, urgent, target.send_limits, now)
        for notice in notices:
            self._settled[f"{target.receiver} {notice.id}"] = None
        for oldest in list(self._settled)[: -2 * MAX_RECALLED_EVENTS]:
            del self._settled[oldest]
        ids = tuple(notice.id for notice in notices)
        body = e.NotificationSettled(target.name, ids, outcome, target.receiver, urgent, tuple(marks), reason)
        session = (
            self._existing_session(first_notice.session) if len({notice.session for notice in notices}) == 1 else None
        )
        events = [Event(body, now, "daemon", f"{intent.key}:settled", first_notice.project or None, session)]
        if outcome == "sent" and (recovered := self.health.record_success(target.name, target.receiver)):
            key = f"notifier-recovered:{target.receiver}:{now:.6f}"
            events.append(Event(recovered, now, "daemon", key, first_notice.project or None))
        return events

    # -- state ---------------------------------------------------------------------------------------------------------

    async def _pending_for(self, target: NotifierTarget) -> list[Notice]:
        """Return all notices that are to be sent to the same receiver."""
        notices = []
        for row in await self.flow.store.pending():
            if row.intent.kind != NOTIFY or row.intent.args["notifier"] != target.name:
                continue
            notice = notice_from_intent(row.intent)
            other = self.targets.find(notice.project, target.name)
            if other and other.receiver == target.receiver and not self._is_settled(target, notice):
                notices.append(notice)
        return notices

    def _mark(self, notice: Notice) -> str:
        facts = self.flow.sessions.get(notice.session)
        return notice.content_hash(self.answers.request_reference(facts, notice.trigger) if facts else "")

    def _is_settled(self, target: NotifierTarget, notice: Notice) -> bool:
        return f"{target.receiver} {notice.id}" in self._settled

    def _remember(
        self, receiver: str, marks: Sequence[str], urgent: bool, pace: rate_limit.SendLimits, at: float
    ) -> None:
        past = self._past.get(receiver, rate_limit.SendHistory())
        self._past[receiver] = rate_limit.remember(past, marks, urgent=urgent, pace=pace, at=at)

    async def recall(self) -> None:
        """Restore from the event log, once, what an earlier daemon sent and which receivers were failing."""
        if self._has_recalled:
            return
        read = self.flow.store.events
        kinds = ("notifier-failing", "notifier-recovered")
        health = [event for kind in kinds for event in await read(0, MAX_RECALLED_EVENTS, kind=kind, newest=True)]
        past = await read(0, MAX_RECALLED_EVENTS, kind="notification-settled", newest=True)
        if self._has_recalled:
            return
        self._has_recalled = True
        self.health.recall(sorted(health, key=lambda event: event.seq))
        self.health.reset(self.targets.receivers())
        longest_pace = rate_limit.SendLimits(period_seconds=MAX_AGE_SECONDS, repeat_after=MAX_AGE_SECONDS)
        for event in past:
            body = event.body
            if not isinstance(body, e.NotificationSettled):
                continue
            self._settled |= dict.fromkeys(f"{body.receiver} {notice_id}" for notice_id in body.notices)
            if body.outcome in ("sent", "doubtful"):
                self._remember(body.receiver, body.marks, body.urgent, longest_pace, event.time)


async def send(notifier: Notifier, notification: Notification) -> None:
    """Send a notification. Raises Doubtful after a timeout and NotFound for any other error of the plugin, with secrets redacted."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT):
            await notifier.notify(notification)
    except TimeoutError:
        raise Doubtful(f"it did not end within {SEND_TIMEOUT:g} s", "see what it waits for") from None
    except AoError as error:
        error.text, error.remedy = REDACTOR.redact_text(error.text), REDACTOR.redact_text(error.remedy)
        raise
    except Exception as error:
        error_text = one_line(REDACTOR.redact_text(str(error)), 200)
        raise NotFound(f"{type(error).__name__}: {error_text}", "see the notifier's own documentation") from None
