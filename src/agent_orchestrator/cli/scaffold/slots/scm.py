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
    Known,
    Merged,
    Merging,
    PullComment,
    PullSpec,
    PullState,
    Unmergeable,
    Waiting,
)


class TheClass(SCM):
    """A forge of files; put calls of your forge's API in the place of `_load`, `_save` and `_git`."""

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
        """The repository's name there."""
        return self._path.name.removesuffix(".git")

    async def configured(self) -> bool:
        """Is there a token for it? None is needed."""
        return True

    async def login(self) -> Author:
        """Who we are there."""
        return Author(self.name, kind="agent", write_access="yes")

    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Where branches are pushed to, and the environment that lets Git do so without asking."""
        return str(self._path), {}

    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Where bases are fetched from."""
        return str(self._path), {}

    # -- read ----------------------------------------------------------------------------------------------------------

    async def find(self, branch: str) -> PullState | None:
        """The open pull request of a branch, else its newest one."""
        found = [one for one in self._load() if one["branch"] == branch]
        found.sort(key=lambda one: (one["state"] == "open", one["number"]))
        return await self._state(found[-1]) if found else None

    async def get(self, number: int) -> PullState:
        """A pull request by its number."""
        return await self._state(self._find(self._load(), number))

    async def read(self, ids: Sequence[str]) -> list[PullState]:
        """Those that there are, as they are."""
        return [await self._state(one) for one in self._load() if str(one["number"]) in ids]

    async def changed(self, known: Sequence[Known]) -> Hint:
        """What is worth reading; reading files costs nothing, so all of it is."""
        return Hint(self.repo, pulls=tuple(one.number for one in known))

    async def log(self, job: str, most: int) -> bytes:
        """What a check printed; here are none."""
        raise NotFound(f"{self.repo} has no check {job} with {most} bytes", "it runs no checks")

    # -- change --------------------------------------------------------------------------------------------------------

    async def open(self, spec: PullSpec) -> PullState:
        """Give a branch a pull request; one that is open already is found, not made twice."""
        known = await self.find(spec.branch)
        if known is not None and known.state == "open":
            return known
        if not await self._head(spec.branch):
            raise UsageError(f"{self.repo} has no branch {spec.branch}", "push the branch first")
        pulls = self._load()
        made = {"number": len(pulls) + 1, "title": spec.title, "body": spec.body, "draft": spec.draft, "state": "open"}
        made |= {"branch": spec.branch, "base": spec.base, "head": "", "merged": None, "comments": []}
        self._save([*pulls, made])
        return await self._state(made)

    async def ready(self, pull: PullState) -> None:
        """No draft any more."""
        self._update(pull, draft=False)

    async def close(self, pull: PullState) -> None:
        """Close without landing."""
        if self._find(self._load(), pull.number)["state"] == "open":
            self._update(pull, state="closed", head=await self._head(pull.branch))

    async def merge(self, pull: PullState, how: Merging) -> Merged | Waiting | Unmergeable:
        """Land exactly the commit that may; what has landed is found."""
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

    async def call_off(self, pull: PullState) -> None:
        """Nothing waits here."""

    async def rerun(self, pull: PullState) -> int:
        """Here are no checks."""
        del pull
        return 0

    async def request_review(self, pull: PullState, people: Sequence[str]) -> None:
        """Here is nobody to ask."""

    # -- say -----------------------------------------------------------------------------------------------------------

    async def comment(self, pull: PullState, text: str, key: str) -> str:
        """Say something about the whole, once for a key."""
        return self._say(pull, None, text, key)

    async def reply(self, pull: PullState, thread: str, text: str, key: str) -> str:
        """Answer in a discussion, once for a key."""
        return self._say(pull, thread, text, key)

    async def resolve(self, thread: str) -> None:
        """A discussion is settled."""
        pulls = self._load()
        for said in (said for one in pulls for said in one["comments"] if said["thread"] == thread):
            said["resolved"] = True
        self._save(pulls)

    def _say(self, pull: PullState, thread: str | None, text: str, key: str) -> str:
        pulls = self._load()
        comments = self._find(pulls, pull.number)["comments"]
        for said in comments:
            if said["key"] == key:
                return str(said["id"])
        made = {"id": f"{pull.number}.{len(comments) + 1}", "key": key, "text": text, "thread": thread}
        comments.append({**made, "resolved": False, "at": time.time()})
        self._save(pulls)
        return str(made["id"])

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _state(self, one: Mapping[str, Any]) -> PullState:
        """A pull request as it is: an open one's head is its branch's."""
        head = one["head"] or await self._head(one["branch"])
        base, us = await self._head(one["base"]), await self.login()
        fits = one["state"] != "open" or await self._merged_tree(base, head) is not None
        said = [
            PullComment(
                each["id"],
                each["text"],
                us,
                each["at"],
                thread=each["thread"],
                resolved=each["resolved"],
                mark=each["key"],
            )
            for each in one["comments"]
        ]
        return PullState(
            number=one["number"],
            id=str(one["number"]),
            url=f"{self._url}/{self.repo}/{one['number']}",
            title=one["title"],
            state=one["state"],
            draft=one["draft"],
            branch=one["branch"],
            head=head,
            base=one["base"],
            base_head=base,
            mergeable="yes" if fits else "no",
            checks_expected=False,
            comments=tuple(said),
            merged_as=one["merged"],
        )

    async def _head(self, branch: str) -> str:
        done = await self._host.run(
            ["git", "-C", str(self._path), "rev-parse", "-q", "--verify", f"refs/heads/{branch}"]
        )
        return done.text.strip() if done.code == 0 else ""

    async def _merged_tree(self, base: str, head: str) -> str | None:
        """The tree of both together; none where they conflict."""
        done = await self._host.run(["git", "-C", str(self._path), "merge-tree", "--write-tree", base, head])
        return done.text.split("\n", 1)[0] if done.code == 0 else None

    async def _git(self, *argv: str) -> str:
        done = await self._host.run(["git", "-C", str(self._path), *argv])
        if done.code:
            raise AoError(f"git {argv[0]} in {self._path} failed: {done.error}", "see whether it can be written")
        return done.text.strip()

    def _find(self, pulls: Sequence[dict[str, Any]], number: int) -> dict[str, Any]:
        for one in pulls:
            if one["number"] == number:
                return one
        raise NotFound(f"{self.repo} has no pull request {number}", "check its number")

    def _update(self, pull: PullState, **changes: Any) -> None:
        pulls = self._load()
        self._find(pulls, pull.number).update(changes)
        self._save(pulls)

    def _load(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = json.loads((self._path / "pulls.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return found

    def _save(self, pulls: Sequence[Mapping[str, Any]]) -> None:
        """The whole file or nothing of it, whenever we are killed."""
        new = self._path / "pulls.json.new"
        new.write_text(json.dumps(pulls, indent=1, ensure_ascii=False), encoding="utf-8")
        new.replace(self._path / "pulls.json")
