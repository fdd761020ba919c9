"""A session's change at a forge, carried out: pushed, given a pull request, made ready, landed, answered in.

Each function is an effect and may be repeated after a crash. A forge does not know our keys; so each looks first whether it was done.
What a change needs is tried again as long as it needs it, whatever the forge says; what somebody asked for is given up when the forge
says that it cannot be.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.changes.forge_sync.backoff import of_the_host
from agent_orchestrator.changes.forge_sync.connections import LOCAL, Repositories
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Again, Effect, Run, patient
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.protocols.forge import SCM, Merged, Merging, PullSpec, PullState, Unmergeable, Waiting
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import without_commands, without_orders
from agent_orchestrator.sessions.sessions import Claim

_ADDRESS = re.compile(r"https?://[^/]+/(.+?)/(?:-/)?(?:pull|merge_requests)/(\d+)(?:[/?#].*)?")
PUSH_WITHIN = 600.0
LOOK_AGAIN = 60.0
"""Seconds after which a forge that lands by itself is asked how far it is; it also tells by itself."""
LOOK_AT_CHECKS = 2.0
"""Seconds after which it is seen whether the checks of what is to land have passed; that asks nobody."""
UNCHECKED = "its checks have not passed yet (--force lands it without them)"
MOVED = "its branch moved meanwhile; what is there now was not checked"


class ForgeChanges:
    """The effects of pull requests that are not local."""

    def __init__(self, flow: Flow, host: Host, repositories: Repositories) -> None:
        self.flow = flow
        self.host = host
        self.repositories = repositories
        self._deciding: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Of a session: whether it lands is decided by one at a time."""

    def effects(self, local: Mapping[str, Effect]) -> dict[str, Effect]:
        """By kind of intent: the local forge's for the sessions that it serves, these for the others."""
        remote = {
            "open-pr": patient(self.open),
            "ready-pr": patient(self.ready),
            "land": patient(self.land, of_the_host),
        }
        both = {kind: Effect(self._either(local[kind].run, run)) for kind, run in remote.items()}
        asked = {"reply": self.reply, "close-pr": self.close, "make-ready": self.ready, "rerun": self.rerun}
        of_asked = {kind: Effect(patient(run, of_the_host)) for kind, run in asked.items()}
        waited_for = {"resolve": self.resolve, "request-review": self.request_review}
        of_waited = {kind: Effect(patient(run, lambda error: error.retryable)) for kind, run in waited_for.items()}
        return {**local, **both, **of_asked, **of_waited, "push": Effect(patient(self.push))}

    def _either(self, local: Run, remote: Run) -> Run:
        async def run(intent: Intent, attempts: int) -> Sequence[Event]:
            facts = self.flow.sessions[intent.session]
            return await (local if facts.spec.scm == LOCAL else remote)(intent, attempts)

        return run

    def _event(self, facts: SessionFacts, body: e.Body, key: str) -> Event:
        return Event(body, self.flow.clock(), facts.spec.scm, key, facts.project, facts.id)

    async def _scm(self, facts: SessionFacts) -> SCM:
        return await self.repositories.reach(facts.project, facts.spec.scm)

    async def _pull(self, facts: SessionFacts) -> tuple[SCM, PullState, PullRequest]:
        scm, pr = await self._scm(facts), facts.pr
        assert pr is not None
        found = await scm.read([pr.node])
        if not found:
            raise Conflict(f"pull request #{pr.number} is not at {scm.repo} any more", f"see it there: {pr.url}")
        return scm, found[0], pr

    # -- taken over ----------------------------------------------------------------------------------------------------

    async def claim(self, project: ProjectConfig, name: str, request: Mapping[str, Any]) -> Claim:
        """A request for a pull request at the forge, as one for its branch, and what is known of it from the start."""
        scm = await self.repositories.reach(project.id, name)
        pull = await scm.get(_number(str(request["pr"]).strip(), scm.repo))
        self._refuse_claim(project, pull)
        url, env = scm.push_url()
        here = f"+refs/heads/{pull.branch}:refs/remotes/origin/{pull.branch}"
        await Git(self.host, project.path).fetch(url, [here], timeout=PUSH_WITHIN, env=env)
        task = f"Continue pull request #{pull.number}: {pull.title}"
        given = {key: value for key, value in request.items() if key != "pr"}
        words = {"title": pull.title, "prompt": task, "base": pull.base}
        opened = e.PrOpened(pull.number, pull.title, pull.base, pull.draft, pull.url, pull.id)
        return {**words, **{k: v for k, v in given.items() if v}, "branch": pull.branch}, (
            e.WorkPushed(pull.head),
            opened,
        )

    def _refuse_claim(self, project: ProjectConfig, pull: PullState) -> None:
        if pull.state != "open":
            raise Conflict(f"pull request #{pull.number} is {pull.state}", "start a new session instead")
        if pull.fork:
            raise Conflict(
                f"the branch of pull request #{pull.number} is in {pull.fork}",
                "fetch it and continue it by --branch; what is not yours to push is not pushed",
            )
        for facts in self.flow.sessions.values():
            if facts.project == project.id and facts.pr and facts.pr.node == pull.id and not facts.stopped:
                remedy = f"send it a message, or stop it first: ao stop {facts.id}"
                raise Conflict(f"{facts.id} works on pull request #{pull.number}", remedy)

    # -- on its way there ----------------------------------------------------------------------------------------------

    async def push(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Bring the branch to the forge; one that somebody else moved there is left alone."""
        facts = self.flow.sessions[intent.session]
        head = facts.head or ""
        told = await self._unpinned(facts, intent, head)
        if any(isinstance(one.body, e.PrMerged | e.PrClosed) for one in told):
            return told
        scm = await self._scm(facts)
        url, env = scm.push_url()
        git = Git(self.host, Path(facts.spec.repo))
        known = facts.pushed
        try:
            try:
                await git.push(url, facts.branch, head, known=known, env=env, timeout=PUSH_WITHIN)
            except GitFailed as error:
                there = await git.remote_head(url, facts.branch, env=env, timeout=PUSH_WITHIN)
                if there != head and not await self._contains(git, head, there):
                    raise _why(error, facts, known, there) from None
                if there != head:  # the agent has taken in what somebody else pushed
                    await git.push(url, facts.branch, head, known=there, env=env, timeout=PUSH_WITHIN)
        except GitFailed as error:
            raise _unpushed(error, facts.branch, scm.repo) from None
        return [*told, self._event(facts, e.WorkPushed(head), f"{intent.key}:done")]

    async def _unpinned(self, facts: SessionFacts, intent: Intent, head: str) -> list[Event]:
        """Before the branch moves: a forge that is to land what was there lands it no more, for it would land what comes."""
        asked = facts.pr.landing if facts.pr else None
        if asked is None or asked.head == head:
            return []
        scm, pull, _ = await self._pull(facts)
        if pull.state != "open":
            return self._over(facts, intent, pull)
        if pull.queued:
            await scm.call_off(pull)
        return [self._event(facts, e.LandingFailed(MOVED, "moved"), f"{intent.key}:moved")]

    async def _contains(self, git: Git, head: str, there: str | None) -> bool:
        try:
            return there is not None and await git.is_ancestor(there, head)
        except GitFailed:  # nobody here has that commit
            return False

    async def open(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Give the branch a pull request; a draft until its agent is done."""
        facts = self.flow.sessions[intent.session]
        scm = await self._scm(facts)
        pull = await scm.open(PullSpec(facts.branch, facts.base, without_orders(facts.spec.title), _body(facts)))
        body = e.PrOpened(pull.number, pull.title, pull.base, pull.draft, pull.url, pull.id)
        return [self._event(facts, body, f"{intent.key}:done")]

    async def ready(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """The agent is done: no draft any more."""
        facts = self.flow.sessions[intent.session]
        scm, pull, _ = await self._pull(facts)
        if pull.draft and pull.state == "open":
            await scm.ready(pull)
        return [self._event(facts, e.PrReady(), f"{intent.key}:done")]

    async def reply(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """What the agent answered is said at the forge, in the same discussion."""
        facts = self.flow.sessions[intent.session]
        if facts.spec.scm == LOCAL or facts.pr is None:
            return []
        scm, pull, _ = await self._pull(facts)
        text, key = without_orders(str(intent.args["body"])), str(intent.args["comment"])
        thread = intent.args.get("thread")
        known = any(one.thread == thread for one in pull.comments)
        await (scm.reply(pull, str(thread), text, key) if thread and known else scm.comment(pull, text, key))
        return []

    async def resolve(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """A person settled a discussion."""
        facts, thread = self.flow.sessions[intent.session], str(intent.args["thread"])
        scm, pull, _ = await self._pull(facts)
        there = [one.resolved for one in pull.comments if one.thread == thread]
        if not there and "comments" not in pull.unread:
            raise Conflict(f"the discussion is gone from #{pull.number}", f"see it there: {pull.url}")
        if not there or not all(there):
            await scm.resolve(thread)
        now = self.flow.clock()
        done = e.ThreadSettled(thread, True)
        return [Event(done, now, "person", f"{intent.key}:done", facts.project, facts.id)]

    async def request_review(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """A person wants these people to look at it; who was asked already is not asked again."""
        facts, people = self.flow.sessions[intent.session], tuple(intent.args["people"])
        scm, pull, _ = await self._pull(facts)
        if pull.state != "open":
            raise Conflict(f"pull request #{pull.number} is {pull.state} there", f"see it there: {pull.url}")
        await scm.request_review(pull, people)
        return [self._event(facts, e.PeopleAsked(people), f"{intent.key}:done")]

    async def close(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """A person gave the change up."""
        scm, pull, _ = await self._pull(self.flow.sessions[intent.session])
        if pull.state == "open":
            await scm.close(pull)
        return []

    async def rerun(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Somebody wants the checks to run again; those that failed are."""
        scm, pull, _ = await self._pull(self.flow.sessions[intent.session])
        await scm.rerun(pull)
        return []

    # -- landing -------------------------------------------------------------------------------------------------------

    async def land(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Land at the forge, the exact commit that may, or leave it to the forge's own queue."""
        async with self._deciding[intent.session]:
            return await self._land(intent)

    async def _land(self, intent: Intent) -> Sequence[Event]:
        facts = self.flow.sessions[intent.session]
        handed_over = facts.pr and facts.pr.landing and facts.pr.landing.waits not in ("", UNCHECKED)
        red = self._unchecked(facts, facts.pr, intent) if facts.pr and not handed_over else []
        try:
            scm, pull, pr = await self._pull(facts)
            if pr.landing is None:
                return []
            if pull.state != "open":
                return self._over(facts, intent, pull)
            if {pull.head, facts.head} != {pr.landing.head}:
                if pull.queued:
                    await scm.call_off(pull)
                return [self._event(facts, e.LandingFailed(MOVED, "moved"), f"{intent.key}:failed")]
            if red:
                if pull.queued:
                    await scm.call_off(pull)
                return red
            if handed_over and not pull.queued:
                reason = f"the forge took it out of its queue{f': {pull.blocked}' if pull.blocked else ''}"
                return [self._event(facts, e.LandingFailed(reason, "forge"), f"{intent.key}:failed")]
            if pull.queued:
                raise self._waits(facts, "the forge lands it when its turn has come")
            title = f"{without_orders(pr.title)} (#{pr.number})"
            how = Merging(pr.landing.head, pr.landing.strategy, title, delete_branch=pr.landing.delete_after)
            outcome = await scm.merge(pull, how)
        except AoError as error:
            if error.retryable:
                raise
            return [self._event(facts, e.LandingFailed(str(error), "error"), f"{intent.key}:failed")]
        match outcome:
            case Merged():
                return self._landed(facts, intent, pull.head, outcome.commit)
            case Waiting():
                raise self._waits(facts, outcome.reason)
            case Unmergeable():
                cause = "moved" if outcome.moved else "forge"
                return [self._event(facts, e.LandingFailed(outcome.reason, cause), f"{intent.key}:failed")]

    def _unchecked(self, facts: SessionFacts, pr: PullRequest, intent: Intent) -> list[Event]:
        """Nothing lands before its checks, also where the forge would let it; what the forge itself demands is the forge's matter."""
        asked = pr.landing
        if asked is None or asked.force or asked.head != facts.head or pr.state != "open" or pr.blocked:
            return []
        if blocker := pr.merge_blocker(asked.head):
            failed = e.LandingFailed(blocker, "checks")
            return [self._event(facts, failed, f"{intent.key}:failed")]
        if not pr.green(asked.head):
            raise self._waits(facts, UNCHECKED, LOOK_AT_CHECKS)
        return []

    async def call_off(self, session: str, key: str) -> None:
        """A person takes back his word that it may land: the forge lands it by itself no more."""
        async with self._deciding[session]:
            facts = self.flow.sessions[session]
            if facts.pr is None or facts.pr.landing is None:
                raise Conflict(f"{session} is not to land", "see what is: ao queue")
            scm, pull, _ = await self._pull(facts)
            if pull.state == "merged":
                raise Conflict(f"{session} has just landed", f"see it there: {pull.url}")
            if pull.queued:
                await scm.call_off(pull)
            off = e.LandingFailed("a person called it off", "called-off")
            now = self.flow.clock()
            await self.flow.append(Event(off, now, "person", key, facts.project, session))

    def _over(self, facts: SessionFacts, intent: Intent, pull: PullState) -> list[Event]:
        if pull.state == "merged":
            return self._landed(facts, intent, pull.head, pull.merged_as or "")
        return [self._event(facts, e.PrClosed("it was closed at the forge"), f"{intent.key}:closed")]

    def _landed(self, facts: SessionFacts, intent: Intent, head: str, commit: str) -> list[Event]:
        asked = facts.pr.landing if facts.pr else None
        how, keep = (asked.strategy, not asked.delete_after) if asked else ("squash", False)
        merged = e.PrMerged(commit, "", head, how, keep_branch=keep, remove_there=bool(asked and not keep))
        return [self._event(facts, merged, f"{intent.key}:done")]

    def _waits(self, facts: SessionFacts, reason: str, after: float = LOOK_AGAIN) -> Again:
        known = facts.pr.landing.waits if facts.pr and facts.pr.landing else reason
        key = f"landing-waits:{facts.id}:{self.flow.clock():.6f}"
        told = [self._event(facts, e.LandingWaits(reason), key)] if known != reason else []
        return Again(after, *told)


def _number(written: str, repo: str) -> int:
    """The number of a pull request, written as such or as its address."""
    address = _ADDRESS.fullmatch(written)
    if address and not f"/{address[1]}".casefold().endswith(f"/{repo}".casefold()):
        raise UsageError(f"{written} is not in {repo}", "name the project that it belongs to: -p P")
    text = address[2] if address else written.lstrip("#!")
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{written!r} is no pull request", "write its number or its address: --pr 42")
    return int(text)


def _why(error: GitFailed, facts: SessionFacts, known: str | None, there: str | None) -> AoError:
    if there is None and known is not None:
        return Conflict(f"somebody deleted {facts.branch} at the forge", "restore it there, then it is pushed again")
    if there is not None and there != known:
        pull = quote(f"git pull --rebase origin {quote(facts.branch)}")
        return Conflict(
            f"somebody pushed {there[:12]} to {facts.branch}",
            f"let the agent take it in: ao send {facts.id} {pull}, then it is pushed again",
        )
    return error


def _unpushed(error: GitFailed, branch: str, repo: str) -> AoError:
    """Why Git could not push, in words."""
    said = " ".join(error.stderr.lower().split())
    what = f"Git may not push {branch} to {repo}"
    if any(words in said for words in ("authentication failed", "could not read username", "error: 401")):
        return Denied(f"{what}: the token is not accepted", "ao doctor says what is wrong with it")
    if any(words in said for words in ("error: 403", "denied")):
        return Denied(f"{what}: it is forbidden", "ao doctor says what the token lacks")
    if "not found" in said or "error: 404" in said:
        return NotFound(f"{what}: there is no such repository, or the token may not see it", "see ao doctor")
    if any(words in said for words in ("unable to access", "rpc failed", "hung up", "timed out", "early eof")):
        reason = error.text.partition("fatal: ")[2] or error.text
        return Temporary(f"{branch} cannot be pushed to {repo}: {reason}", "it is tried again by itself")
    return error


def _body(facts: SessionFacts) -> str:
    """What the pull request says: the task, and the issue that it closes."""
    parts = [without_orders(facts.done or ""), without_commands(facts.spec.prompt) if not facts.spec.issue else ""]
    if facts.spec.issue and facts.spec.issue.isdigit():
        parts.append(f"Closes #{facts.spec.issue}")
    return "\n\n".join(part for part in parts if part)
