"""Resolve review threads and request reviews from people.

At a forge both are recorded first and then carried out (`changes/forge_sync/pull_request_actions.py`); the caller waits a
while for the result.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Mapping, Sequence

from agent_orchestrator.changes.reviews.reviews import find_pull_request, is_resolved
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.errors import Conflict, NotFound, UsageError

ANSWER_TIMEOUT = 40.0
"""Seconds after which the caller learns that the request is still pending, if the forge does not answer."""
_PERSON = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[\w.-]+)?(?:\[bot\])?")


class ReviewThreads:
    """Resolves threads, and requests reviews from people."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    async def resolve(
        self, session: str, named: Sequence[str], *, everything: bool = False, key: str | None = None
    ) -> bool:
        """Resolve threads, each named by its own id or that of a comment in it, or all.

        Return False if the forge has not answered yet. Raises `NotFound` for an unknown thread, and an error if the
        forge refuses.
        """
        facts, pr = find_pull_request(self.flow, session)
        _refuse_unless_open(facts, pr)
        local = not facts.has_remote_forge
        resolvable = {item.thread or item.id for item in pr.comments if local or item.thread}
        threads = (
            _unresolved_threads(pr) & resolvable
            if everything
            else {self._find_thread(facts, pr, name, resolvable) for name in named}
        )
        request_key = key or uuid.uuid4().hex
        events = [
            self._event(
                facts,
                e.ThreadSettled(thread, True) if local else e.ResolveRequested(thread),
                f"resolve:{session}:{thread}:{request_key}",
            )
            for thread in sorted(threads & _unresolved_threads(pr))
        ]
        await self.flow.append(*events)
        return local or await self._wait_for_results([f"resolve:{item.key}" for item in events])

    def _find_thread(self, facts: SessionFacts, pr: PullRequest, name: str, resolvable: set[str]) -> str:
        """Return the id of the thread that a name stands for.

        Raises `NotFound`, or `UsageError` if the forge cannot resolve it.
        """
        thread_by_name = {
            alias: comment.thread or comment.id
            for comment in pr.comments
            for alias in (comment.id, comment.thread)
            if alias
        }
        if name not in thread_by_name:
            raise NotFound(f"{facts.id} has no discussion {name}", f"see them: ao review {facts.id}")
        if thread_by_name[name] not in resolvable:
            raise UsageError(
                f"{name} is a comment on the whole, which {facts.spec.scm} resolves for nobody",
                "answer it there; only discussions are resolved",
            )
        return thread_by_name[name]

    async def request_reviews(self, session: str, people: Sequence[str], key: str | None = None) -> bool:
        """Request a review from people. Return False if the forge has not answered yet."""
        facts, pr = find_pull_request(self.flow, session)
        names = tuple(dict.fromkeys(name.strip().removeprefix("@") for name in people))
        for name in names:
            if not _PERSON.fullmatch(name):
                raise UsageError(f"{name!r} is nobody's name", "write the name that his page has in its address")
        if not names:
            raise UsageError("nobody is named", "name somebody: --request USER")
        if not facts.has_remote_forge:
            raise Conflict(
                f"the pull request of {session} is here, where nobody else sees it",
                f"have an agent judge it: ao review {session} --agent A",
            )
        _refuse_unless_open(facts, pr)
        event = self._event(facts, e.PeopleRequested(names), f"request:{session}:{key or uuid.uuid4().hex}")
        await self.flow.append(event)
        return await self._wait_for_results([f"request-review:{event.key}"])

    async def _wait_for_results(self, intents: Sequence[str]) -> bool:
        """Wait for the results of these intents.

        Return False if they are delayed or take too long. Raises `Conflict` with the forge's reason if one fails.
        """
        result_keys = {f"{intent}:{result}" for intent in intents for result in ("done", "failed")}
        results: dict[str, Event] = {}
        has_news, has_delay = asyncio.Event(), asyncio.Event()

        def collect(changes: Sequence[FactsChange]) -> None:
            """Collect the results among new events."""
            for event in (change.event for change in changes):
                if event.key in result_keys:
                    results[event.key] = event
                elif isinstance(event.body, e.EffectDelayed) and event.key.startswith(tuple(intents)):
                    has_delay.set()
            has_news.set()

        unsubscribe = self.flow.listeners.on_events(collect)
        try:
            earlier_events = [await self.flow.store.event_by_key(key) for key in sorted(result_keys)]
            results.update({event.key: event for event in earlier_events if event})
            async with asyncio.timeout(ANSWER_TIMEOUT):
                while not _first_failure(results) and len(results) < len(intents):
                    if has_delay.is_set():
                        return False
                    has_news.clear()
                    await has_news.wait()
        except TimeoutError:
            return False
        finally:
            unsubscribe()
        if refusal := _first_failure(results):
            raise Conflict(refusal.error, refusal.remedy)
        return True

    def _event(self, facts: SessionFacts, body: e.Body, key: str) -> Event:
        """Return an event of a person about a session."""
        return Event(body, self.flow.clock(), "person", key, facts.project, facts.id)


def _unresolved_threads(pr: PullRequest) -> set[str]:
    """Return the ids of threads that are not resolved."""
    return {root for root, comments in pr.threads.items() if not is_resolved(comments)}


def _first_failure(results: Mapping[str, Event]) -> e.EffectFailed | None:
    """Return the first failure among the results, or None."""
    return next((event.body for event in results.values() if isinstance(event.body, e.EffectFailed)), None)


def _refuse_unless_open(facts: SessionFacts, pr: PullRequest) -> None:
    """Raise `Conflict` unless the pull request is open."""
    if pr.state != "open":
        raise Conflict(f"the pull request of {facts.id} is {pr.state}", f"see it: ao status {facts.id}")
