"""After a landing at a forge: the base is fetched, the local one follows it, and the session's branch goes once it is provably there."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.home import Home
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.forge_sync.backoff import of_the_host
from agent_orchestrator.changes.forge_sync.connections import LOCAL, Repositories
from agent_orchestrator.changes.merge_queue.outcome_events import landing_spec
from agent_orchestrator.core.effects import Effect, patient
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols.forge import SCM
from agent_orchestrator.protocols.host import Host

FETCH_WITHIN = 600.0
_ADDRESS = re.compile(r"^(?:[a-z+]+://)?(?:[^@/]*@)?([^:/]+)(?::\d+)?[:/]+(.+?)(?:\.git)?/*$", re.IGNORECASE)

Forget = Callable[[SessionFacts], Awaitable[str]]

log = structlog.get_logger()


class AfterLanding:
    """What is left to do here once a change has landed there."""

    def __init__(self, flow: Flow, home: Home, host: Host, repositories: Repositories, forget_local: Forget) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.repositories = repositories
        self.forget_local = forget_local
        """The same as `forget_branch`, for a change that landed here."""

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {"follow": Effect(patient(self.follow, of_the_host))}

    async def follow(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Fetch the base that a change has landed on, let the local one go with it, and remove the branch there."""
        facts = self.flow.sessions[intent.session]
        if facts.pr is None or facts.pr.state != "merged":
            return []
        scm = await self.repositories.reach(facts.project, facts.spec.scm)
        url, env = scm.fetch_url()
        repo, base = Path(facts.spec.repo), facts.pr.base
        git = Git(self.host, repo)
        here = await tracking_ref(git, url, base)
        try:
            await git.fetch(url, [f"+refs/heads/{base}:{here}"], timeout=FETCH_WITHIN, env=env)
        except GitFailed as error:
            raise Temporary(f"{base} cannot be fetched from {scm.repo}: {error.text}", "git fetch") from None
        to = await git.resolve(here)
        if to is not None:
            stays = await merge.follow(self.host, repo, base, to, self._work(facts))
            if stays:
                log.info("a base does not follow its forge", session=facts.id, base=base, reason=stays)
        if intent.args.get("removeThere") and facts.branch != base:
            await self._remove_there(git, scm, facts)
        return []

    async def _remove_there(self, git: Git, scm: SCM, facts: SessionFacts) -> None:
        """The branch at the forge goes too, unless it has moved on; that it may not be removed does not undo the landing."""
        url, env = scm.push_url()
        head = facts.pr.landed_head if facts.pr else ""
        try:
            if head and await git.remote_head(url, facts.branch, env=env, timeout=FETCH_WITHIN) == head:
                await git.push_removal(url, facts.branch, head, env=env, timeout=FETCH_WITHIN)
        except GitFailed as error:
            log.info("a landed branch stays at its forge", session=facts.id, branch=facts.branch, error=error.text)

    async def forget_branch(self, facts: SessionFacts) -> str:
        """After a landing: remove the branch, once all of it is provably there; says what became of it."""
        if facts.spec.scm == LOCAL:
            return await self.forget_local(facts)
        pr = facts.pr
        if pr is None or pr.state != "merged" or pr.keep_branch:
            return ""
        try:
            git = Git(self.host, Path(facts.spec.repo))
            scm = await self.repositories.reach(facts.project, facts.spec.scm)
            base = await git.resolve(await tracking_ref(git, scm.fetch_url()[0], pr.base))
            there = merge.LandedElsewhere(pr.landed_head, base)
            cleaned = await merge.cleanup(self.host, landing_spec(self.home, facts), there)
        except AoError as error:
            return f"branch {facts.branch} stays: {error.text}"
        if not cleaned.deleted:
            return f"branch {facts.branch} stays: {cleaned.reason}"
        kept = f"; its commits are kept as {cleaned.kept}" if cleaned.kept else ""
        return f"branch {facts.branch} is removed{kept}"

    def _work(self, facts: SessionFacts) -> Path:
        work = self.home.path / "landing" / facts.id
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        return work


async def tracking_ref(git: Git, url: str, base: str) -> str:
    """Where the repository here keeps a forge's branch: under the remote that is the forge's, or a ref of ours."""
    listed = await git.run("config", "--get-regexp", r"^remote\..*\.url$", ok=(0, 1))
    for line in listed.text.splitlines():
        name, _, address = line.partition(" ")
        if _place(address) == _place(url):
            return f"refs/remotes/{name.removeprefix('remote.').removesuffix('.url')}/{base}"
    return f"refs/ao/forge/{base}"


def _place(address: str) -> tuple[str, str] | str:
    """Host and path of a repository's address, however it is written."""
    found = _ADDRESS.match(address.strip())
    return (found[1].casefold(), found[2].casefold()) if found else address.strip()
