"""What is done about a change's discussions and readers: a discussion is settled, people are asked to look.

At a forge both are recorded first and carried out then (`changes/forge_sync/pull_requests.py`); the caller waits a while for the result.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Mapping, Sequence

from agent_orchestrator.changes.forge_sync.connections import LOCAL
from agent_orchestrator.changes.reviews.reviews import pull_of, settled
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.errors import Conflict, NotFound, UsageError

PATIENCE = 40.0
"""Seconds after which whoever asked is told that it is still to be done, if the forge says nothing at all."""
_PERSON = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[\w.-]+)?(?:\[bot\])?")


class Discussions:
    """Settles discussions, and asks people to look."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    async def resolve(
        self, session: str, named: Sequence[str], *, everything: bool = False, key: str | None = None
    ) -> bool:
        """Settle these discussions, each named by itself or by a comment of it, or all; false: the forge has not heard of it yet."""
        facts, pr = pull_of(self.flow, session)
        _refuse_unless_open(facts, pr)
        local = facts.spec.scm == LOCAL
        can = {one.thread or one.id for one in pr.comments if local or one.thread}
        threads = _open(pr) & can if everything else {self._thread(facts, pr, name, can) for name in named}
        unique = key or uuid.uuid4().hex
        events = [
            self._event(
                facts,
                e.ThreadSettled(thread, True) if local else e.ResolveRequested(thread),
                f"resolve:{session}:{thread}:{unique}",
            )
            for thread in sorted(threads & _open(pr))
        ]
        await self.flow.append(*events)
        return local or await self._carried_out([f"resolve:{one.key}" for one in events])

    def _thread(self, facts: SessionFacts, pr: PullRequest, name: str, can: set[str]) -> str:
        known = {each: one.thread or one.id for one in pr.comments for each in (one.id, one.thread) if each}
        if name not in known:
            raise NotFound(f"{facts.id} has no discussion {name}", f"see them: ao review {facts.id}")
        if known[name] not in can:
            raise UsageError(
                f"{name} is a comment on the whole, which {facts.spec.scm} resolves for nobody",
                "answer it there; only discussions are resolved",
            )
        return known[name]

    async def request(self, session: str, people: Sequence[str], key: str | None = None) -> bool:
        """Ask people to look at a change; false: the forge has not heard of it yet."""
        facts, pr = pull_of(self.flow, session)
        names = tuple(dict.fromkeys(name.strip().removeprefix("@") for name in people))
        for name in names:
            if not _PERSON.fullmatch(name):
                raise UsageError(f"{name!r} is nobody's name", "write the name that his page has in its address")
        if not names:
            raise UsageError("nobody is named", "name somebody: --request USER")
        if facts.spec.scm == LOCAL:
            raise Conflict(
                f"the pull request of {session} is here, where nobody else sees it",
                f"have an agent judge it: ao review {session} --agent A",
            )
        _refuse_unless_open(facts, pr)
        event = self._event(facts, e.PeopleRequested(names), f"request:{session}:{key or uuid.uuid4().hex}")
        await self.flow.append(event)
        return await self._carried_out([f"request-review:{event.key}"])

    async def _carried_out(self, intents: Sequence[str]) -> bool:
        """Wait for what becomes of these; raises what the forge refused."""
        ends = {f"{intent}:{how}" for intent in intents for how in ("done", "failed")}
        seen: dict[str, Event] = {}
        changed, delayed = asyncio.Event(), asyncio.Event()

        def look(changes: Sequence[Change]) -> None:
            for event in (one.event for one in changes):
                if event.key in ends:
                    seen[event.key] = event
                elif isinstance(event.body, e.EffectDelayed) and event.key.startswith(tuple(intents)):
                    delayed.set()
            changed.set()

        self.flow.on_change.append(look)
        try:
            known = [await self.flow.store.event_by_key(key) for key in sorted(ends)]
            seen.update({event.key: event for event in known if event})
            async with asyncio.timeout(PATIENCE):
                while not _refused(seen) and len(seen) < len(intents):
                    if delayed.is_set():
                        return False
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return False
        finally:
            self.flow.on_change.remove(look)
        if why := _refused(seen):
            raise Conflict(why.error, why.remedy)
        return True

    def _event(self, facts: SessionFacts, body: e.Body, key: str) -> Event:
        return Event(body, self.flow.clock(), "person", key, facts.project, facts.id)


def _open(pr: PullRequest) -> set[str]:
    """Discussions that nobody has settled yet."""
    return {root for root, comments in pr.threads.items() if not settled(comments)}


def _refused(seen: Mapping[str, Event]) -> e.EffectFailed | None:
    return next((one.body for one in seen.values() if isinstance(one.body, e.EffectFailed)), None)


def _refuse_unless_open(facts: SessionFacts, pr: PullRequest) -> None:
    if pr.state != "open":
        raise Conflict(f"the pull request of {facts.id} is {pr.state}", f"see it: ao status {facts.id}")
