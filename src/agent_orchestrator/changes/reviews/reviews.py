"""Judging a change: reviews, comments on lines, the word that it may land, and taking a landing back."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.changes import checks
from agent_orchestrator.changes import merge as landing
from agent_orchestrator.config.projects.projects import NOWHERE
from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import A_PERSON, WRITES, Words, free, held, kind_of
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import GOOD, UNDER_WAY, CheckRun, Comment, PullRequest, Review
from agent_orchestrator.core.reactions import CHANGELESS
from agent_orchestrator.errors import Conflict, NotFound, UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import visible
from agent_orchestrator.sessions.permissions.sensitive_files import steers
from agent_orchestrator.sessions.session_view import Views, check_json, pr_json
from agent_orchestrator.sessions.sessions import Sessions

VERDICTS = ("approved", "changes_requested", "commented")
STRATEGIES = ("squash", "merge", "rebase")
LAND_PATIENCE = 3600.0
OPEN_PATIENCE = 30.0


class Reviews:
    """What people say about changes, and what follows at once."""

    def __init__(self, flow: Flow, home: Home, host: Host, sessions: Sessions, views: Views, watch: Watch) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.sessions = sessions
        self.views = views
        self.watch = watch
        self._undoing = asyncio.Lock()

    def view(self, session: str, *, to_agent: bool = False) -> dict[str, Any]:
        """The pull request with its checks, reviews and threads; for an agent without words that wait for a person's leave."""
        facts, pr = self._open(session)
        trusted = self._trusted(facts.project) if to_agent else None
        return {
            **(pr_json(facts) or {}),
            "session": session,
            "refused": pr.refused or None,
            "conflicts": list(pr.conflicts),
            "failing": [
                _explained(run) for run in pr.runs(facts.head) if run.state not in GOOD | UNDER_WAY or run.drops_tests
            ],
            "reviews": [
                {
                    "id": one.id,
                    "verdict": one.verdict,
                    "author": one.author,
                    "body": _body(one, trusted),
                    "writeAccess": one.write_access,
                    "kind": one.kind,
                    "reviewer": one.reviewer or None,
                    "counts": one in pr.judgements,
                    "head": one.head,
                    "at": rfc3339(one.at),
                }
                for one in pr.reviews
            ],
            "requested": list(pr.requested),
            "threads": _threads(pr, trusted),
        }

    async def submit(
        self,
        session: str,
        verdict: str,
        body: str = "",
        comments: Sequence[Mapping[str, Any]] = (),
        *,
        key: str | None = None,
        words: Words = A_PERSON,
        reviewer: SessionFacts | None = None,
    ) -> dict[str, Any]:
        """Judge the change, with any number of comments on lines; one review is one message to the agent.

        The judgement of somebody who may not write to the repository is recorded, and counts as a comment. So does the approval of a
        bot, or of a reviewing agent (`reviewer`), unless the project says that it is enough.
        """
        if verdict not in VERDICTS:
            raise UsageError(f"{verdict!r} is no judgement", f"one of {', '.join(VERDICTS)}")
        facts, pr = self._open(session)
        review = f"v-{hashlib.sha256(key.encode()).hexdigest() if key else uuid.uuid4().hex}"[:18]
        if key and any(one.id == review for one in pr.reviews):
            return self.view(session)
        self._refuse_unless_open(facts, pr)
        text = clean_text(body).strip()
        if verdict != "approved" and not text and not comments:
            raise UsageError("nothing is said", "say what is to be changed: -m TEXT")
        if reviewer is not None:
            words = Words(reviewer.spec.profile or reviewer.spec.agent)
        kind = "agent" if reviewer else kind_of(words.author)
        head = (reviewer.head if reviewer else None) or facts.head or ""
        enough = kind == "person" or self._agents_word_is_enough(facts)
        if kind != "person" and enough and verdict == "approved" and (steering := await self._steers(facts, pr, head)):
            enough, text = False, f"{text}\n\n(A person is to judge it: it changes {steering}.)".strip()
        counts = verdict != "commented" and words.write_access == WRITES and (enough or verdict != "approved")
        events = [
            self._comment(facts, said, f"{review}:{number}", words, review if counts else None, kind, head)
            for number, said in enumerate(comments)
        ]
        if text and not counts and not (reviewer and verdict == "approved"):  # that it is good needs no answer
            events.append(self._comment(facts, {"body": text}, f"{review}:body", words, None, kind, head))
        judged = e.ReviewSubmitted(
            review=review,
            verdict=verdict,
            head=head,
            author=words.author,
            body=text,
            write_access=words.write_access,
            kind=kind,
            reviewer=reviewer.id if reviewer else "",
            counts=enough,
        )
        events.append(self._event(facts, judged, f"review:{session}:{review}", words.author))
        if counts and verdict == "approved" and pr.draft:
            events.append(self._event(facts, e.PrReady(), f"ready:{session}:{review}", words.author))
        await self.flow.append(*events)
        return self.view(session)

    def _trusted(self, project: str) -> Collection[str]:
        config = self.sessions.plugins.config.project(project)
        return config.trusted_authors if config else ()

    def _agents_word_is_enough(self, facts: SessionFacts) -> bool:
        return self.sessions.plugins.project(facts.project).review.approval == "agent"

    async def _steers(self, facts: SessionFacts, pr: PullRequest, head: str) -> str:
        """What a change has of that by which agents, or the programs around them, are started: its reviewer was started by it itself."""
        since = facts.base_head or (facts.place.base_commit if facts.place else f"refs/heads/{pr.base}")
        words = ("diff", "--name-only", "-z", "--no-renames", "--end-of-options", f"{since}...{head}", "--")
        done = await Git(self.host, Path(facts.spec.repo)).run(*words, ok=(0, 128))
        if done.code:
            return "what cannot be read here"
        return next((visible(name) for name in os.fsdecode(done.out).split("\0") if steers(name)), "")

    def _comment(
        self,
        facts: SessionFacts,
        said: Mapping[str, Any],
        name: str,
        words: Words,
        review: str | None,
        kind: str = "person",
        head: str | None = None,
    ) -> Event:
        text = clean_text(str(said.get("body") or "")).strip()
        if not text:
            raise UsageError("a comment is empty", "write something")
        thread = str(said["thread"]) if said.get("thread") else None
        if thread and not any(one.id == thread for one in (facts.pr.comments if facts.pr else ())):
            raise NotFound(f"{facts.id} has no comment {thread}", f"see them: ao review {facts.id}")
        comment = e.CommentAdded(
            comment=f"c-{uuid.uuid5(uuid.NAMESPACE_OID, facts.id + name).hex[:12]}",
            body=text,
            author=words.author,
            path=str(said["path"]) if said.get("path") else None,
            line=int(said["line"]) if said.get("line") else None,
            thread=thread,
            review=review,
            head=head or facts.head or "",
            write_access=words.write_access,
            kind=kind,
        )
        return self._event(facts, comment, f"comment:{facts.id}:{name}", words.author)

    async def merge(
        self,
        session: str,
        strategy: str | None,
        *,
        force: bool = False,
        delete_after: bool = True,
        key: str | None = None,
        by: str = "person",
    ) -> dict[str, Any]:
        """A person's word that it may land; refuses what is known to be red, unless forced. What is landing already lands."""
        facts, pr = self._open(session)
        if strategy is not None and strategy not in STRATEGIES:
            raise UsageError(f"{strategy!r} is no strategy", f"one of {', '.join(STRATEGIES)}")
        unique = f"merge:{session}:{key or uuid.uuid4().hex}"
        on_its_way = pr.landing and strategy in (None, pr.landing.strategy) and force <= pr.landing.force
        if facts.unlanded and not await self._said(unique, key):
            raise Conflict(
                f"{session} has landed, but not what was committed since: {facts.unlanded[:8]}",
                f"let that land as a change of its own: ao stop {session}, then ao new --branch {shlex.quote(facts.branch)} TASK",
            )
        if pr.state == "merged" or on_its_way or await self._said(unique, key):
            return self.sessions.view(session)
        self._refuse_unless_open(facts, pr)
        if facts.stacked:
            raise Conflict(
                f"{session} stands on {facts.spec.stack}, which has not landed",
                f"land that first: ao merge {facts.spec.stack}",
            )
        if (blocker := pr.merge_blocker(facts.head)) and not force:
            red = ", ".join(run.name for run in pr.failing(facts.head))
            problem = f"{session} is red: {red}" if red else f"{session} cannot be merged: {blocker}"
            raise Conflict(problem, _unblock(facts, pr))
        if pr.mergeable(facts.head, facts.base_head) == "no":
            raise Conflict(
                f"{session} conflicts with {pr.base} in {', '.join(pr.conflicts)}",
                "let the agent bring it up to date first",
            )
        if facts.live and facts.activity.state == "active" and not force:
            raise Conflict(f"{session} is still at work", "wait until its turn ends, or land what is there: --force")
        body = e.MergeRequested(strategy or "squash", force, delete_after)
        await self.flow.append(self._event(facts, body, unique, by))
        return self.sessions.view(session)

    async def landed(self, session: str, patience: float = LAND_PATIENCE) -> dict[str, Any]:
        """Wait for what becomes of a landing."""

        def over(facts: SessionFacts) -> bool:
            return facts.pr is None or facts.pr.landing is None

        facts = await self.sessions.until(session, over, patience)
        if facts.pr and facts.pr.state != "merged" and facts.pr.landing is None:
            raise Conflict(
                f"{session} did not land: {facts.pr.refused or 'it was called off'}", f"see why: ao why {session}"
            )
        return self.sessions.view(session)

    async def ready(self, session: str, key: str | None = None, title: str | None = None) -> dict[str, Any]:
        """A person says that it is no draft any more, and, at the local forge, what it is to be called."""
        facts, pr = self._open(session)
        unique = f"ready:{session}:{key or uuid.uuid4().hex}"
        if not await self._said(unique, key):
            self._refuse_unless_open(facts, pr)
            named = " ".join(clean_text(title or "").split()) if facts.spec.scm == "local" else ""
            called = [self._event(facts, e.PrChanged(named, False), f"{unique}:title")] if named else []
            await self.flow.append(*called, self._event(facts, e.PrReady(), unique))
        return self.view(session)

    async def close(self, session: str, key: str | None = None) -> dict[str, Any]:
        """Give the change up; its branch and workspace stay."""
        facts, pr = self._open(session)
        unique = f"close:{session}:{key or uuid.uuid4().hex}"
        if not await self._said(unique, key):
            self._refuse_unless_open(facts, pr)
            await self.flow.append(self._event(facts, e.PrClosed("a person closed it"), unique))
        return self.view(session)

    async def check(self, session: str, key: str | None = None) -> dict[str, Any]:
        """Run the checks now, whatever is known."""
        facts, pr = self._open(session)
        unique = f"checks:{session}:{key or uuid.uuid4().hex}"
        if not await self._said(unique, key):
            self._refuse_unless_open(facts, pr)
            await self.flow.append(self._event(facts, e.ChecksRequested(facts.head or ""), unique))
        return self.view(session)

    async def _said(self, unique: str, key: str | None) -> bool:
        """A request with this key was carried out before."""
        return key is not None and await self.flow.store.event_by_key(unique) is not None

    async def check_log(self, session: str, name: str, *, follow: bool = False) -> AsyncIterator[bytes]:
        """What a check printed; `follow`: and prints, until it has ended."""
        run = self._check(session, name)
        changed = asyncio.Event()

        def over() -> bool:
            now = self._check(session, name)
            return now.head != run.head or now.state not in UNDER_WAY

        def wake(_changes: Sequence[Change]) -> None:
            changed.set()

        self.flow.on_change.append(wake)
        try:
            while follow and not self._check(session, name).log and not over():
                changed.clear()
                await changed.wait()
            log = self._check(session, name).log
            if not log or not Path(log).is_file():
                raise NotFound(
                    f"the check {name} of {session} has no output ({run.state})",
                    f"wait for it: ao checks {session} --log {shlex.quote(name)} -f",
                )
            until = over if follow else lambda: True
            async with aclosing(checks.follow(Path(log), self.watch, changed, until)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self.flow.on_change.remove(wake)

    def _check(self, session: str, name: str) -> CheckRun:
        _, pr = self._open(session)
        run = pr.checks.get(name)
        if run is None:
            known = ", ".join(pr.checks) or "none has run yet"
            raise NotFound(f"{session} has no check {name}", f"there are: {known}")
        return run

    async def undo(self, session: str) -> dict[str, Any]:
        """Make the change that takes a landing back, with a session and a pull request of its own; it lands like any other."""
        async with self._undoing:  # who asks at the same time is told of the same change
            return await self._undo(session)

    async def _undo(self, session: str) -> dict[str, Any]:
        facts, pr = self._open(session)
        if pr.state == "merged" and facts.spec.scm != "local":
            again = f'ao new "Revert pull request #{pr.number}"'
            raise Conflict(
                f"{session} landed at {facts.spec.scm}, which takes it back itself",
                f"press Revert at {pr.url}, or have an agent do it: {again}",
            )
        if pr.state != "merged" or not pr.landed or not pr.base_before:
            raise Conflict(f"{session} has not landed", f"see it: ao status {session}")
        work = self.home.path / "landing" / facts.id
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec = landing.UndoSpec(session, Path(facts.spec.repo), pr.base, pr.landed, pr.base_before, work)
        made = await landing.undo(self.host, spec)
        if isinstance(made, landing.Conflicted):
            raise Conflict(
                f"taking {session} back conflicts in {', '.join(made.files)}", 'have an agent do it: ao new "Revert …"'
            )
        wanted = {
            "projectId": facts.project,
            "title": f"Revert {pr.title}",
            "branch": made.branch,
            "base": pr.base,
            "defer": True,
        }
        change = (await self.sessions.create(wanted, f"undo:{made.commit}", NOWHERE))["id"]
        opened = await self.sessions.until(
            change, lambda now: now.pr is not None or now.failure is not None, OPEN_PATIENCE
        )
        if opened.pr is not None and opened.pr.draft:
            await self.flow.append(self._event(opened, e.PrReady(), f"ready:{change}:undo"))
        return {"session": session, "branch": made.branch, "commit": made.commit, "change": self.sessions.view(change)}

    def _open(self, session: str) -> tuple[SessionFacts, PullRequest]:
        return pull_of(self.flow, session)

    def _refuse_unless_open(self, facts: SessionFacts, pr: PullRequest) -> None:
        if pr.state != "open":
            raise Conflict(f"the pull request of {facts.id} is {pr.state}", f"see it: ao status {facts.id}")
        if pr.landing:
            raise Conflict(f"{facts.id} is landing just now", "wait for it: ao queue")

    def _event(self, facts: SessionFacts, body: e.Body, key: str, source: str = "person") -> Event:
        return Event(body, self.flow.clock(), source, key, facts.project, facts.id)


def pull_of(flow: Flow, session: str) -> tuple[SessionFacts, PullRequest]:
    """A session with its pull request. Raises `NotFound` where there is none."""
    facts = flow.sessions[session]
    if facts.pr is None and facts.spec.kind in CHANGELESS:
        raise NotFound(f"{session} is a {facts.spec.kind} and has no change", "name a session that makes one")
    if facts.pr is None:
        raise NotFound(f"{session} has no pull request yet", "it gets one with its first commit")
    return facts, facts.pr


def settled(comments: Sequence[Comment]) -> bool:
    """Is a discussion resolved? What somebody says in it afterwards takes it up again, what the agent says does not."""
    return comments[0].resolved and all(one.resolved for one in comments if not one.by_agent)


def _unblock(facts: SessionFacts, pr: PullRequest) -> str:
    """Return what a person can do about what holds a merge."""
    anyway = f"merge it anyway: ao merge {facts.id} --force"
    if pr.failing(facts.head):
        return f"the agent is to fix it, or {anyway}"
    if lacking := pr.not_set_up(facts.head):
        return f"{lacking[0].remedy}; or {anyway}" if lacking[0].remedy else anyway
    if pr.forbidden(facts.head):
        return f"fix {pr.base} first, or {anyway}"
    return f"look at it and approve: ao review {facts.id} --approve; or {anyway}"


def _body(said: Review | Comment, trusted: Collection[str] | None) -> str:
    """What somebody said; where an agent asks, nothing of who is neither `trusted` nor may write to the repository."""
    return said.body if trusted is None or free(said, trusted) else f"(left out: {held([said], trusted)})"


def _explained(run: CheckRun) -> dict[str, Any]:
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


def _threads(pr: PullRequest, trusted: Collection[str] | None) -> list[dict[str, Any]]:
    """What was said, by discussion."""
    return [
        {
            "id": root,
            "path": comments[0].path,
            "line": comments[0].line,
            "resolved": settled(comments),
            "comments": [
                {
                    "id": comment.id,
                    "author": comment.author,
                    "body": _body(comment, trusted),
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
