"""Sends notifications: each is an effect of the outbox, recorded with its event, and its result an event again.

A receiver that says that it did not take a message is tried again, with growing pauses, for a day. One that may have taken it, since it
did not answer or the daemon died meanwhile, gets it once more under the same id, and then no more; unless it knows ids, as our webhook's
receivers do. What a row's `attempts` counts are these doubtful ones alone. Nothing waits for a notification.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Again, Effect
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.notices import NOTIFY, Notice, notice_of
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, Doubtful, Missing, NotFound, Temporary
from agent_orchestrator.fleet.notifications import messages, rate
from agent_orchestrator.fleet.notifications.answer_links import Answers
from agent_orchestrator.fleet.notifications.health import Health
from agent_orchestrator.fleet.notifications.targets import Target, Targets
from agent_orchestrator.protocols import Notification, Notifier
from agent_orchestrator.protocols.text import one_line

LATE = 86_400.0
"""Seconds after which a notification that could not be sent is of no use."""
WITHIN = 90.0
"""Seconds that a notifier may take."""
ASKING = ("agent-needs-input", "agent-blocked")
SOON = 60.0
"""Seconds after which it is looked at whether a question is still one."""
AGAIN_AFTER = 30.0
"""Seconds before what may have arrived is sent once more."""
RECALLED = 1000
"""Events that a new daemon looks back on."""

log = structlog.get_logger()


class Notifying:
    """Tells people, by whatever they configured."""

    def __init__(self, flow: Flow, targets: Targets, answers: Answers, url: Callable[[], str]) -> None:
        self.flow = flow
        self.targets = targets
        self.answers = answers
        self.url = url
        """Where the dashboard is."""
        self.health = Health()
        self._past: dict[str, rate.Past] = {}
        self._settled: dict[str, None] = {}
        """Receiver and notice of what came to its end as part of another's message."""
        self._recalled = False

    def effects(self) -> dict[str, Effect]:
        """How a notification is sent."""
        return {NOTIFY: Effect(self.deliver, ambiguous=True)}

    def reload(self) -> None:
        """Other settings are in force."""
        self.targets.forget()
        self.health.forgive(self.targets.receivers())

    # -- one notification --------------------------------------------------------------------------------------------------

    async def deliver(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Send it, alone or with others, now or later; `attempts`: how often it may have been sent already."""
        await self.recall()
        notice, now = notice_of(intent), self.flow.clock()
        target = self.targets.find(notice.project, str(intent.args["notifier"]))
        if target is None or self._is_settled(target, notice):
            return []
        if now - notice.at > LATE:
            return self._end(target, intent, [notice], "late", reason="it could not be sent for a day")
        if self._answered(notice, now):
            return self._end(target, intent, [notice], "late", reason="it is not asked any more")
        if until := self.health.left_alone(target.receiver, now):
            raise Again(until - now)
        waiting = await self._waiting(target)
        marks = {one.id: self._mark(one) for one in (notice, *waiting)}
        past = self._past.get(target.receiver, rate.Past())
        match rate.decide(notice, waiting, marks, target.pace, past, now):
            case rate.Wait(until):
                raise Again(until - now)
            case rate.Skip():
                return self._end(target, intent, [notice], "repeated", reason="the same was said a moment ago")
            case rate.Send(said, taken):
                return await self._send(target, intent, attempts, said, (*said, *taken), marks)

    async def _send(
        self,
        target: Target,
        intent: Intent,
        attempts: int,
        said: Sequence[Notice],
        every: Sequence[Notice],
        marks: Mapping[str, str],
    ) -> Sequence[Event]:
        told = [marks[one.id] for one in said]
        try:
            notifier = self.targets.make(target)
            keyed = bool(getattr(notifier, "keyed", False))
            if attempts >= 2 and not keyed:
                return self._end(target, intent, every, "doubtful", marks=told, reason="it may have arrived, twice")
            await send(notifier, self.message(target, said))
        except Doubtful as error:
            if not keyed and attempts >= 1:
                return self._end(target, intent, every, "doubtful", marks=told, reason=error.text)
            if keyed:
                raise self._later(target, intent, error) from None
            raise Temporary(error.text, error.remedy, self.flow.clock() + AGAIN_AFTER) from None
        except AoError as error:
            return self._refused(target, intent, every, error)
        return self._end(target, intent, every, "sent", marks=told)

    def message(self, target: Target, notices: Sequence[Notice]) -> Notification:
        """What is sent: without a secret, whatever the notices say."""
        url = (target.project.notifications.url or self.url()).rstrip("/")
        if len(notices) > 1:
            made = messages.together(notices, url)
        else:
            asked, actions = self.answers.offered(notices[0], target, url)
            made = messages.alone(asked, url, actions)
        return KNOWN.tree(made, ("id", "url", "token", "session_id", "project"))

    def _answered(self, notice: Notice, now: float) -> bool:
        """Was a question that could not be told at once answered meanwhile?"""
        facts = self.flow.sessions.get(notice.session)
        late = now - notice.at > SOON and notice.trigger in ASKING
        return late and facts is not None and facts.activity.state not in ("blocked", "waiting_input")

    # -- what came of it ---------------------------------------------------------------------------------------------------

    def _refused(self, target: Target, intent: Intent, notices: Sequence[Notice], error: AoError) -> Sequence[Event]:
        if isinstance(error, Missing) and target.settings.plugin == "desktop":
            log.debug("no desktop here", error=error.text)
            return []  # there is nobody to be told here; `ao doctor` says so
        if error.retryable:
            raise self._later(target, intent, error) from None
        told = self._trouble(target, notices[0], error)
        return [*told, *self._end(target, intent, notices, "failed", reason=error.text)]

    def _later(self, target: Target, intent: Intent, error: AoError) -> Again:
        now = self.flow.clock()
        told = self._trouble(target, notice_of(intent), error)
        return Again(max(1.0, self.health.left_alone(target.receiver, now) - now), *told)

    def _trouble(self, target: Target, notice: Notice, error: AoError) -> list[Event]:
        now = self.flow.clock()
        body = self.health.failed(target.name, target.receiver, notice.project, error, now)
        if body is None:
            return []
        log.warning("a notifier fails", notifier=target.name, error=str(error))
        key = f"notifier-failing:{target.receiver}:{now:.6f}"
        return [Event(body, now, "daemon", key, notice.project or None, self._known(notice.session))]

    def _known(self, session: str) -> str | None:
        return session if session in self.flow.sessions else None

    def _end(
        self,
        target: Target,
        intent: Intent,
        notices: Sequence[Notice],
        outcome: str,
        *,
        marks: Sequence[str] = (),
        reason: str = "",
    ) -> list[Event]:
        """They have come to their end, all of them: those that are rows of their own find that so when it is their turn."""
        now, first = self.flow.clock(), notices[0]
        urgent = first.urgent
        if outcome in ("sent", "doubtful"):
            self._remember(target.receiver, marks, urgent, target.pace, now)
        for one in notices:
            self._settled[f"{target.receiver} {one.id}"] = None
        for oldest in list(self._settled)[: -2 * RECALLED]:
            del self._settled[oldest]
        ids = tuple(one.id for one in notices)
        body = e.NotificationSettled(target.name, ids, outcome, target.receiver, urgent, tuple(marks), reason)
        session = self._known(first.session) if len({one.session for one in notices}) == 1 else None
        events = [Event(body, now, "daemon", f"{intent.key}:settled", first.project or None, session)]
        if outcome == "sent" and (well := self.health.works(target.name, target.receiver)):
            key = f"notifier-recovered:{target.receiver}:{now:.6f}"
            events.append(Event(well, now, "daemon", key, first.project or None))
        return events

    # -- what is known -----------------------------------------------------------------------------------------------------

    async def _waiting(self, target: Target) -> list[Notice]:
        """All that are to be sent to the same receiver."""
        found = []
        for row in await self.flow.store.pending():
            if row.intent.kind != NOTIFY or row.intent.args["notifier"] != target.name:
                continue
            notice = notice_of(row.intent)
            other = self.targets.find(notice.project, target.name)
            if other and other.receiver == target.receiver and not self._is_settled(target, notice):
                found.append(notice)
        return found

    def _mark(self, notice: Notice) -> str:
        facts = self.flow.sessions.get(notice.session)
        return notice.mark(self.answers.asked(facts, notice.trigger) if facts else "")

    def _is_settled(self, target: Target, notice: Notice) -> bool:
        return f"{target.receiver} {notice.id}" in self._settled

    def _remember(self, receiver: str, marks: Sequence[str], urgent: bool, pace: rate.Pace, at: float) -> None:
        past = self._past.get(receiver, rate.Past())
        self._past[receiver] = rate.remember(past, marks, urgent=urgent, pace=pace, at=at)

    async def recall(self) -> None:
        """What an earlier daemon sent counts, too, and so does who did not take it."""
        if self._recalled:
            return
        read = self.flow.store.events
        kinds = ("notifier-failing", "notifier-recovered")
        health = [event for kind in kinds for event in await read(0, RECALLED, kind=kind, newest=True)]
        past = await read(0, RECALLED, kind="notification-settled", newest=True)
        if self._recalled:
            return
        self._recalled = True
        self.health.recall(sorted(health, key=lambda event: event.seq))
        self.health.forgive(self.targets.receivers())
        long = rate.Pace(per=LATE, repeat_after=LATE)
        for event in past:
            body = event.body
            if not isinstance(body, e.NotificationSettled):
                continue
            self._settled |= dict.fromkeys(f"{body.receiver} {one}" for one in body.notices)
            if body.outcome in ("sent", "doubtful"):
                self._remember(body.receiver, body.marks, body.urgent, long, event.time)


async def send(notifier: Notifier, notification: Notification) -> None:
    """Send it; whatever a plugin does wrong is an error of ours, with no secret in it."""
    try:
        async with asyncio.timeout(WITHIN):
            await notifier.notify(notification)
    except TimeoutError:
        raise Doubtful(f"it did not end within {WITHIN:g} s", "see what it waits for") from None
    except AoError as error:
        error.text, error.remedy = KNOWN.text(error.text), KNOWN.text(error.remedy)
        raise
    except Exception as error:
        said = one_line(KNOWN.text(str(error)), 200)
        raise NotFound(f"{type(error).__name__}: {said}", "see the notifier's own documentation") from None
