"""Carry out actions on pull requests: push, open, make ready, merge at the forge, reply.

Each function is an effect and may be repeated after a crash. A forge does not know the daemon's keys, so each effect
first checks whether it was done. Actions that a change needs are retried as long as it needs them; actions that a
person asked for are given up when the forge refuses them.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.changes.forge_sync.backoff import is_host_error
from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.merge_cleanup import keeps_branch
from agent_orchestrator.changes.merge.commit_message import merge_title
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, RetryLater, retry_until_done
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.protocols.forge import (
    SCM,
    Merged,
    MergeOptions,
    MergeQueued,
    PullRequestSpec,
    PullRequestState,
    Unmergeable,
)
from agent_orchestrator.protocols.text import neutralize_forge_commands, without_commands
from agent_orchestrator.sessions.creation.new_session import NewSession, PullRequestClaim
from agent_orchestrator.sessions.part import Core, Part

_ADDRESS = re.compile(r"https?://[^/]+/(.+?)/(?:-/)?(?:pull|merge_requests)/(\d+)(?:[/?#].*)?")
PUSH_TIMEOUT = 600.0
"""Time limit of a push or fetch, in seconds."""
QUEUE_RECHECK_SECONDS = 60.0
"""Seconds after which a forge that merges from its own queue is read again for its progress; webhooks report it too."""
CHECKS_RECHECK_SECONDS = 2.0
"""Seconds after which the checks of a change that is to merge are looked up again; that needs no request."""
UNCHECKED_REASON = "its checks have not passed yet (--force lands it without them)"
MOVED_REASON = "its branch moved meanwhile; what is there now was not checked"


class PullRequestActions(Part):
    """The effects of pull requests that the forge's plugin carries out."""

    def __init__(self, core: Core, repositories: ForgeConnections) -> None:
        super().__init__(core)
        self.connections = repositories
        self._merge_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """A lock per session, so that decisions about its merge are made one at a time."""

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        needed = {"push": self.push, "open-pr": self.open, "ready-pr": self.ready}
        needed_effects = {kind: Effect(retry_until_done(run)) for kind, run in needed.items()}
        requested = {
            "reply": self.reply,
            "close-pr": self.close_pull_request,
            "make-ready": self.ready,
            "rerun": self.rerun,
        }
        requested_effects = {kind: Effect(retry_until_done(run, is_host_error)) for kind, run in requested.items()}
        awaited = {"resolve": self.resolve, "request-review": self.request_review}
        awaited_effects = {
            kind: Effect(retry_until_done(run, lambda error: error.retryable)) for kind, run in awaited.items()
        }
        return {**needed_effects, **requested_effects, **awaited_effects}

    def _event(self, facts: SessionFacts, body: e.Body, key: str) -> Event:
        """Return an event of the session's forge."""
        return Event(body, self.clock(), facts.spec.scm, key, facts.project, facts.id)

    def _unrecorded(self, scm: SCM, event: Event) -> list[Event]:
        """Return the event, unless the forge keeps its data in the log: then it has recorded it itself."""
        return [event] if scm.hosted else []

    async def _forge_of(self, facts: SessionFacts) -> SCM:
        """Return the plugin of the session's forge."""
        return await self.connections.trusted_forge(facts.project, facts.spec.scm)

    async def _read_pull(self, facts: SessionFacts) -> tuple[SCM, PullRequestState, PullRequest]:
        """Return a session's forge, pull request as read now, and pull request as known.

        Raises `Conflict` if it is gone.
        """
        scm, pr = await self._forge_of(facts), facts.pr
        assert pr is not None
        pulls = await scm.read([pr.forge_id])
        if not pulls:
            raise Conflict(f"pull request #{pr.number} is not at {scm.repo} any more", f"see it there: {pr.url}")
        return scm, pulls[0], pr

    # -- continuing a pull request -------------------------------------------------------------------------------------

    async def claim(self, project: ProjectConfig, name: str, request: NewSession) -> PullRequestClaim:
        """Turn a request to continue a pull request into one for its branch, with the first facts of the session.

        Fetches the branch. Raises `Conflict` if the pull request is not open, comes from a fork, or has a session.
        """
        scm = await self.connections.trusted_forge(project.id, name)
        pull = await scm.get(_pull_number(request.pr.strip(), scm.repo))
        self._refuse_claim(project, pull)
        url, env = scm.push_url()
        refspec = f"+refs/heads/{pull.branch}:refs/remotes/origin/{pull.branch}"
        await Git(self.host, project.path).fetch(url, [refspec], timeout=PUSH_TIMEOUT, env=env)
        opened = e.PrOpened(pull.number, pull.title, pull.base, pull.draft, pull.url, pull.id)
        continued = replace(
            request,
            pr="",
            branch=pull.branch,
            title=request.title or pull.title,
            prompt=request.prompt or f"Continue pull request #{pull.number}: {pull.title}",
            base=request.base or pull.base,
        )
        return PullRequestClaim(continued, (e.WorkPushed(pull.head), opened))

    def _refuse_claim(self, project: ProjectConfig, pull: PullRequestState) -> None:
        """Raise `Conflict` if a session cannot continue this pull request."""
        if pull.state != "open":
            raise Conflict(f"pull request #{pull.number} is {pull.state}", "start a new session instead")
        if pull.fork:
            raise Conflict(
                f"the branch of pull request #{pull.number} is in {pull.fork}",
                "fetch it and continue it by --branch; what is not yours to push is not pushed",
            )
        for facts in self.flow.sessions.values():
            if facts.project == project.id and facts.pr and facts.pr.permanent_id == pull.id and not facts.stopped:
                remedy = f"send it a message, or stop it first: ao stop {facts.id}"
                raise Conflict(f"{facts.id} works on pull request #{pull.number}", remedy)

    # -- pushing and discussing ----------------------------------------------------------------------------------------

    async def push(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Push the branch to the forge; commits that were pushed by others and are not in the branch are never overwritten."""
        facts = self.flow.sessions[intent.session]
        head = facts.head or ""
        merge_events = await self._cancel_stale_merge(facts, intent, head)
        if any(isinstance(event.body, e.PrMerged | e.PrClosed) for event in merge_events):
            return merge_events
        scm = await self._forge_of(facts)
        url, env = scm.push_url()
        git = Git(self.host, Path(facts.spec.repo))
        last_pushed = facts.pushed_head
        try:
            try:
                await git.push(url, facts.branch, head, expected=last_pushed, env=env, timeout=PUSH_TIMEOUT)
            except GitFailed as error:
                remote_head = await git.remote_head(url, facts.branch, env=env, timeout=PUSH_TIMEOUT)
                if remote_head != head and not await self._contains(git, head, remote_head):
                    raise _branch_conflict(error, facts, last_pushed, remote_head) from None
                if remote_head != head:  # the branch contains what others pushed
                    await git.push(url, facts.branch, head, expected=remote_head, env=env, timeout=PUSH_TIMEOUT)
        except GitFailed as error:
            raise _push_error(error, facts.branch, scm.repo) from None
        return [*merge_events, self._event(facts, e.WorkPushed(head), f"{intent.key}:done")]

    async def _cancel_stale_merge(self, facts: SessionFacts, intent: Intent, head: str) -> list[Event]:
        """Stop a pending merge of another commit at the forge before the branch moves, because the forge would merge what is pushed.

        Return the events for that.
        """
        request = facts.pr.merge_request if facts.pr else None
        if request is None or request.head == head:
            return []
        scm, pull, _ = await self._read_pull(facts)
        if pull.state != "open":
            return self._ended_events(facts, intent, pull)
        if pull.queued:
            await scm.cancel_merge(pull)
        return [self._event(facts, e.LandingFailed(MOVED_REASON, "moved"), f"{intent.key}:moved")]

    async def _contains(self, git: Git, head: str, other: str | None) -> bool:
        """Return whether a commit contains another; False if the other is not in the repository here."""
        try:
            return other is not None and await git.is_ancestor(other, head)
        except GitFailed:  # the commit is not in the repository here
            return False

    async def open(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Open a pull request for the branch; it is a draft until its agent is done."""
        facts = self.flow.sessions[intent.session]
        scm = await self._forge_of(facts)
        title = neutralize_forge_commands(facts.spec.title) if scm.hosted else facts.spec.title
        pull = await scm.open(
            PullRequestSpec(facts.branch, facts.base, title, _pull_request_body(facts), session=facts.id)
        )
        body = e.PrOpened(pull.number, pull.title, pull.base, pull.draft, pull.url, pull.id)
        return self._unrecorded(scm, self._event(facts, body, f"{intent.key}:done"))

    async def ready(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Mark the pull request as ready, because the agent is done."""
        facts = self.flow.sessions[intent.session]
        scm, pull, _ = await self._read_pull(facts)
        if pull.draft and pull.state == "open":
            await scm.ready(pull)
        return self._unrecorded(scm, self._event(facts, e.PrReady(), f"{intent.key}:done"))

    async def reply(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Post the agent's answer at the forge, in the same thread if that still exists."""
        facts = self.flow.sessions[intent.session]
        if not facts.has_remote_forge or facts.pr is None:
            return []
        scm, pull, _ = await self._read_pull(facts)
        text, key = neutralize_forge_commands(str(intent.args["body"])), str(intent.args["comment"])
        thread = intent.args.get("thread")
        is_known = any(comment.thread == thread for comment in pull.comments)
        await (scm.reply(pull, str(thread), text, key) if thread and is_known else scm.comment(pull, text, key))
        return []

    async def resolve(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Resolve a thread at the forge for a person. Raises `Conflict` if it is gone."""
        facts, thread = self.flow.sessions[intent.session], str(intent.args["thread"])
        scm, pull, _ = await self._read_pull(facts)
        resolved_states = [comment.resolved for comment in pull.comments if comment.thread == thread]
        if not resolved_states and "comments" not in pull.unread:
            raise Conflict(f"the discussion is gone from #{pull.number}", f"see it there: {pull.url}")
        if not resolved_states or not all(resolved_states):
            await scm.resolve(thread)
        now = self.clock()
        settled = e.ThreadSettled(thread, True)
        return [Event(settled, now, "person", f"{intent.key}:done", facts.project, facts.id)]

    async def request_review(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Request a review from these people. Raises `Conflict` if the pull request is not open."""
        facts, people = self.flow.sessions[intent.session], tuple(intent.args["people"])
        scm, pull, _ = await self._read_pull(facts)
        if pull.state != "open":
            raise Conflict(f"pull request #{pull.number} is {pull.state} there", f"see it there: {pull.url}")
        await scm.request_review(pull, people)
        return [self._event(facts, e.PeopleAsked(people), f"{intent.key}:done")]

    async def close_pull_request(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Close the pull request, because a person gave the change up."""
        scm, pull, _ = await self._read_pull(self.flow.sessions[intent.session])
        if pull.state == "open":
            await scm.close(pull)
        return []

    async def rerun(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Run the failed checks again."""
        scm, pull, _ = await self._read_pull(self.flow.sessions[intent.session])
        await scm.rerun(pull)
        return []

    # -- merging -------------------------------------------------------------------------------------------------------

    async def merge_change(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Merge the requested commit at the forge, or hand it to the forge's own merge queue."""
        async with self._merge_locks[intent.session]:
            return await self._merge(intent)

    async def _merge(self, intent: Intent) -> Sequence[Event]:
        """Merge the requested commit for a caller that holds the session's lock; return the events, or raise `RetryLater` to wait."""
        facts = self.flow.sessions[intent.session]
        handed_over = (
            facts.pr and facts.pr.merge_request and facts.pr.merge_request.wait_reason not in ("", UNCHECKED_REASON)
        )
        check_failure = self._check_blocker(facts, facts.pr, intent) if facts.pr and not handed_over else []
        try:
            scm, pull, pr = await self._read_pull(facts)
            if pr.merge_request is None:
                return []
            if pull.state != "open":
                return self._ended_events(facts, intent, pull)
            if {pull.head, facts.head} != {pr.merge_request.head}:
                if pull.queued:
                    await scm.cancel_merge(pull)
                return [self._event(facts, e.LandingFailed(MOVED_REASON, "moved"), f"{intent.key}:failed")]
            if check_failure:
                if pull.queued:
                    await scm.cancel_merge(pull)
                return check_failure
            if handed_over and not pull.queued:
                reason = f"the forge took it out of its queue{f': {pull.blocked}' if pull.blocked else ''}"
                return [self._event(facts, e.LandingFailed(reason, "forge"), f"{intent.key}:failed")]
            if pull.queued:
                raise self._retry_later(facts, "the forge lands it when its turn has come")
            title = merge_title(pr.title, pr.number)
            merging = MergeOptions(
                pr.merge_request.head,
                pr.merge_request.strategy,
                title,
                delete_branch=not keeps_branch(pr.merge_request),
            )
            outcome = await scm.merge(pull, merging)
        except AoError as error:
            if error.retryable:
                raise
            return [self._event(facts, e.LandingFailed(str(error), "error"), f"{intent.key}:failed")]
        match outcome:
            case Merged():
                return self._merged_events(facts, intent, pull.head, outcome.commit)
            case MergeQueued():
                raise self._retry_later(facts, outcome.reason)
            case Unmergeable():
                cause = "moved" if outcome.moved else "forge"
                return [self._event(facts, e.LandingFailed(outcome.reason, cause), f"{intent.key}:failed")]

    def _check_blocker(self, facts: SessionFacts, pr: PullRequest, intent: Intent) -> list[Event]:
        """Return the event that the checks hold the merge; raise `RetryLater` while they run.

        No change merges before its checks pass, even where the forge would allow it. What blocks the merge at the forge
        is left to the forge.
        """
        request = pr.merge_request
        if request is None or request.force or request.head != facts.head or pr.state != "open" or pr.blocked:
            return []
        if blocker := pr.merge_blocker(request.head):
            failed = e.LandingFailed(blocker, "checks")
            return [self._event(facts, failed, f"{intent.key}:failed")]
        if not pr.is_green(request.head):
            raise self._retry_later(facts, UNCHECKED_REASON, CHECKS_RECHECK_SECONDS)
        return []

    async def withdraw_merge(self, session: str, key: str) -> None:
        """Withdraw a merge request, so that the forge does not merge the change.

        Raises `Conflict` if it is not to merge, or has merged.
        """
        async with self._merge_locks[session]:
            facts = self.flow.sessions[session]
            if facts.pr is None or facts.pr.merge_request is None:
                raise Conflict(f"{session} is not to land", "see what is: ao queue")
            scm, pull, _ = await self._read_pull(facts)
            if pull.state == "merged":
                raise Conflict(f"{session} has just landed", f"see it there: {pull.url}")
            if pull.queued:
                await scm.cancel_merge(pull)
            called_off = e.LandingFailed("a person called it off", "called-off")
            now = self.clock()
            await self.flow.append(Event(called_off, now, "person", key, facts.project, session))

    def _ended_events(self, facts: SessionFacts, intent: Intent, pull: PullRequestState) -> list[Event]:
        """Return the events for a pull request that is not open any more."""
        if pull.state == "merged":
            return self._merged_events(facts, intent, pull.head, pull.merged_as or "")
        return [self._event(facts, e.PrClosed("it was closed at the forge"), f"{intent.key}:closed")]

    def _merged_events(self, facts: SessionFacts, intent: Intent, head: str, commit: str) -> list[Event]:
        """Return the event that the change has merged."""
        request = facts.pr.merge_request if facts.pr else None
        strategy, keep_branch = request.strategy if request else "squash", keeps_branch(request)
        merged = e.PrMerged(
            commit, "", head, strategy, keep_branch=keep_branch, remove_there=bool(request and not keep_branch)
        )
        return [self._event(facts, merged, f"{intent.key}:done")]

    def _retry_later(self, facts: SessionFacts, reason: str, after: float = QUEUE_RECHECK_SECONDS) -> RetryLater:
        """Return the exception to wait with, with an event if the reason is new."""
        last_reason = facts.pr.merge_request.wait_reason if facts.pr and facts.pr.merge_request else reason
        key = f"landing-waits:{facts.id}:{self.clock():.6f}"
        events = [self._event(facts, e.LandingWaits(reason), key)] if last_reason != reason else []
        return RetryLater(after, *events)


def _pull_number(reference: str, repo: str) -> int:
    """Return the number of a pull request, given as a number or an address. Raises `UsageError`."""
    address = _ADDRESS.fullmatch(reference)
    if address and not f"/{address[1]}".casefold().endswith(f"/{repo}".casefold()):
        raise UsageError(f"{reference} is not in {repo}", "name the project that it belongs to: -p P")
    text = address[2] if address else reference.lstrip("#!")
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{reference!r} is no pull request", "write its number or its address: --pr 42")
    return int(text)


def _branch_conflict(
    error: GitFailed, facts: SessionFacts, last_pushed: str | None, remote_head: str | None
) -> AoError:
    """Return the error for a push that the forge's branch does not allow: it was deleted there, or has other commits."""
    if remote_head is None and last_pushed is not None:
        return Conflict(f"somebody deleted {facts.branch} at the forge", "restore it there, then it is pushed again")
    if remote_head is not None and remote_head != last_pushed:
        pull_command = quote(f"git pull --rebase origin {quote(facts.branch)}")
        return Conflict(
            f"somebody pushed {remote_head[:12]} to {facts.branch}",
            f"let the agent take it in: ao send {facts.id} {pull_command}, then it is pushed again",
        )
    return error


def _push_error(error: GitFailed, branch: str, repo: str) -> AoError:
    """Return the error for a failed push, with its cause."""
    output = " ".join(error.stderr.lower().split())
    problem = f"Git may not push {branch} to {repo}"
    if any(phrase in output for phrase in ("authentication failed", "could not read username", "error: 401")):
        return Denied(f"{problem}: the token is not accepted", "ao doctor says what is wrong with it")
    if any(phrase in output for phrase in ("error: 403", "denied")):
        return Denied(f"{problem}: it is forbidden", "ao doctor says what the token lacks")
    if "not found" in output or "error: 404" in output:
        return NotFound(f"{problem}: there is no such repository, or the token may not see it", "see ao doctor")
    if any(phrase in output for phrase in ("unable to access", "rpc failed", "hung up", "timed out", "early eof")):
        reason = error.text.partition("fatal: ")[2] or error.text
        return Temporary(f"{branch} cannot be pushed to {repo}: {reason}", "it is tried again by itself")
    return error


def _pull_request_body(facts: SessionFacts) -> str:
    """Return the pull request's text: the agent's summary, and the task or the issue that it closes."""
    parts = [
        neutralize_forge_commands(facts.done_summary or ""),
        without_commands(facts.spec.prompt) if not facts.spec.issue else "",
    ]
    if facts.spec.issue and facts.spec.issue.isdigit():
        parts.append(f"Closes #{facts.spec.issue}")
    return "\n\n".join(part for part in parts if part)
