"""Records of merges in the repository itself: `refs/ao/landed/<session>/<head>`.

The ref is written before the base moves and names the commit that is about to merge, so a merge is done when its record
exists *and* the base contains that commit. It also keeps the merged head, which Git would otherwise collect after a
squash.
"""

from __future__ import annotations

import re

from agent_orchestrator.base.git.refs import escape_for_ref
from agent_orchestrator.changes.merge.model import CompletedMerge, MergeSpec
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.protocols.host import Host

_RECORD_IDENTITY = {
    "GIT_AUTHOR_NAME": "Agent Orchestrator",
    "GIT_AUTHOR_EMAIL": "ao@localhost",
    "GIT_COMMITTER_NAME": "Agent Orchestrator",
    "GIT_COMMITTER_EMAIL": "ao@localhost",
}
"""Author and committer of records."""


def record_ref(session: str, head: str) -> str:
    """Return the ref that records the merge of this head."""
    return f"refs/ao/landed/{escape_for_ref(session)}/{head}"


async def find_merge(host: Host, spec: MergeSpec) -> CompletedMerge | None:
    """Return the merge of this head of this session, or None if it has not merged."""
    repository = await open_repository(host, spec.repo, spec.base)
    base = await repository.base_head(spec.base)
    return await find_recorded_merge(repository, spec.session, await repository.resolve_commit(spec.head), base)


async def find_recorded_merge(repository: Repository, session: str, head: str, base: str) -> CompletedMerge | None:
    """Return the recorded merge of this head if the base (a commit) contains it, or None."""
    ref = record_ref(session, head)
    if await repository.git.resolve(ref) is None:
        return None
    text = await repository.git.text("show", "-s", "--format=%B", "--no-show-signature", ref)
    fields = dict(re.findall(r"^(\S+): ([0-9a-f]+)$", text, re.MULTILINE))
    if not {"commit", "base-before"} <= fields.keys() or await repository.git.resolve(fields["commit"]) is None:
        return None
    if not await repository.git.is_ancestor(fields["commit"], base):
        return None
    return CompletedMerge(fields["base-before"], fields["commit"])


async def write_record(repository: Repository, session: str, head: str, landing: CompletedMerge) -> str:
    """Record a merge that is about to be made; return the ref."""
    text = f"landing of {session}\n\nhead: {head}\ncommit: {landing.commit}\nbase-before: {landing.base_before}\n"
    parents = tuple(dict.fromkeys((landing.commit, head)))
    tree = await repository.tree(landing.commit)
    ref = record_ref(session, head)
    await repository.git.update_ref(
        ref, await repository.git.commit_tree(tree, parents, text, _RECORD_IDENTITY), reason="ao: landing"
    )
    return ref
