"""Act on a change for a person: review it, comment on lines, request its merge, close it, revert it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes import merge as landing
from agent_orchestrator.changes.checks.log_follower import follow_log
from agent_orchestrator.changes.reviews.new_review import NewComment
from agent_orchestrator.config.projects.projects import NO_CONTEXT
from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import (
    HAS_WRITE_ACCESS,
    LOCAL_PERSON,
    TextAuthor,
    approval_reason,
    author_kind,
    is_trusted_text,
)
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.pull_request import (
    PASSING_STATES,
    UNFINISHED_STATES,
    CheckRun,
    Comment,
    PullRequest,
    Review,
)
from agent_orchestrator.core.reactions import KINDS_WITHOUT_CHANGE
from agent_orchestrator.errors import Conflict, NotFound, UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols.text import make_visible
from agent_orchestrator.sessions.creation.new_session import NewSession
from agent_orchestrator.sessions.followers import Followers
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.permissions.autorun_files import is_sensitive
from agent_orchestrator.sessions.session_view import SessionViews, check_json, pr_json
from agent_orchestrator.sessions.sessions import Sessions

REVIEW_VERDICTS = ("approved", "changes_requested", "commented")
STRATEGIES = ("squash", "merge", "rebase")
MERGE_TIMEOUT = 3600.0
"""Longest wait for a merge, in seconds."""
OPEN_TIMEOUT = 30.0
"""Longest wait for a revert's pull request, in seconds."""


