"""Clean up after a merge at a forge: fetch the base, move the local base branch, and delete the session's branch.

The branch is deleted only once all of its commits are on the base.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import structlog

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.forge_sync.backoff import is_host_error
from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.merge_queue.outcome_events import merge_spec
from agent_orchestrator.core.effects import Effect, retry_until_done
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import MergeRequest, PullRequest
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols.forge import SCM
from agent_orchestrator.sessions.part import Core, Part

FETCH_TIMEOUT = 600.0
_ADDRESS = re.compile(r"^(?:[a-z+]+://)?(?:[^@/]*@)?([^:/]+)(?::\d+)?[:/]+(.+?)(?:\.git)?/*$", re.IGNORECASE)

log = structlog.get_logger()


class MergeCleanup(Part):
    """What is left to do on this machine after a change has merged at a forge."""

    def __init__(self, core: Core, repositories: ForgeConnections) -> None:
        super().__init__(core)
        self.connections = repositories

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {"follow": Effect(retry_until_done(self.follow_merged_base, is_host_error))}

    async def follow_merged_base(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Fetch the base that a change has merged into, move the local base branch to it, and delete the branch at the forge.

        Raises `Temporary` if the base cannot be fetched.
        """
        facts = self.flow.sessions[intent.session]
        if facts.pr is None or facts.pr.state != "merged":
            return []
        scm = await self.connections.trusted_forge(facts.project, facts.spec.scm)
        url, env = scm.fetch_url()
        repo, base = Path(facts.spec.repo), facts.pr.base
        git = Git(self.host, repo)
        ref = await tracking_ref(git, url, base)
        try:
            await git.fetch(url, [f"+refs/heads/{base}:{ref}"], timeout=FETCH_TIMEOUT, env=env)
        except GitFailed as error:
            raise Temporary(f"{base} cannot be fetched from {scm.repo}: {error.text}", "git fetch") from None
        target = await git.resolve(ref)
        if target is not None:
            reason = await merge.follow_remote_base(self.host, repo, base, target, self._scratch_folder(facts))
            if reason:
                log.info("a base does not follow its forge", session=facts.id, base=base, reason=reason)
        if intent.args.get("removeThere") and facts.branch != base:
            await self._delete_remote_branch(git, scm, facts)
        return []

    async def _delete_remote_branch(self, git: Git, scm: SCM, facts: SessionFacts) -> None:
        """Delete the session's branch at the forge, unless it has moved on.

        A failure to delete is only logged: the change stays merged.
        """
        url, env = scm.push_url()
        head = facts.pr.merged_head if facts.pr else ""
        try:
            if head and await git.remote_head(url, facts.branch, env=env, timeout=FETCH_TIMEOUT) == head:
                await git.delete_remote_branch(url, facts.branch, head, env=env, timeout=FETCH_TIMEOUT)
        except GitFailed as error:
            log.info("a landed branch stays at its forge", session=facts.id, branch=facts.branch, error=error.text)

    async def delete_merged_branch(self, facts: SessionFacts) -> str:
        """Delete the local branch after a merge, once all of it is on the base branch, here or at the forge.

        Return what became of it, or "" if there is nothing to do.
        """
        if facts.pr is None or facts.pr.state != "merged" or facts.pr.keep_branch:
            return ""
        try:
            forge_merge = await self._forge_merge(facts, facts.pr) if facts.has_remote_forge else None
            cleaned = await merge.delete_branch(self.host, merge_spec(self.home, facts), forge_merge)
        except AoError as error:
            return f"branch {facts.branch} stays: {error.text}"
        if not cleaned.deleted:
            return f"branch {facts.branch} stays: {cleaned.reason}"
        kept_note = f"; its commits are kept as {cleaned.record_ref}" if cleaned.record_ref else ""
        return f"branch {facts.branch} is removed{kept_note}"

    async def _forge_merge(self, facts: SessionFacts, pr: PullRequest) -> merge.MergedAtForge:
        """Return what the forge merged, and where its base branch is as far as it was fetched."""
        git = Git(self.host, Path(facts.spec.repo))
        scm = await self.connections.trusted_forge(facts.project, facts.spec.scm)
        base = await git.resolve(await tracking_ref(git, scm.fetch_url()[0], pr.base))
        return merge.MergedAtForge(pr.merged_head, base)

    def _scratch_folder(self, facts: SessionFacts) -> Path:
        """Return the session's folder for scratch files; created if necessary."""
        work = self.home.path / "landing" / facts.id
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        return work


def keeps_branch(request: MergeRequest | None) -> bool:
    """Return whether a merged change's branch stays; one that merges without a request from here is deleted, but not at the forge."""
    return request is not None and not request.delete_after


async def tracking_ref(git: Git, url: str, base: str) -> str:
    """Return the local ref for a forge's branch: that of the remote with the forge's address, or one below `refs/ao/forge/`."""
    listed = await git.run("config", "--get-regexp", r"^remote\..*\.url$", ok=(0, 1))
    for line in listed.text.splitlines():
        name, _, address = line.partition(" ")
        if _host_and_path(address) == _host_and_path(url):
            return f"refs/remotes/{name.removeprefix('remote.').removesuffix('.url')}/{base}"
    return f"refs/ao/forge/{base}"


def _host_and_path(address: str) -> tuple[str, str] | str:
    """Return the host and path of a repository's address, or the address if it cannot be parsed."""
    match = _ADDRESS.match(address.strip())
    return (match[1].casefold(), match[2].casefold()) if match else address.strip()
