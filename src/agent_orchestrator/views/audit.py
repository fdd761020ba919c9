"""The audit log: who did what, when and why. It is the event log itself, with its actors, causes and digests.

What is no matter of the flow, but somebody must answer for (a sign-in, a token, a refused request), is put into it from here.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any

import structlog

from agent_orchestrator.base.hash_chain import Chain, Head
from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import current
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.outbox import Wanted
from agent_orchestrator.errors import AoError

PAGE = 2000
"""Entries that are checked at once."""

log = structlog.get_logger()


class Audit:
    """Puts entries in, and gives them out as they are kept."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._background: set[asyncio.Task[None]] = set()

    async def tell(self, body: e.Body, session: str | None = None, *, actor: str = "") -> None:
        """Record that this is done on behalf of whoever acts just now, or of `actor`."""
        await self.flow.append(self._event(body, session, actor))

    def tell_soon(self, body: e.Body) -> None:
        """Record it without anybody's waiting for that; where it cannot be recorded, the daemon's log has it."""
        task = asyncio.get_running_loop().create_task(self.try_to_tell(self._event(body, None, "")))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def try_to_tell(self, event: Event) -> None:
        """Record what was done already."""
        try:
            await self.flow.append(event)
        except AoError as error:
            log.warning("an entry of the audit log could not be written", entry=event.type, error=error.text)

    def event(self, body: e.Body, session: str | None = None) -> Event:
        """An entry on behalf of whoever acts just now."""
        return self._event(body, session, "")

    def _event(self, body: e.Body, session: str | None, actor: str) -> Event:
        behalf = current()
        facts = self.flow.sessions.get(session) if session else None
        who = actor or (behalf.actor if behalf else "")
        return Event(
            body,
            self.flow.clock(),
            "server",
            uuid.uuid4().hex,
            facts.project if facts else None,
            facts.id if facts else None,
            actor=who,
        )

    async def page(self, wanted: Wanted, after: int | None, limit: int) -> list[dict[str, Any]]:
        """Entries after a number, or the newest ones if none is given; oldest first."""
        found = await self.flow.store.entries(wanted, after or 0, limit, newest=after is None)
        causes = sorted({entry["cause"] for entry in found if entry["cause"] is not None})
        kinds = await self.flow.store.types(causes) if causes else {}
        return [_shown(entry, kinds) for entry in found]

    async def head(self) -> Head:
        """The last entry."""
        last = await self.flow.store.entries(Wanted(), limit=1, newest=True)
        return Head(last[0]["seq"], last[0]["digest"]) if last else Head()

    async def verify(self, kept: Head | None) -> dict[str, Any]:
        """Follow the chain through the whole log; `kept` is an entry that somebody wrote down earlier, and which must still be there."""
        chain, seen = Chain(), kept is None or kept.seq == 0
        while page := await self.flow.store.entries(Wanted(), chain.verdict.head.seq, PAGE):
            seen = seen or any(
                (entry["seq"], entry["digest"]) == (kept and kept.seq, kept and kept.digest) for entry in page
            )
            if not await asyncio.to_thread(chain.follow, page):
                break
        found = chain.verdict
        broken: dict[str, Any] | None = None
        if found.broken is not None:
            broken = {"seq": found.broken, "reason": found.reason}
        elif not seen and kept is not None:
            gone = kept.seq > found.head.seq
            reason = f"the log ends before it, at {found.head.seq}" if gone else "it is not the one that was kept"
            broken = {"seq": kept.seq, "reason": reason}
        head = {"seq": found.head.seq, "digest": found.head.digest}
        return {"entries": found.entries, "head": head, "broken": broken}


def _shown(entry: Mapping[str, Any], kinds: Mapping[int, str]) -> dict[str, Any]:
    return {
        "seq": entry["seq"],
        "time": rfc3339(entry["at"]),
        "actor": entry["actor"],
        "type": entry["type"],
        "session": entry["session"],
        "project": entry["project"],
        "cause": entry["cause"],
        "causeType": kinds.get(entry["cause"] or 0),
        "data": _data(entry["data"]),
        "source": entry["source"],
        "key": entry["key"],
        "generation": entry["generation"],
        "at": entry["at"],
        "digest": entry["digest"],
    }


def _data(text: str) -> Any:
    """What an entry says; as text where somebody made it unreadable."""
    try:
        return json.loads(text)
    except ValueError:
        return text
