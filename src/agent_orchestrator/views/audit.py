"""The audit log: who did what, when and why. It is the event log itself, with its actors, causes and digests.

Events outside of sessions that need an author (a sign-in, a token, a refused request) are recorded here.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any

import structlog

from agent_orchestrator.base.background_tasks import Tasks
from agent_orchestrator.base.hash_chain import ChainHead, ChainVerifier
from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import current_actor
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.outbox import LogEntryFilter
from agent_orchestrator.errors import AoError

ENTRIES_PER_READ = 2000
"""Entries that are verified at once."""

log = structlog.get_logger()


class Audit:
    """Records entries of the audit log, and reads and verifies them."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._tasks = Tasks()

    async def record(self, body: e.Body, session: str | None = None, *, actor: str = "") -> None:
        """Record an entry on behalf of the current actor, or of `actor`."""
        await self.flow.append(self._create_entry(body, session, actor))

    def record_in_background(self, body: e.Body) -> None:
        """Record an entry in the background; if that fails, the daemon's log has it."""
        self._tasks.spawn(self.try_to_record(self._create_entry(body, None, "")))

    async def try_to_record(self, event: Event) -> None:
        """Record an entry of something that is done already; a failure is only logged."""
        try:
            await self.flow.append(event)
        except AoError as error:
            log.warning("an entry of the audit log could not be written", entry=event.type, error=error.text)

    def create_entry(self, body: e.Body, session: str | None = None) -> Event:
        """Return an entry on behalf of the current actor, without recording it."""
        return self._create_entry(body, session, "")

    def _create_entry(self, body: e.Body, session: str | None, actor: str) -> Event:
        acting = current_actor()
        facts = self.flow.sessions.get(session) if session else None
        actor_name = actor or (acting.actor if acting else "")
        return Event(
            body,
            self.flow.clock(),
            "server",
            uuid.uuid4().hex,
            facts.project if facts else None,
            facts.id if facts else None,
            actor=actor_name,
        )

    async def page(self, entry_filter: LogEntryFilter, after: int | None, limit: int) -> list[dict[str, Any]]:
        """Return entries after a number, or the newest ones if it is None; oldest first."""
        entries = await self.flow.store.entries(entry_filter, after or 0, limit, newest=after is None)
        causes = sorted({entry["cause"] for entry in entries if entry["cause"] is not None})
        kinds = await self.flow.store.event_types(causes) if causes else {}
        return [_entry_json(entry, kinds) for entry in entries]

    async def head(self) -> ChainHead:
        """Return the sequence number and digest of the last entry."""
        last = await self.flow.store.entries(LogEntryFilter(), limit=1, newest=True)
        return ChainHead(last[0]["seq"], last[0]["digest"]) if last else ChainHead()

    async def verify(self, kept: ChainHead | None) -> dict[str, Any]:
        """Verify the hash chain of the whole log; `kept` is an entry that was noted down earlier and must still be in the log."""
        chain, is_kept_found = ChainVerifier(), kept is None or kept.seq == 0
        while page := await self.flow.store.entries(LogEntryFilter(), chain.result.head.seq, ENTRIES_PER_READ):
            is_kept_found = is_kept_found or any(
                (entry["seq"], entry["digest"]) == (kept and kept.seq, kept and kept.digest) for entry in page
            )
            if not await asyncio.to_thread(chain.verify, page):
                break
        verdict = chain.result
        broken: dict[str, Any] | None = None
        if verdict.first_invalid is not None:
            broken = {"seq": verdict.first_invalid, "reason": verdict.reason}
        elif not is_kept_found and kept is not None:
            is_beyond_end = kept.seq > verdict.head.seq
            reason = (
                f"the log ends before it, at {verdict.head.seq}" if is_beyond_end else "it is not the one that was kept"
            )
            broken = {"seq": kept.seq, "reason": reason}
        head = {"seq": verdict.head.seq, "digest": verdict.head.digest}
        return {"entries": verdict.entries, "head": head, "broken": broken}


def _entry_json(entry: Mapping[str, Any], kinds: Mapping[int, str]) -> dict[str, Any]:
    return {
        "seq": entry["seq"],
        "time": rfc3339(entry["at"]),
        "actor": entry["actor"],
        "type": entry["type"],
        "session": entry["session"],
        "project": entry["project"],
        "cause": entry["cause"],
        "causeType": kinds.get(entry["cause"] or 0),
        "data": _parse_data(entry["data"]),
        "source": entry["source"],
        "key": entry["key"],
        "generation": entry["generation"],
        "at": entry["at"],
        "digest": entry["digest"],
    }


def _parse_data(text: str) -> Any:
    """Return an entry's data, or its text if that was made unreadable."""
    try:
        return json.loads(text)
    except ValueError:
        return text
