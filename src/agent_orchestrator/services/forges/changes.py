"""A session's change at a forge, carried out: pushed, given a pull request, made ready, landed, answered in.

Each function is an effect and may be repeated after a crash. A forge does not know our keys; so each looks first whether it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.errors import AoError, Conflict, UsageError
from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.effects import Again, Effect
from agent_orchestrator.flow.engine import Flow
from agent_orchestrator.flow.events import Event
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.pull import PullRequest
from agent_orchestrator.flow.reactions import Intent
from agent_orchestrator.forge import SCM, Merged, Merging, PullSpec, PullState, Unmergeable, Waiting
from agent_orchestrator.git import Git, GitFailed
from agent_orchestrator.host import Host
from agent_orchestrator.services.forges.repositories import LOCAL, Repositories
from agent_orchestrator.services.sessions import Claim

PUSH_WITHIN = 600.0
LOOK_AGAIN = 60.0
"""Seconds after which a forge that lands by itself is asked how far it is; it also tells by itself."""

Run = Callable[[Intent, int], Awaitable[Sequence[Event]]]


class ForgeChanges:
    """The effects of pull requests that are not local."""

    def __init__(self, flow: Flow, host: Host, repositories: Repositories) -> None:
        self.flow = flow
        self.host = host
        self.repositories = repositories

    def effects(self, local: Mapping[str, Effect]) -> dict[str, Effect]:
        """By kind of intent: the local forge's for the sessions that it serves, these for the others."""
        remote = {"open-pr": self.open, "ready-pr": self.ready, "land": self.land}
        both = {kind: Effect(self._either(local[kind].run, run)) for kind, run in remote.items()}
        asked = {
            "push": self.push,
            "reply": self.reply,
            "close-pr": self.close,
            "make-ready": self.ready,
            "rerun": self.rerun,
        }
        return {**local, **both, **{kind: Effect(run) for kind, run in asked.items()}}

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
        text = str(request["pr"]).strip().lstrip("#!")
        if not text.isdigit():
            raise UsageError(f"{request['pr']!r} is no pull request", "write its number: --pr 42")
        scm = await self.repositories.reach(project.id, name)
        pull = await scm.get(int(text))
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
        url, env = (await self._scm(facts)).push_url()
        git = Git(self.host, Path(facts.spec.repo))
        try:
            await git.push(url, facts.branch, head, known=facts.pushed, env=env, timeout=PUSH_WITHIN)
        except GitFailed as error:
            there = await git.remote_head(url, facts.branch, env=env, timeout=PUSH_WITHIN)
            if there != head:
                raise _why(error, facts, there) from None
        return [self._event(facts, e.WorkPushed(head), f"{intent.key}:done")]

    async def open(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Give the branch a pull request; a draft until its agent is done."""
        facts = self.flow.sessions[intent.session]
        scm = await self._scm(facts)
        pull = await scm.open(PullSpec(facts.branch, facts.base, facts.spec.title, _body(facts)))
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
        text, key, thread = str(intent.args["body"]), str(intent.args["comment"]), intent.args.get("thread")
        known = any(one.thread == thread for one in pull.comments)
        await (scm.reply(pull, str(thread), text, key) if thread and known else scm.comment(pull, text, key))
        return []

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
        facts = self.flow.sessions[intent.session]
        try:
            scm, pull, pr = await self._pull(facts)
            if pr.landing is None:
                return []
            if pull.state != "open":
                return self._over(facts, intent, pull)
            if pull.queued:
                raise self._waits(facts, "the forge lands it when its turn has come")
            title = f"{pr.title} (#{pr.number})"
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

    def _over(self, facts: SessionFacts, intent: Intent, pull: PullState) -> list[Event]:
        if pull.state == "merged":
            return self._landed(facts, intent, pull.head, pull.merged_as or "")
        return [self._event(facts, e.PrClosed("it was closed at the forge"), f"{intent.key}:closed")]

    def _landed(self, facts: SessionFacts, intent: Intent, head: str, commit: str) -> list[Event]:
        asked = facts.pr.landing if facts.pr else None
        how, keep = (asked.strategy, not asked.delete_after) if asked else ("squash", False)
        return [self._event(facts, e.PrMerged(commit, "", head, how, keep_branch=keep), f"{intent.key}:done")]

    def _waits(self, facts: SessionFacts, reason: str) -> Again:
        known = facts.pr.landing.waits if facts.pr and facts.pr.landing else reason
        key = f"landing-waits:{facts.id}:{self.flow.clock():.6f}"
        told = [self._event(facts, e.LandingWaits(reason), key)] if known != reason else []
        return Again(LOOK_AGAIN, *told)


def _why(error: GitFailed, facts: SessionFacts, there: str | None) -> AoError:
    if there is not None and there != facts.pushed:
        return Conflict(
            f"somebody pushed {there[:12]} to {facts.branch}",
            f"let the agent take it in: ao send {facts.id} 'git pull --rebase', then it is pushed again",
        )
    return error


def _body(facts: SessionFacts) -> str:
    """What the pull request says: the task, and the issue that it closes."""
    parts = [facts.done or "", facts.spec.prompt if not facts.spec.issue else ""]
    if facts.spec.issue and facts.spec.issue.isdigit():
        parts.append(f"Closes #{facts.spec.issue}")
    return "\n\n".join(part for part in parts if part)
