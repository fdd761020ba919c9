"""Reviews by agents: a session of its own, at the change's head, judges another one's change. Its judgement drives the same reactions as
a person's; it is approval enough only where the project says so. As the change moves on it is asked again, for a bounded number of rounds.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import find_layout, read_head, read_ref
from agent_orchestrator.changes.reviews.reviews import Reviews
from agent_orchestrator.config.projects.projects import NOWHERE
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import PullRequest, Review
from agent_orchestrator.core.reactions import COORDINATOR, REVIEWER, Intent, message_id
from agent_orchestrator.core.status import IN_TURN
from agent_orchestrator.core.verdicts import VERDICTS
from agent_orchestrator.errors import AoError, Conflict, Denied, UsageError
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.plugins import Plugins
from agent_orchestrator.sessions.sessions import Sessions

log = structlog.get_logger()

_ASKED = """\
Review the change of {session} (pull request #{number}, {title!r}) before it lands on {base}.
This folder has it checked out: change nothing here.

See it: git diff {since}...HEAD
Its task was:
{task}

Look for what is wrong, missing, unsafe or untested; not for matters of taste. {more}"""

_ANSWER = """\
End with your judgement as a block of exactly this form, each comment on a line of the new files:

```review
{"verdict": "approved", "body": "in a sentence or two",
 "comments": [{"path": "file.py", "line": 12, "body": "what is wrong, and what to do"}]}
```
The verdict is "approved", "changes_requested" or "commented"."""

_AGAIN = """\
The change moved on to {head}: {how}. Your last judgement was of {before}; see what is new: git diff {before}..{head}
Judge it again: is what you asked for done, and is anything else wrong?"""


class AgentReviews:
    """Asks agents to judge changes, posts what they say, and asks again."""

    def __init__(self, flow: Flow, host: Host, plugins: Plugins, sessions: Sessions, reviews: Reviews) -> None:
        self.flow = flow
        self.host = host
        self.plugins = plugins
        self.sessions = sessions
        self.reviews = reviews
        self._looking: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {"post-review": Effect(self.post)}

    def start(self) -> None:
        """Look at every change that a reviewing agent is on, now and whenever one moves."""
        self.flow.on_change.append(self._on_change)
        for facts in self._reviewers():
            self._look(facts.spec.reviews or "")
            if facts.stopped:
                self._begin(self._forget_branch(facts))

    def close(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()

    # -- asking --------------------------------------------------------------------------------------------------------

    async def request(
        self, session: str, agent: str | None, text: str = "", *, key: str | None = None, rule: str = ""
    ) -> dict[str, Any]:
        """Have an agent judge a session's change; returns the session that does."""
        known = await self.flow.store.event_by_key(f"create:{key}") if key else None
        if known is not None and known.session:  # by one who died before he told of it, maybe
            await self._asked(self.flow.sessions[session], known.session)
            return self.sessions.view(known.session)
        facts, pr = self._reviewable(session)
        settings = self.plugins.config.agent(facts.project, agent)
        name = (settings.profile or settings.tool) if settings else agent or ""
        mine = [one for one in self._reviewers(session) if _name(one) == name and _wanted(one)]
        if mine:
            raise Conflict(f"{mine[0].id} reviews {session} already", f"see how far it is: ao status {mine[0].id}")
        most = self._most(facts)
        if rule and rounds(pr) >= most:
            raise Conflict(
                f"{session} was judged {rounds(pr)} times by agents", f"judge it yourself: ao review {session}"
            )
        number = len(self._reviewers(session)) + 1
        short = f"review-{facts.name[:28].rstrip('-')}{'' if number == 1 else f'-{number}'}"
        wanted = {
            "projectId": facts.project,
            "name": short,
            "title": f"Review {facts.id}",
            "prompt": self._prompt(facts, pr, text),
            "agent": agent,
            "branch": f"review/{facts.name}-{(facts.head or '')[:8]}-{number}",
            "base": facts.branch,
            "kind": REVIEWER,
            "reviews": facts.id,
            "spawned": (*facts.spec.spawned, rule) if rule else (),
        }
        made = await self.sessions.create(wanted, key, NOWHERE)
        await self._asked(facts, made["id"])
        return made

    async def _asked(self, facts: SessionFacts, reviewer: str) -> None:
        """Tell that it is asked to judge the change for the first time; once, by its key."""
        asked = e.ReviewRequested(reviewer, facts.head or "", (rounds(facts.pr) if facts.pr else 0) + 1)
        await self.flow.append(self._event(facts, asked, f"review-requested:{reviewer}:1", "person"))

    def _reviewable(self, session: str) -> tuple[SessionFacts, PullRequest]:
        facts = self.flow.sessions[session]
        if facts.spec.kind == REVIEWER:
            raise UsageError(f"{session} is a reviewer itself", f"name the change: ao review {facts.spec.reviews}")
        if facts.spec.kind == COORDINATOR:
            raise UsageError(f"{session} coordinates and has no change", "name a session that makes one")
        if facts.pr is None:
            raise Conflict(f"{session} has no pull request yet", "it gets one with its first commit")
        if facts.pr.state != "open":
            raise Conflict(f"the pull request of {session} is {facts.pr.state}", f"see it: ao status {session}")
        return facts, facts.pr

    def _prompt(self, facts: SessionFacts, pr: PullRequest, text: str) -> str:
        assert facts.place is not None
        task = "\n".join(f"> {line}" for line in facts.spec.prompt.splitlines()[:60]) or "> (none)"
        asked = _ASKED.format(
            session=facts.id,
            number=pr.number,
            title=pr.title,
            base=pr.base,
            since=facts.place.base_commit[:12],
            task=task,
            more="Earlier threads are shown by: ao review " + facts.id if pr.comments else "",
        )
        return "\n\n".join(part for part in (asked.strip(), text.strip(), _ANSWER) if part)

    def _most(self, facts: SessionFacts) -> int:
        return self.plugins.project(facts.project).review.max_rounds

    # -- what they say -------------------------------------------------------------------------------------------------

    async def post(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Bring a reviewing agent's judgement to the change; once for each, however often it is tried. Whose review is over has judged."""
        reviewer = self.flow.sessions[intent.session]
        if not _wanted(reviewer):
            return []
        return await self.judge(reviewer, intent.args, intent.key)

    async def submit(self, agent: str, session: str, said: Mapping[str, Any], key: str | None) -> dict[str, Any]:
        """A judgement that an agent gives by the command line or the API; only on the change that it was asked about."""
        reviewer = self.flow.sessions.get(agent)
        if reviewer is None or reviewer.spec.reviews != session:
            what = "its own change" if agent == session else session
            raise Denied(f"{agent} was not asked to judge {what}", f"ask a reviewer: ao review {session} --agent A")
        if not _wanted(reviewer):
            raise Denied(f"the review by {agent} is over", f"ask for another: ao review {session} --agent A")
        events = await self.judge(reviewer, said, f"said:{agent}:{key or uuid.uuid4().hex}")
        if events:
            await self.flow.append(*events)
        return self.reviews.view(session, to_agent=True)

    async def judge(self, reviewer: SessionFacts, said: Any, key: str) -> list[Event]:
        """Post a judgement; what else it calls for comes back as events."""
        target = self.flow.sessions.get(reviewer.spec.reviews or "")
        if target is None:
            return []
        verdict = VERDICTS.get(str(said.get("verdict")), "commented")
        body, comments = str(said.get("body") or ""), [dict(one) for one in said.get("comments") or ()]
        if verdict != "approved" and not body.strip() and not comments:
            body = "(no words)"
        over = self._event(reviewer, e.StopRequested(), f"{key}:over", "review")
        try:
            head = read_head(Path(reviewer.place.git_dir)) if reviewer.place else None
            judge = replace(reviewer, head=head or reviewer.head)  # what it has before it, whoever has heard of it yet
            await self.reviews.submit(target.id, verdict, body, comments, key=key, reviewer=judge)
        except AoError as error:
            if error.retryable:
                raise
            log.info("a review came too late", session=target.id, reviewer=reviewer.id, error=str(error))
            return [over]
        now = self.flow.sessions[target.id]
        done = rounds(now.pr) if now.pr else 0
        last = _last(now.pr, reviewer) if now.pr else None
        if verdict == "commented" or last is None or not _holds_for_one_commit(last):
            return [over]
        if done < self._most(target):
            return []
        if verdict == "approved":
            return [over]
        text = f"{done} rounds of review by {_name(reviewer)} did not end in its approval: judge it yourself, ao review {target.id}"
        told = e.Notified("changes-requested", f"{target.id}: {done} rounds of review", text, "urgent")
        return [
            over,
            self._event(target, told, f"{key}:told"),
            self._event(target, e.Escalated("changes-requested", "changes-requested", text), f"{key}:called"),
        ]

    # -- again ---------------------------------------------------------------------------------------------------------

    def _reviewers(self, session: str | None = None) -> list[SessionFacts]:
        return [
            facts
            for facts in self.flow.sessions.values()
            if facts.spec.reviews and session in (None, facts.spec.reviews)
        ]

    def _on_change(self, changes: Sequence[Change]) -> None:
        for session in {change.event.session for change in changes if change.event.session}:
            facts = self.flow.sessions.get(session)
            if facts is not None:
                self._look(facts.spec.reviews or session)
        for change in changes:
            if isinstance(change.event.body, e.SessionStopped) and change.after and change.after.spec.reviews:
                self._begin(self._forget_branch(change.after))

    def _look(self, session: str) -> None:
        """Look at a change and its reviewers; looks that come together are one."""
        if session in self._looking or not any(_wanted(one) for one in self._reviewers(session)):
            return
        self._looking.add(session)
        self._begin(self._go_on(session))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forget_branch(self, reviewer: SessionFacts) -> None:
        """A reviewer's branch is nothing of its own: it goes with it, if all of it is in the change that it judged."""
        target = self.flow.sessions.get(reviewer.spec.reviews or "")
        repo, ref = Path(reviewer.spec.repo), f"refs/heads/{reviewer.branch}"
        layout, git = find_layout(repo), Git(self.host, repo)
        try:
            tip = read_ref(layout.common, ref) if layout else None
            if tip and target and target.head and await git.is_ancestor(tip, target.head):
                await git.delete_ref(ref, tip)
        except AoError as error:
            log.info("a reviewer's branch stays", branch=reviewer.branch, error=str(error))

    async def _go_on(self, session: str) -> None:
        self._looking.discard(session)
        target = self.flow.sessions.get(session)
        for reviewer in self._reviewers(session):
            if not _wanted(reviewer):
                continue
            try:
                if target is None or target.stopped or target.pr is None or target.pr.state != "open":
                    over = e.StopRequested()
                    await self.flow.append(
                        self._event(reviewer, over, f"review-over:{reviewer.id}:{reviewer.run}", "review")
                    )
                elif last := due_again(target, reviewer):
                    await self._ask_again(target, reviewer, last)
            except AoError as error:
                log.warning("a review could not be gone on with", reviewer=reviewer.id, error=str(error))

    async def _ask_again(self, target: SessionFacts, reviewer: SessionFacts, last: Review) -> None:
        assert target.head is not None and target.pr is not None and reviewer.place is not None
        site = self.plugins.site_of(reviewer)
        await site.learn(reviewer.id, target.branch)
        git = Git(site.host, Path(reviewer.place.path))
        moved = await git.run("checkout", "--quiet", "--detach", target.head, "--", ok=(0, 1, 128))
        how = "it is checked out here" if not moved.code else f"check it out: git checkout --detach {target.head}"
        text = _AGAIN.format(head=target.head[:12], how=how, before=last.head[:12])
        key = f"review-again:{reviewer.id}:{target.head}"
        queued = e.MessageQueued(message_id(key), f"{text}\n\n{_ANSWER}", "review")
        asked = e.ReviewRequested(reviewer.id, target.head, rounds(target.pr) + 1)
        await self.flow.append(
            self._event(reviewer, queued, key, "review"), self._event(target, asked, f"{key}:asked", "review")
        )

    def _event(self, facts: SessionFacts, body: e.Body, key: str, source: str = "review") -> Event:
        return Event(body, self.flow.clock(), source, key, facts.project, facts.id)


def rounds(pr: PullRequest) -> int:
    """How often agents judged a change."""
    return sum(one.kind == "agent" and one.verdict != "commented" for one in pr.reviews)


def due_again(target: SessionFacts, reviewer: SessionFacts) -> Review | None:
    """The judgement that a reviewing agent is to give anew: the change moved on since, is done again, and its checks are good."""
    pr, head = target.pr, target.head
    if pr is None or pr.draft or _judges(reviewer) or reviewer.place is None:
        return None
    last = _last(pr, reviewer)
    if last is None or not _holds_for_one_commit(last) or last.head == head:
        return None
    at_rest = not target.live or (target.activity.state not in IN_TURN and target.done is not None)
    good = pr.green(head) or pr.by_hand == head
    asked = any(message.id == message_id(f"review-again:{reviewer.id}:{head}") for message in reviewer.messages)
    return last if at_rest and good and not asked else None


def _judges(reviewer: SessionFacts) -> bool:
    """Is it at it, or about to be? Until it has judged what is before it, nothing else is put there."""
    waits = any(one.pending and one.sender == "review" for one in reviewer.messages)
    return waits or reviewer.activity.state in {*IN_TURN, "blocked", "limited", "waiting_input"}


def _last(pr: PullRequest, reviewer: SessionFacts) -> Review | None:
    """Its last judgement of a change."""
    mine = [one for one in pr.reviews if one.reviewer == reviewer.id and one.verdict != "commented"]
    return mine[-1] if mine else None


def _holds_for_one_commit(review: Review) -> bool:
    """A request for changes; or an approval that is enough to land: the next commit is to be judged anew."""
    return review.verdict == "changes_requested" or review.counts


def _name(facts: SessionFacts) -> str:
    return facts.spec.profile or facts.spec.agent


def _wanted(facts: SessionFacts) -> bool:
    return facts.wanted == "run" and not facts.stopped
