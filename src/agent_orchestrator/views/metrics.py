"""Metrics for a monitoring system: some are read from memory on request, others are counted as events occur.

No label has unlimited values: no session, no path, no text.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_orchestrator import __version__
from agent_orchestrator.base.loop_watchdog import StallStatistics
from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import Usage
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.fleet.scheduling.start_decision import list_waiting
from agent_orchestrator.sessions.part import Core, Part

if TYPE_CHECKING:
    from agent_orchestrator.changes.forge_sync import Webhooks
    from agent_orchestrator.core.effects import EffectRunner
    from agent_orchestrator.sessions.session_view import SessionViews
    from agent_orchestrator.views.traffic import Traffic

Labels = tuple[str, ...]


@dataclass(slots=True)
class MetricFamily:
    """All values of one metric."""

    name: str
    help: str
    labels: Labels = ()
    kind: str = "gauge"
    values: Mapping[Any, float] = field(default_factory=dict)
    """Labels → value; `()` if there are no labels."""


class Metrics(Part):
    """Collects the metrics."""

    def __init__(
        self,
        core: Core,
        views: SessionViews,
        runner: EffectRunner,
        webhooks: Webhooks,
        traffic: Traffic,
        stalls: StallStatistics,
    ) -> None:
        super().__init__(core)
        self.views = views
        self.runner = runner
        self.webhooks = webhooks
        self.traffic = traffic
        self.stalls = stalls
        self._events: Counter[str] = Counter()
        self._notices: Counter[tuple[str, str]] = Counter()
        self.on(self._count)

    def _count(self, changes: Sequence[FactsChange]) -> None:
        for change in changes:
            body = change.event.body
            self._events[body.type if body.type in e.EVENT_KINDS else "unknown"] += 1
            if isinstance(body, e.NotificationSettled):
                self._notices[body.notifier, body.outcome] += 1

    async def collect(self) -> list[MetricFamily]:
        """Return all metrics but those of requests, which `traffic` counts."""
        return [
            *self._fleet(),
            *await self._effects(),
            *self._counters(),
            *self._loop_stalls(),
            *self._forge_requests(),
        ]

    # -- collecting ----------------------------------------------------------------------------------------------------

    def _fleet(self) -> Iterable[MetricFamily]:
        now, sessions = self.clock(), self.flow.sessions.values()
        by_status: Counter[Labels] = Counter()
        messages: Counter[Labels] = Counter()
        merging: Counter[Labels] = Counter()
        usage_by_agent: defaultdict[Labels, Usage] = defaultdict(Usage)
        for facts in sessions:
            status = self.views.status(facts, now)
            by_status[facts.project, status.name, status.column] += 1
            for message in facts.messages:
                messages[(message.state,)] += 1
            if facts.pr and facts.pr.merge_request:
                merging[(facts.project,)] += 1
            key = facts.project, facts.spec.profile or facts.spec.agent
            usage_by_agent[key] = usage_by_agent[key].plus(facts.usage)
        yield MetricFamily("ao_build_info", "The version that runs.", ("version",), values={(__version__,): 1})
        yield MetricFamily("ao_sessions", "Sessions.", ("project", "status", "column"), values=by_status)
        yield MetricFamily(
            "ao_sessions_waiting", "Sessions that wait to start.", values={(): len(list_waiting(sessions))}
        )
        yield MetricFamily("ao_messages", "Messages to agents, by what became of them.", ("state",), values=messages)
        yield MetricFamily("ao_merge_queue_length", "Changes that are to land.", ("project",), values=merging)
        nodes = Counter((item.state,) for item in self.flow.home.nodes.values())
        yield MetricFamily("ao_nodes", "Nodes of the cluster.", ("state",), values=nodes)
        held_count = sum(
            1 for item in self.flow.home.account_holds.values() if item.released_at is None and item.until > now
        )
        yield MetricFamily("ao_accounts_held", "Accounts whose limit was met and is not over.", values={(): held_count})
        yield from _agent_usage(usage_by_agent)

    async def _effects(self) -> Iterable[MetricFamily]:
        now, pending = self.clock(), self.runner.pending()
        due = [row for row in pending if row.due <= now]
        oldest = 0.0
        if due:
            oldest_row = min(due, key=lambda row: row.cause)
            cause_events = await self.flow.store.events(oldest_row.cause - 1, 1)
            oldest = max(0.0, now - max(oldest_row.due, cause_events[0].time)) if cause_events else 0.0
        return [
            MetricFamily(
                "ao_effects_pending",
                "Effects that are recorded and not carried out yet, those of later times too.",
                ("kind",),
                values=Counter((row.intent.kind,) for row in pending),
            ),
            MetricFamily("ao_effects_due", "Effects whose time has come.", values={(): len(due)}),
            MetricFamily("ao_effects_oldest_seconds", "Age of the oldest whose time has come.", values={(): oldest}),
        ]

    def _counters(self) -> Iterable[MetricFamily]:
        events = {(kind,): count for kind, count in self._events.items()}
        yield MetricFamily("ao_events", "Events recorded since the start.", ("type",), "counter", events)
        yield MetricFamily(
            "ao_webhooks",
            "Webhooks: taken, repeated, refused.",
            ("forge", "outcome"),
            "counter",
            self.webhooks.counts,
        )
        yield MetricFamily(
            "ao_notifications", "Notifications settled.", ("notifier", "outcome"), "counter", self._notices
        )
        size = 0
        for file in (self.home.database, self.home.database.with_name(f"{self.home.database.name}-wal")):
            with contextlib.suppress(OSError):
                size += file.stat().st_size
        yield MetricFamily("ao_database_bytes", "The database's files in this home.", values={(): size})

    def _loop_stalls(self) -> Iterable[MetricFamily]:
        stalls = self.stalls
        counts = {("work",): stalls.work_count, ("wait",): stalls.wait_count}
        yield MetricFamily("ao_loop_stalls", "Turns of the event loop above 50 ms.", ("by",), "counter", counts)
        yield MetricFamily("ao_loop_stalled_seconds", "How long these took.", (), "counter", {(): stalls.seconds})
        yield MetricFamily("ao_loop_longest_stall_seconds", "The longest of them.", values={(): stalls.longest})

    def _forge_requests(self) -> Iterable[MetricFamily]:
        from agent_orchestrator.plugins.forges.shared.http import shared_clients

        requests: Counter[Labels] = Counter()
        remaining: dict[Labels, float] = {}
        limits: dict[Labels, float] = {}
        for http in shared_clients():
            for status, count in http.status_counts.items():
                requests[http.host_text.name, str(status)] += count
            for row in http.budget.rows():
                key = http.host_text.name, row.resource
                remaining[key] = min(row.remaining, remaining.get(key, row.remaining))
                limits[key] = max(row.limit, limits.get(key, row.limit))
        yield MetricFamily(
            "ao_forge_requests", "Requests to forges and trackers.", ("forge", "status"), "counter", dict(requests)
        )
        label_names = ("forge", "resource")
        yield MetricFamily(
            "ao_forge_budget_remaining", "Requests that a forge still grants.", label_names, values=remaining
        )
        yield MetricFamily("ao_forge_budget_limit", "Requests that a forge grants at all.", label_names, values=limits)


def _agent_usage(usage_by_agent: Mapping[Labels, Usage]) -> Iterable[MetricFamily]:
    """Return tokens and dollars that agents used, by project and by agent or profile."""
    tokens: dict[Labels, float] = {}
    dollars: dict[Labels, float] = {}
    for key, usage in usage_by_agent.items():
        kinds = {
            "input": usage.input,
            "output": usage.output,
            "cacheRead": usage.cache_read,
            "cacheWrite": usage.cache_write,
        }
        tokens |= {(*key, kind): count for kind, count in kinds.items()}
        if usage.usd is not None:
            dollars[key] = usage.usd
    yield MetricFamily("ao_agent_tokens", "Tokens that agents used.", ("project", "agent", "kind"), "counter", tokens)
    yield MetricFamily("ao_agent_dollars", "What agents used, in US dollars.", ("project", "agent"), "counter", dollars)