class Reviews(Part):
    """Reviews of changes, and requests about their pull requests."""

    source = "person"

    def __init__(self, core: Core, sessions: Sessions, followers: Followers, views: SessionViews) -> None:
        super().__init__(core)
        self.sessions = sessions
        self.followers = followers
        self.views = views
        self._revert_lock = asyncio.Lock()

    def view(self, session: str, *, to_agent: bool = False) -> dict[str, Any]:
        """Return the pull request with its checks, reviews and threads.

        For an agent the texts that wait for a person's approval are left out.
        """
        facts, pr = self._find_pull_request(session)
        trusted = self._trusted_authors(facts.project) if to_agent else None
        return {
            **(pr_json(facts) or {}),
            "session": session,
            "refused": pr.merge_failure or None,
            "conflicts": list(pr.conflicting_files),
            "failing": [
                _check_details(run)
                for run in pr.check_runs(facts.head)
                if run.state not in PASSING_STATES | UNFINISHED_STATES or run.drops_tests
            ],
            "reviews": [
                {
                    "id": review.id,
                    "verdict": review.verdict,
                    "author": review.author,
                    "body": _visible_body(review, trusted),
                    "writeAccess": review.write_access,
                    "kind": review.kind,
                    "reviewer": review.reviewer or None,
                    "counts": review in pr.counting_reviews,
                    "head": review.head,
                    "at": rfc3339(review.at),
                }
                for review in pr.reviews
            ],
            "requested": list(pr.requested_reviewers),
            "threads": _threads_json(pr, trusted),
        }

    async def submit(
        self,
        session: str,
        verdict: str,
        body: str = "",
        comments: Sequence[NewComment] = (),
        *,
        key: str | None = None,
        words: TextAuthor = LOCAL_PERSON,
        reviewer: SessionFacts | None = None,
    ) -> dict[str, Any]:
        """Review the change, with any number of comments on lines; one review is one message to the agent.

        The verdict of an author without write access is recorded and counts as a comment. So does the approval of a
        bot, or of a reviewing agent (`reviewer`), unless the project accepts it. Raises `UsageError` for an unknown
        verdict or an empty review.
        """
        if verdict not in REVIEW_VERDICTS:
            raise UsageError(f"{verdict!r} is no judgement", f"one of {', '.join(REVIEW_VERDICTS)}")
        facts, pr = self._find_pull_request(session)
        review = f"v-{hashlib.sha256(key.encode()).hexdigest() if key else uuid.uuid4().hex}"[:18]
        if key and any(earlier.id == review for earlier in pr.reviews):
            return self.view(session)
        self._refuse_unless_open(facts, pr)
        text = clean_text(body).strip()
        if verdict != "approved" and not text and not comments:
            raise UsageError("nothing is said", "say what is to be changed: -m TEXT")
        if reviewer is not None:
            words = TextAuthor(reviewer.spec.profile or reviewer.spec.agent)
        kind = "agent" if reviewer else author_kind(words.author)
        head = (reviewer.head if reviewer else None) or facts.head or ""
        is_enough = kind == "person" or self._accepts_agent_approval(facts)
        if (
            kind != "person"
            and is_enough
            and verdict == "approved"
            and (steering := await self._steering_file(facts, pr, head))
        ):
            is_enough, text = False, f"{text}\n\n(A person is to judge it: it changes {steering}.)".strip()
        counts = (
            verdict != "commented" and words.write_access == HAS_WRITE_ACCESS and (is_enough or verdict != "approved")
        )
        events = [
            self._comment_event(facts, comment, f"{review}:{number}", words, review if counts else None, kind, head)
            for number, comment in enumerate(comments)
        ]
        if text and not counts and not (reviewer and verdict == "approved"):  # an approval needs no answer
            events.append(self._comment_event(facts, NewComment(text), f"{review}:body", words, None, kind, head))
        submitted = e.ReviewSubmitted(
            review=review,
            verdict=verdict,
            head=head,
            author=words.author,
            body=text,
            write_access=words.write_access,
            kind=kind,
            reviewer=reviewer.id if reviewer else "",
            counts=is_enough,
        )
        events.append(self.event(facts, submitted, f"review:{session}:{review}", source=words.author))
        if counts and verdict == "approved" and pr.draft:
            events.append(self.event(facts, e.PrReady(), f"ready:{session}:{review}", source=words.author))
        await self.flow.append(*events)
        return self.view(session)

    def _trusted_authors(self, project: str) -> Collection[str]:
        """Return the authors that the project trusts."""
        config = self.core.config.project(project)
        return config.trusted_authors if config else ()

    def _accepts_agent_approval(self, facts: SessionFacts) -> bool:
        """Return whether the project accepts an agent's approval."""
        return self.core.settings.project(facts.project).review.approval == "agent"

    async def _steering_file(self, facts: SessionFacts, pr: PullRequest, head: str) -> str:
        """Return a changed file that controls how agents or the programs around them are started, "" if there is none.

        If the diff cannot be read, return a text that says so. The reviewing agent itself was started by such files, so
        its approval does not count then.
        """
        base = facts.base_head or (facts.workspace.base_commit if facts.workspace else f"refs/heads/{pr.base}")
        arguments = ("diff", "--name-only", "-z", "--no-renames", "--end-of-options", f"{base}...{head}", "--")
        diff = await Git(self.host, Path(facts.spec.repo)).run(*arguments, ok=(0, 128))
        if diff.code:
            return "what cannot be read here"
        return next((make_visible(name) for name in os.fsdecode(diff.out).split("\0") if is_sensitive(name)), "")

    def _comment_event(
        self,
        facts: SessionFacts,
        new_comment: NewComment,
        name: str,
        words: TextAuthor,
        review: str | None,
        kind: str = "person",
        head: str | None = None,
    ) -> Event:
        """Return the event of a comment.

        Raises `UsageError` if it is empty, `NotFound` if it replies to an unknown comment.
        """
        text = clean_text(new_comment.body).strip()
        if not text:
            raise UsageError("a comment is empty", "write something")
        thread = new_comment.thread or None
        if thread and not any(other.id == thread for other in (facts.pr.comments if facts.pr else ())):
            raise NotFound(f"{facts.id} has no comment {thread}", f"see them: ao review {facts.id}")
        comment = e.CommentAdded(
            comment=f"c-{uuid.uuid5(uuid.NAMESPACE_OID, facts.id + name).hex[:12]}",
            body=text,
            author=words.author,
            path=new_comment.path or None,
            line=new_comment.line or None,
            thread=thread,
            review=review,
            head=head or facts.head or "",
            write_access=words.write_access,
            kind=kind,
        )
        return self.event(facts, comment, f"comment:{facts.id}:{name}", source=words.author)

    async def request_merge(
        self,
        session: str,
        strategy: str | None,
        *,
        force: bool = False,
        delete_after: bool = True,
        key: str | None = None,
        by: str = "person",
    ) -> dict[str, Any]:
        """Request the merge of a change; does nothing if it is merging already.

        Raises `Conflict` if its checks are known to fail, unless `force` is set, or if it conflicts, is stacked on an
        unmerged change, or has commits after a merge.
        """
        facts, pr = self._find_pull_request(session)
        if strategy is not None and strategy not in STRATEGIES:
            raise UsageError(f"{strategy!r} is no strategy", f"one of {', '.join(STRATEGIES)}")
        event_key = f"merge:{session}:{key or uuid.uuid4().hex}"
        is_merging = (
            pr.merge_request and strategy in (None, pr.merge_request.strategy) and force <= pr.merge_request.force
        )
        if facts.head_after_merge and not await self._was_carried_out(event_key, key):
            raise Conflict(
                f"{session} has landed, but not what was committed since: {facts.head_after_merge[:8]}",
                f"let that land as a change of its own: ao stop {session}, then ao new --branch {shlex.quote(facts.branch)} TASK",
            )
        if pr.state == "merged" or is_merging or await self._was_carried_out(event_key, key):
            return self.sessions.view(session)
        self._refuse_unless_open(facts, pr)
        if facts.stacked:
            raise Conflict(
                f"{session} stands on {facts.spec.stack}, which has not landed",
                f"land that first: ao merge {facts.spec.stack}",
            )
        if (blocker := pr.merge_blocker(facts.head)) and not force:
            failing = ", ".join(run.name for run in pr.failing_checks(facts.head))
            problem = f"{session} is red: {failing}" if failing else f"{session} cannot be merged: {blocker}"
            raise Conflict(problem, _unblock_hint(facts, pr))
        if pr.mergeability(facts.head, facts.base_head) == "no":
            raise Conflict(
                f"{session} conflicts with {pr.base} in {', '.join(pr.conflicting_files)}",
                "let the agent bring it up to date first",
            )
        if facts.live and facts.activity.state == "active" and not force:
            raise Conflict(f"{session} is still at work", "wait until its turn ends, or land what is there: --force")
        body = e.MergeRequested(strategy or "squash", force, delete_after)
        await self.flow.append(self.event(facts, body, event_key, source=by))
        return self.sessions.view(session)

    async def wait_until_merged(self, session: str, patience: float = MERGE_TIMEOUT) -> dict[str, Any]:
        """Wait until a merge request ends; return the session's view. Raises `Conflict` if the change did not merge."""

        def over(facts: SessionFacts) -> bool:
            """Return whether the merge request has ended."""
            return facts.pr is None or facts.pr.merge_request is None

        facts = await self.followers.wait_until(session, over, patience)
        if facts.pr and facts.pr.state != "merged" and facts.pr.merge_request is None:
            raise Conflict(
                f"{session} did not land: {facts.pr.merge_failure or 'it was called off'}", f"see why: ao why {session}"
            )
        return self.sessions.view(session)

    async def mark_ready(self, session: str, key: str | None = None, title: str | None = None) -> dict[str, Any]:
        """Mark a draft as ready, and set its title if the pull request is local."""
        facts, pr = self._find_pull_request(session)
        event_key = f"ready:{session}:{key or uuid.uuid4().hex}"
        if not await self._was_carried_out(event_key, key):
            self._refuse_unless_open(facts, pr)
            new_title = " ".join(clean_text(title or "").split()) if not facts.has_remote_forge else ""
            title_events = [self.event(facts, e.PrChanged(new_title, False), f"{event_key}:title")] if new_title else []
            await self.flow.append(*title_events, self.event(facts, e.PrReady(), event_key))
        return self.view(session)

    async def close_pull_request(self, session: str, key: str | None = None) -> dict[str, Any]:
        """Close the pull request; its branch and workspace stay."""
        facts, pr = self._find_pull_request(session)
        event_key = f"close:{session}:{key or uuid.uuid4().hex}"
        if not await self._was_carried_out(event_key, key):
            self._refuse_unless_open(facts, pr)
            await self.flow.append(self.event(facts, e.PrClosed("a person closed it"), event_key))
        return self.view(session)

    async def request_checks(self, session: str, key: str | None = None) -> dict[str, Any]:
        """Run the checks now, even if there are results already."""
        facts, pr = self._find_pull_request(session)
        event_key = f"checks:{session}:{key or uuid.uuid4().hex}"
        if not await self._was_carried_out(event_key, key):
            self._refuse_unless_open(facts, pr)
            await self.flow.append(self.event(facts, e.ChecksRequested(facts.head or ""), event_key))
        return self.view(session)

    async def _was_carried_out(self, event_key: str, key: str | None) -> bool:
        """Return whether a request with this key was carried out before."""
        return key is not None and await self.flow.store.event_by_key(event_key) is not None

    async def check_log(self, session: str, name: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        """Yield a check's output; with `follow` until the check has ended. Raises `NotFound` if it has none."""
        run = self._find_check(session, name)
        changed = asyncio.Event()

        def over() -> bool:
            """Return whether the check has ended, or was started again."""
            latest = self._find_check(session, name)
            return latest.head != run.head or latest.state not in UNFINISHED_STATES

        def wake(_changes: Sequence[FactsChange]) -> None:
            """Wake the reader after every event."""
            changed.set()

        unsubscribe = self.flow.listeners.on_events(wake)
        try:
            while follow and not self._find_check(session, name).log and not over():
                changed.clear()
                await changed.wait()
            log = self._find_check(session, name).log
            if not log or not Path(log).is_file():
                raise NotFound(
                    f"the check {name} of {session} has no output ({run.state})",
                    f"wait for it: ao checks {session} --log {shlex.quote(name)} -f",
                )
            until = over if follow else lambda: True
            async with aclosing(follow_log(Path(log), self.core.watch, changed, until)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            unsubscribe()

    def _find_check(self, session: str, name: str) -> CheckRun:
        """Return a check of a session's pull request. Raises `NotFound`."""
        _, pr = self._find_pull_request(session)
        run = pr.checks.get(name)
        if run is None:
            available = ", ".join(pr.checks) or "none has run yet"
            raise NotFound(f"{session} has no check {name}", f"there are: {available}")
        return run

    async def revert(self, session: str) -> dict[str, Any]:
        """Revert a merged change by a new one, with its own session and pull request, which merges like any other."""
        async with self._revert_lock:  # simultaneous requests get the same change
            return await self._revert_locked(session)

    async def _revert_locked(self, session: str) -> dict[str, Any]:
        """Revert a merged change by a new one; the caller holds the lock."""
        facts, pr = self._find_pull_request(session)
        if pr.state == "merged" and facts.has_remote_forge:
            command = f'ao new "Revert pull request #{pr.number}"'
            raise Conflict(
                f"{session} landed at {facts.spec.scm}, which takes it back itself",
                f"press Revert at {pr.url}, or have an agent do it: {command}",
            )
        if pr.state != "merged" or not pr.merge_commit or not pr.base_before:
            raise Conflict(f"{session} has not landed", f"see it: ao status {session}")
        work = self.home.path / "landing" / facts.id
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec = landing.RevertSpec(session, Path(facts.spec.repo), pr.base, pr.merge_commit, pr.base_before, work)
        reverted = await landing.revert(self.host, spec)
        if isinstance(reverted, landing.Conflicted):
            raise Conflict(
                f"taking {session} back conflicts in {', '.join(reverted.files)}",
                'have an agent do it: ao new "Revert …"',
            )
        request = NewSession(
            project=facts.project, title=f"Revert {pr.title}", branch=reverted.branch, base=pr.base, defer=True
        )
        change = (await self.sessions.create(request, f"undo:{reverted.commit}", NO_CONTEXT))["id"]
        revert_facts = await self.followers.wait_until(
            change, lambda now: now.pr is not None or now.failure is not None, OPEN_TIMEOUT
        )
        if revert_facts.pr is not None and revert_facts.pr.draft:
            await self.flow.append(self.event(revert_facts, e.PrReady(), f"ready:{change}:undo"))
        return {
            "session": session,
            "branch": reverted.branch,
            "commit": reverted.commit,
            "change": self.sessions.view(change),
        }

    def _find_pull_request(self, session: str) -> tuple[SessionFacts, PullRequest]:
        """Return a session with its pull request. Raises `NotFound` if it has none."""
        return find_pull_request(self.flow, session)

    def _refuse_unless_open(self, facts: SessionFacts, pr: PullRequest) -> None:
        """Raise `Conflict` unless the pull request is open and not merging."""
        if pr.state != "open":
            raise Conflict(f"the pull request of {facts.id} is {pr.state}", f"see it: ao status {facts.id}")
        if pr.merge_request:
            raise Conflict(f"{facts.id} is landing just now", "wait for it: ao queue")


def find_pull_request(flow: Flow, session: str) -> tuple[SessionFacts, PullRequest]:
    """Return a session with its pull request. Raises `NotFound` if it has none."""
    facts = flow.sessions[session]
    if facts.pr is None and facts.spec.kind in KINDS_WITHOUT_CHANGE:
        raise NotFound(f"{session} is a {facts.spec.kind} and has no change", "name a session that makes one")
    if facts.pr is None:
        raise NotFound(f"{session} has no pull request yet", "it gets one with its first commit")
    return facts, facts.pr


def is_resolved(comments: Sequence[Comment]) -> bool:
    """Return whether a thread is resolved. A later comment by a person reopens it; one by the agent does not."""
    return comments[0].resolved and all(comment.resolved for comment in comments if not comment.by_agent)


def _unblock_hint(facts: SessionFacts, pr: PullRequest) -> str:
    """Return what a person can do about what holds a merge."""
    force_hint = f"merge it anyway: ao merge {facts.id} --force"
    if pr.failing_checks(facts.head):
        return f"the agent is to fix it, or {force_hint}"
    if missing := pr.checks_not_set_up(facts.head):
        return f"{missing[0].remedy}; or {force_hint}" if missing[0].remedy else force_hint
    if pr.forbidden_failures(facts.head):
        return f"fix {pr.base} first, or {force_hint}"
    return f"look at it and approve: ao review {facts.id} --approve; or {force_hint}"


def _visible_body(comment: Review | Comment, trusted: Collection[str] | None) -> str:
    """Return a comment's text.

    For an agent (`trusted` is not None) the text of an author who is neither trusted nor has write access is left out.
    """
    return (
        comment.body
        if trusted is None or is_trusted_text(comment, trusted)
        else f"(left out: {approval_reason([comment], trusted)})"
    )


def _check_details(run: CheckRun) -> dict[str, Any]:
    """Return a check that is not simply green, with what a person needs to understand it."""
    return {
        **check_json(run),
        "summary": run.summary,
        "log": run.log,
        "newFailures": [{"name": name, "message": message} for name, message in run.new.items()],
        "knownFailures": list(run.known),
        "ownedFailures": list(run.owned),
        "vanished": list(run.vanished),
        "newlySkipped": list(run.newly_skipped),
        "fewer": run.fewer,
        "remedy": run.remedy or None,
        "command": run.command or None,
    }


def _threads_json(pr: PullRequest, trusted: Collection[str] | None) -> list[dict[str, Any]]:
    """Return the comments by thread."""
    return [
        {
            "id": root,
            "path": comments[0].path,
            "line": comments[0].line,
            "resolved": is_resolved(comments),
            "comments": [
                {
                    "id": comment.id,
                    "author": comment.author,
                    "body": _visible_body(comment, trusted),
                    "byAgent": comment.by_agent,
                    "kind": comment.kind,
                    "writeAccess": comment.write_access,
                    "at": rfc3339(comment.at),
                }
                for comment in comments
            ],
        }
        for root, comments in pr.threads.items()
    ]
