"""Pull requests of a repository on this machine (plugin slot `scm`).

What people and agents do with them is recorded by the daemon, which also runs the checks and merges. Branches are in the
project's own repository, so nothing is pushed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_orchestrator.base.git.refs import find_layout, read_ref
from agent_orchestrator.errors import Conflict, NotFound, UsageError
from agent_orchestrator.protocols.forge import (
    SCM,
    Author,
    Hint,
    KnownPullRequest,
    MergeOptions,
    PullRequestSpec,
    PullRequestState,
    Unmergeable,
)
from agent_orchestrator.protocols.forge_storage import PullRequestRecord, PullRequestStorage
from agent_orchestrator.protocols.host import Host


class LocalForge(SCM):
    """Pull requests on this machine, kept by the daemon; it runs the checks and merges."""

    name = "local"
    hosted: ClassVar[bool] = False

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:  # noqa: ARG002 - as all plugins are made
        records = config.get("records")
        if not isinstance(records, PullRequestStorage):
            raise UsageError(
                "the local forge needs the daemon's records", "name it as scm: local, and let the daemon make it"
            )
        self._records = records
        self._path = Path(str(config.get("path") or ""))
        self._repo = str(config.get("repo") or self._path.name)

    @property
    def repo(self) -> str:
        """Return the repository's name."""
        return self._repo

    async def configured(self) -> bool:
        """Return True: no token is needed."""
        return True

    async def login(self) -> Author:
        """Return the agent as the account: no other one is needed."""
        return Author("agent", "agent", "yes")

    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the project's own repository."""
        return str(self._path), {}

    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the project's own repository."""
        return str(self._path), {}

    # -- reading -------------------------------------------------------------------------------------------------------

    async def find(self, branch: str) -> PullRequestState | None:
        """Return the open pull request of a branch, else its newest one."""
        record = self._records.find(branch)
        return None if record is None else self._state(record)

    async def get(self, number: int) -> PullRequestState:
        """Return a pull request by its number."""
        record = self._records.get(number)
        if record is None:
            raise NotFound(f"{self._repo} has no pull request #{number}", "see what there is: ao status")
        return self._state(record)

    async def read(self, ids: Sequence[str]) -> list[PullRequestState]:
        """Return those of these pull requests that exist; an id is the number."""
        records = [self._records.get(int(pull_id)) for pull_id in ids if pull_id.isdecimal()]
        return [self._state(pull) for pull in records if pull is not None]

    async def changed(self, pulls: Sequence[KnownPullRequest]) -> Hint:  # noqa: ARG002 - nothing happens elsewhere
        """Return that nothing has to be read: what happens is recorded as it happens."""
        return Hint(self._repo)

    def _state(self, pull: PullRequestRecord) -> PullRequestState:
        """Return a pull request with the commits of its branches."""
        return PullRequestState(
            number=pull.number,
            id=str(pull.number),
            url="",
            title=pull.title,
            state=pull.state,
            draft=pull.draft,
            branch=pull.branch,
            head=self._commit(pull.branch),
            base=pull.base,
            base_head=self._commit(pull.base),
            reviews=pull.reviews,
            comments=pull.comments,
            merged_as=pull.merged_as,
        )

    def _commit(self, branch: str) -> str:
        """Return the commit of a branch in the repository, or an empty string."""
        layout = find_layout(self._path)
        return (read_ref(layout.common, f"refs/heads/{branch}") if layout else None) or ""

    # -- recording -----------------------------------------------------------------------------------------------------

    async def open(self, spec: PullRequestSpec) -> PullRequestState:
        """Open a pull request, or return the one that there is."""
        return self._state(await self._records.open(spec))

    async def ready(self, pull: PullRequestState) -> None:
        """Mark a draft as ready for review."""
        await self._records.ready(pull.number)

    async def close(self, pull: PullRequestState) -> None:
        """Close without merging."""
        await self._records.close(pull.number)

    async def comment(self, pull: PullRequestState, text: str, key: str) -> str:
        """Comment on the whole pull request, once per key."""
        return await self._records.comment(pull.number, text, key)

    async def reply(self, pull: PullRequestState, thread: str, text: str, key: str) -> str:
        """Reply in a discussion, once per key."""
        return await self._records.comment(pull.number, text, key, thread)

    async def resolve(self, thread: str) -> None:
        """Mark a discussion as resolved."""
        await self._records.resolve(thread)

    async def request_review(self, pull: PullRequestState, people: Sequence[str]) -> None:  # noqa: ARG002
        """Raise `Conflict`: other people cannot see it."""
        raise Conflict(f"pull request #{pull.number} is here, where nobody else sees it", "have an agent review it")

    # -- what the daemon does ------------------------------------------------------------------------------------------

    async def merge(self, pull: PullRequestState, how: MergeOptions) -> Unmergeable:
        """Return that it is not merged here: the daemon's merge queue does that."""
        if how.head != self._commit(pull.branch):
            return Unmergeable("its branch moved meanwhile", moved=True)
        return Unmergeable("the daemon merges it: ao merge")

    async def cancel_merge(self, pull: PullRequestState) -> None:
        """Do nothing: it is in no queue but the daemon's."""

    async def rerun(self, pull: PullRequestState) -> int:  # noqa: ARG002
        """Return 0: the daemon runs the checks."""
        return 0

    async def log(self, job: str, most: int) -> bytes:  # noqa: ARG002
        """Raise `NotFound`: the daemon has the output of checks."""
        raise NotFound(f"there is no output of {job}", "see it: ao checks")
