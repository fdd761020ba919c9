"""Figures for a monitoring system, as of now: gathered from what is in memory when somebody asks, and counted on the way otherwise.

No label is made of what anybody may invent without end: no session, no path, no text.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_orchestrator import __version__
from agent_orchestrator.base.loop_watchdog import Stalls
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.facts import Usage
from agent_orchestrator.fleet.scheduling.slots import waiting

if TYPE_CHECKING:
    from agent_orchestrator.base.home import Home
    from agent_orchestrator.changes.forge_sync import Webhooks
    from agent_orchestrator.core.effects import Runner
    from agent_orchestrator.sessions.session_view import Views
    from agent_orchestrator.views.traffic import Traffic

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


@dataclass(slots=True)
class Family:
    """All figures of one name."""

    name: str
    help: str
    labels: Labels = ()
    kind: str = "gauge"
    values: Mapping[Any, float] = field(default_factory=dict)
    """Labels → figure; `()` where there are none."""


class Metrics:
    """Gathers the figures."""

    def __init__(
        self, flow: Flow, home: Home, views: Views, runner: Runner, webhooks: Webhooks, traffic: Traffic
    ) -> None:
        self.flow = flow
        self.home = home
        self.views = views
        self.runner = runner
        self.webhooks = webhooks
        self.traffic = traffic
        self.stalls = Stalls()
        """The event loop's, of whoever runs one."""
        self._events: Counter[str] = Counter()
        self._notices: Counter[tuple[str, str]] = Counter()
        flow.on_change.append(self._on_change)

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            body = change.event.body
            self._events[body.type if body.type in e.KINDS else "unknown"] += 1
            if isinstance(body, e.NotificationSettled):
                self._notices[body.notifier, body.outcome] += 1

    async def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        families = [*self._fleet(), *await self._effects(), *self._counted(), *self._loop(), *self._forges()]
        return await asyncio.to_thread(_render, families, self.traffic)

    # -- what is gathered ----------------------------------------------------------------------------------------------

    def _fleet(self) -> Iterable[Family]:
        now, sessions = self.flow.clock(), self.flow.sessions.values()
        shown: Counter[Labels] = Counter()
        messages: Counter[Labels] = Counter()
        landing: Counter[Labels] = Counter()
        used: defaultdict[Labels, Usage] = defaultdict(Usage)
        for facts in sessions:
            status = self.views.status(facts, now)
            shown[facts.project, status.name, status.column] += 1
            for message in facts.messages:
                messages[(message.state,)] += 1
            if facts.pr and facts.pr.landing:
                landing[(facts.project,)] += 1
            place = facts.project, facts.spec.profile or facts.spec.agent
            used[place] = used[place].plus(facts.usage)
        yield Family("ao_build_info", "The version that runs.", ("version",), values={(__version__,): 1})
        yield Family("ao_sessions", "Sessions.", ("project", "status", "column"), values=shown)
        yield Family("ao_sessions_waiting", "Sessions that wait to start.", values={(): len(waiting(sessions))})
        yield Family("ao_messages", "Messages to agents, by what became of them.", ("state",), values=messages)
        yield Family("ao_merge_queue_length", "Changes that are to land.", ("project",), values=landing)
        nodes = Counter((one.state,) for one in self.flow.home.nodes.values())
        yield Family("ao_nodes", "Nodes of the cluster.", ("state",), values=nodes)
        held = sum(1 for one in self.flow.home.accounts.values() if one.released is None and one.until > now)
        yield Family("ao_accounts_held", "Accounts whose limit was met and is not over.", values={(): held})
        yield from _spent(used)

    async def _effects(self) -> Iterable[Family]:
        now, pending = self.flow.clock(), self.runner.pending()
        due = [row for row in pending if row.due <= now]
        oldest = 0.0
        if due:
            first = min(due, key=lambda row: row.cause)
            caused = await self.flow.store.events(first.cause - 1, 1)
            oldest = max(0.0, now - max(first.due, caused[0].time)) if caused else 0.0
        return [
            Family(
                "ao_effects_pending",
                "Effects that are recorded and not carried out yet, those of later times too.",
                ("kind",),
                values=Counter((row.intent.kind,) for row in pending),
            ),
            Family("ao_effects_due", "Effects whose time has come.", values={(): len(due)}),
            Family("ao_effects_oldest_seconds", "Age of the oldest whose time has come.", values={(): oldest}),
        ]

    def _counted(self) -> Iterable[Family]:
        events = {(kind,): count for kind, count in self._events.items()}
        yield Family("ao_events", "Events recorded since the start.", ("type",), "counter", events)
        yield Family(
            "ao_webhooks",
            "Webhooks: taken, repeated, refused.",
            ("forge", "outcome"),
            "counter",
            self.webhooks.counts,
        )
        yield Family("ao_notifications", "Notifications settled.", ("notifier", "outcome"), "counter", self._notices)
        size = 0
        for file in (self.home.database, self.home.database.with_name(f"{self.home.database.name}-wal")):
            with contextlib.suppress(OSError):
                size += file.stat().st_size
        yield Family("ao_database_bytes", "The database's files in this home.", values={(): size})

    def _loop(self) -> Iterable[Family]:
        stalls = self.stalls
        counts = {("work",): stalls.work, ("wait",): stalls.waits}
        yield Family("ao_loop_stalls", "Turns of the event loop above 50 ms.", ("by",), "counter", counts)
        yield Family("ao_loop_stalled_seconds", "How long these took.", (), "counter", {(): stalls.seconds})
        yield Family("ao_loop_longest_stall_seconds", "The longest of them.", values={(): stalls.longest})

    def _forges(self) -> Iterable[Family]:
        from agent_orchestrator.plugins.forges.shared.http import all_shared

        asked: Counter[Labels] = Counter()
        left: dict[Labels, float] = {}
        limits: dict[Labels, float] = {}
        for http in all_shared():
            for status, count in http.answers.items():
                asked[http.speaker.name, str(status)] += count
            for row in http.budget.shown():
                place = http.speaker.name, row.resource
                left[place] = min(row.remaining, left.get(place, row.remaining))
                limits[place] = max(row.limit, limits.get(place, row.limit))
        yield Family(
            "ao_forge_requests", "Requests to forges and trackers.", ("forge", "status"), "counter", dict(asked)
        )
        by = ("forge", "resource")
        yield Family("ao_forge_budget_remaining", "Requests that a forge still grants.", by, values=left)
        yield Family("ao_forge_budget_limit", "Requests that a forge grants at all.", by, values=limits)


def _render(families: Sequence[Family], traffic: Traffic) -> bytes:
    """In a thread, with what it takes, which is loaded the first time."""
    from agent_orchestrator.views.prometheus import render

    return render(families, traffic)


def _spent(used: Mapping[Labels, Usage]) -> Iterable[Family]:
    """What agents used, by project and by agent or profile."""
    tokens: dict[Labels, float] = {}
    dollars: dict[Labels, float] = {}
    for place, one in used.items():
        kinds = {"input": one.input, "output": one.output, "cacheRead": one.cache_read, "cacheWrite": one.cache_write}
        tokens |= {(*place, kind): count for kind, count in kinds.items()}
        if one.usd is not None:
            dollars[place] = one.usd
    yield Family("ao_agent_tokens", "Tokens that agents used.", ("project", "agent", "kind"), "counter", tokens)
    yield Family("ao_agent_dollars", "What agents used, in US dollars.", ("project", "agent"), "counter", dollars)
