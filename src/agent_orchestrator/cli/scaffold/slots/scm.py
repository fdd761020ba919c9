"""the-name: pull requests for a bare Git repository, kept in a JSON file inside it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_orchestrator.errors import AoError, NotFound, UsageError
from agent_orchestrator.protocols import (
    SCM,
    Author,
    Hint,
    Host,
    KnownPullRequest,
    Merged,
    MergeOptions,
    MergeQueued,
    PullRequestComment,
    PullRequestSpec,
    PullRequestState,
    Unmergeable,
)


class TheClass(SCM):
    """A forge of files; replace `_load`, `_save` and `_git` with calls of your forge's API."""

    name = "the-name"
    permissions: ClassVar = ["files", "processes"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._path = Path(str(config.get("repository") or config.get("path") or "")).expanduser()
        self._url = str(config.get("url") or "https://the-name.invalid")
        if not (self._path / "HEAD").is_file():
            raise UsageError(f"scm.repository: {self._path} is no bare Git repository", "make one: git init --bare")

    # -- who and where -------------------------------------------------------------------------------------------------

    @property
    def repo(self) -> str:
        """The repository's name at the forge."""
        return self._path.name.removesuffix(".git")

    async def configured(self) -> bool:
        """Return whether there is a token; here none is needed."""
        return True

    async def login(self) -> Author:
        """Return our own account at the forge."""
        return Author(self.name, kind="agent", write_access="yes")

    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL to push branches to, and the environment that lets Git do so without asking."""
        return str(self._path), {}

    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL to fetch base branches from."""
        return str(self._path), {}

    # -- read ----------------------------------------------------------------------------------------------------------

    async def find(self, branch: str) -> PullRequestState | None:
        """Return the open pull request of a branch, else its newest one, else None."""
        pull_requests = [pull_request for pull_request in self._load() if pull_request["branch"] == branch]
        pull_requests.sort(key=lambda pull_request: (pull_request["state"] == "open", pull_request["number"]))
        return await self._state(pull_requests[-1]) if pull_requests else None

    async def get(self, number: int) -> PullRequestState:
        """Return a pull request by its number."""
        return await self._state(self._find(self._load(), number))

    async def read(self, ids: Sequence[str]) -> list[PullRequestState]:
        """Return the current state of these pull requests, without those that do not exist."""
        return [await self._state(pull_request) for pull_request in self._load() if str(pull_request["number"]) in ids]

    async def changed(self, pulls: Sequence[KnownPullRequest]) -> Hint:
        """Return which pull requests to read; reading files costs nothing, so all of them."""
        return Hint(self.repo, pulls=tuple(pull.number for pull in pulls))

    async def log(self, job: str, most: int) -> bytes:
        """Return the output of a check; here there are no checks."""
        raise NotFound(f"{self.repo} has no check {job} with {most} bytes", "it runs no checks")

    # -- change --------------------------------------------------------------------------------------------------------

    async def open(self, spec: PullRequestSpec) -> PullRequestState:
        """Open a pull request for a branch; return the existing one if it is open already."""
        existing = await self.find(spec.branch)
        if existing is not None and existing.state == "open":
            return existing
        if not await self._head(spec.branch):
            raise UsageError(f"{self.repo} has no branch {spec.branch}", "push the branch first")
        pulls = self._load()
        pull_request = {
            "number": len(pulls) + 1,
            "title": spec.title,
            "body": spec.body,
            "draft": spec.draft,
            "state": "open",
        }
        pull_request |= {"branch": spec.branch, "base": spec.base, "head": "", "merged": None, "comments": []}
        self._save([*pulls, pull_request])
        return await self._state(pull_request)

    async def ready(self, pull: PullRequestState) -> None:
        """Mark the pull request as ready for review."""
        self._update(pull, draft=False)

    async def close(self, pull: PullRequestState) -> None:
        """Close the pull request without merging it."""
        if self._find(self._load(), pull.number)["state"] == "open":
            self._update(pull, state="closed", head=await self._head(pull.branch))

    async def merge(self, pull: PullRequestState, how: MergeOptions) -> Merged | MergeQueued | Unmergeable:
        """Merge exactly the given head commit; a pull request that is merged already is returned."""
        now = self._find(self._load(), pull.number)
        if now["merged"]:
            return Merged(now["merged"])
        head, base = await self._head(pull.branch), await self._head(pull.base)
        if head != how.head:
            return Unmergeable(f"{pull.branch} has moved to {head[:9]}", moved=True)
        tree = await self._merged_tree(base, head)
        if tree is None:
            return Unmergeable(f"{pull.branch} conflicts with {pull.base}")
        parents = ["-p", base] + (["-p", head] if how.strategy == "merge" else [])
        commit = await self._git("commit-tree", tree, *parents, "-m", f"{how.title}\n\n{how.body}".strip())
        await self._git("update-ref", f"refs/heads/{pull.base}", commit, base)
        self._update(pull, state="merged", merged=commit, head=head)
        if how.delete_branch:
            await self._git("update-ref", "-d", f"refs/heads/{pull.branch}", head)
        return Merged(commit)

    async def cancel_merge(self, pull: PullRequestState) -> None:
        """Do nothing: no merge waits here."""

    async def rerun(self, pull: PullRequestState) -> int:
        """Return how many checks run again; here there are none."""
        del pull
        return 0

    async def request_review(self, pull: PullRequestState, people: Sequence[str]) -> None:
        """Do nothing: there are no reviewers here."""

    # -- say -----------------------------------------------------------------------------------------------------------

    async def comment(self, pull: PullRequestState, text: str, key: str) -> str:
        """Comment on the pull request, once per key."""
        return self._add_comment(pull, None, text, key)

    async def reply(self, pull: PullRequestState, thread: str, text: str, key: str) -> str:
        """Reply in a discussion, once per key."""
        return self._add_comment(pull, thread, text, key)

    async def resolve(self, thread: str) -> None:
        """Mark a discussion as resolved."""
        pulls = self._load()
        for comment in (
            comment for pull_request in pulls for comment in pull_request["comments"] if comment["thread"] == thread
        ):
            comment["resolved"] = True
        self._save(pulls)

    def _add_comment(self, pull: PullRequestState, thread: str | None, text: str, key: str) -> str:
        pulls = self._load()
        comments = self._find(pulls, pull.number)["comments"]
        for existing in comments:
            if existing["key"] == key:
                return str(existing["id"])
        comment = {"id": f"{pull.number}.{len(comments) + 1}", "key": key, "text": text, "thread": thread}
        comments.append({**comment, "resolved": False, "at": time.time()})
        self._save(pulls)
        return str(comment["id"])

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _state(self, pull_request: Mapping[str, Any]) -> PullRequestState:
        """Return the state of a stored pull request; an open one's head is its branch's."""
        head = pull_request["head"] or await self._head(pull_request["branch"])
        base, author = await self._head(pull_request["base"]), await self.login()
        is_mergeable = pull_request["state"] != "open" or await self._merged_tree(base, head) is not None
        comments = [
            PullRequestComment(
                comment["id"],
                comment["text"],
                author,
                comment["at"],
                thread=comment["thread"],
                resolved=comment["resolved"],
                mark=comment["key"],
            )
            for comment in pull_request["comments"]
        ]
        return PullRequestState(
            number=pull_request["number"],
            id=str(pull_request["number"]),
            url=f"{self._url}/{self.repo}/{pull_request['number']}",
            title=pull_request["title"],
            state=pull_request["state"],
            draft=pull_request["draft"],
            branch=pull_request["branch"],
            head=head,
            base=pull_request["base"],
            base_head=base,
            mergeable="yes" if is_mergeable else "no",
            checks_expected=False,
            comments=tuple(comments),
            merged_as=pull_request["merged"],
        )

    async def _head(self, branch: str) -> str:
        result = await self._host.run(
            ["git", "-C", str(self._path), "rev-parse", "-q", "--verify", f"refs/heads/{branch}"]
        )
        return result.text.strip() if result.code == 0 else ""

    async def _merged_tree(self, base: str, head: str) -> str | None:
        """Return the tree of both merged, or None if they conflict."""
        result = await self._host.run(["git", "-C", str(self._path), "merge-tree", "--write-tree", base, head])
        return result.text.split("\n", 1)[0] if result.code == 0 else None

    async def _git(self, *argv: str) -> str:
        result = await self._host.run(["git", "-C", str(self._path), *argv])
        if result.code:
            raise AoError(f"git {argv[0]} in {self._path} failed: {result.error}", "see whether it can be written")
        return result.text.strip()

    def _find(self, pulls: Sequence[dict[str, Any]], number: int) -> dict[str, Any]:
        for pull_request in pulls:
            if pull_request["number"] == number:
                return pull_request
        raise NotFound(f"{self.repo} has no pull request {number}", "check its number")

    def _update(self, pull: PullRequestState, **changes: Any) -> None:
        pulls = self._load()
        self._find(pulls, pull.number).update(changes)
        self._save(pulls)

    def _load(self) -> list[dict[str, Any]]:
        try:
            pulls: list[dict[str, Any]] = json.loads((self._path / "pulls.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return pulls

    def _save(self, pulls: Sequence[Mapping[str, Any]]) -> None:
        """Write the whole file atomically."""
        new = self._path / "pulls.json.new"
        new.write_text(json.dumps(pulls, indent=1, ensure_ascii=False), encoding="utf-8")
        new.replace(self._path / "pulls.json")
