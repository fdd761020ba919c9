"""A GitHub for tests in a process of its own, which outlives every daemon, and its own record of what happened to it."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.github import GitHubServer, merges
from agent_orchestrator.testing.github.graphql.endpoint import load
from tests.forges import fetch

REPO = "acme/app"
PRESENT = fetch.GRAPHQL.present and importlib.util.find_spec("graphql") is not None
"""False where what GitHub publishes is not there: `make test-forges` fetches it."""
PEOPLE = {"dev": "write", "rev": "write"}


class ForgeServer:
    """Our end of it: whatever is asked is done by `Town`, there."""

    def __init__(self) -> None:
        schema = fetch.GRAPHQL.path(fetch.GRAPHQL.files[0])
        load(schema)  # here, where it stays for the next one
        self._asking = threading.Lock()
        self._wire, theirs = Pipe()
        self._pid = os.fork()
        if not self._pid:
            self._wire.close()
            _serve(theirs, schema)
        theirs.close()

    def ask(self, what: str, *args: Any) -> Any:
        """Have something done there, or looked up."""
        with self._asking:  # people use it while faults happen to it
            self._wire.send((what, args))
            answer = self._wire.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """End it."""
        self._wire.close()
        os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)


def _serve(wire: Connection, schema: Path) -> None:
    code = 1
    try:
        with GitHubServer(schema=schema) as forge:

            def end(*_: object) -> None:
                forge.stop()
                os._exit(0)

            signal.signal(signal.SIGTERM, end)
            town = Town(forge)
            while True:
                what, args = wire.recv()
                try:
                    wire.send(getattr(town, what)(*args))
                except Exception as error:
                    wire.send(RuntimeError(f"{type(error).__name__}: {error}"))
    except (EOFError, KeyboardInterrupt):
        code = 0
    finally:
        os._exit(code)


class Town:
    """The people at the forge, its checks, and the record of everything that it told its webhooks."""

    def __init__(self, forge: GitHubServer) -> None:
        self.forge = forge
        self.told: list[tuple[str, ...]] = []
        self.pushed: list[tuple[str, str, str]] = []
        """Branch, what it was before, and after."""
        self.judged: dict[str, bool] = {}
        """Commit → did its check pass?"""
        self.merges: dict[int, tuple[str, str]] = {}
        """Pull request → the commit that the request to merge named, and the one that was merged."""
        self._down = False
        self._seen = self._times = 0
        self.repo = forge.repository(REPO, {"README.md": "# app\n"}, people=PEOPLE)
        plain: Callable[..., None] = forge.world.hooks.happened

        def happened(repo: Any, event: str, payload: dict[str, Any]) -> None:
            self._note(event, payload)
            plain(repo, event, payload)

        forge.world.hooks.happened = happened  # type: ignore[method-assign]
        land = merges.merge

        def merge(world: Any, pull: Any, user: Any, method: str = "merge", sha: str | None = None, *more: Any) -> str:
            made, head = land(world, pull, user, method, sha, *more), pull.head_sha
            self.merges[pull.number] = (sha or "", head)
            return made

        merges.merge = merge  # type: ignore[assignment]  # this process is the forge's own

    def _note(self, event: str, payload: dict[str, Any]) -> None:
        if event == "push":
            self.pushed.append((payload["ref"], payload["before"], payload["after"]))
        about = payload.get("pull_request") or payload.get("issue") or {}
        who, action = payload["sender"]["login"], str(payload.get("action", ""))
        more = {"labeled": "label", "unlabeled": "label"}.get(action)
        named = str((payload.get(more or "") or {}).get("name", ""))
        text = str((payload.get("comment") or {}).get("body", ""))
        self.told.append((event, action, str(about.get("number", "")), who, named or text))

    def place(self) -> tuple[str, str, str]:
        """Where it is: its API, where Git goes, and our token."""
        return self.forge.url, self.forge.git_url(REPO), self.forge.token("dev")

    def judge_pushes(self) -> None:
        """Checks run at every push: they fail where there is a broken file."""

        def run(_repo: Any, sha: str) -> None:
            broken = "broken.txt" in bare.git(self.repo.path, "ls-tree", "--name-only", sha)
            self.judged[sha] = not broken
            log = "E   assert broken\n" if broken else "ok\n"
            self.forge.check(self.repo, sha, "tests", "failure" if broken else "success", log=log)

        self.forge.ci(REPO, run)

    def open_issue(self, title: str, body: str, label: str) -> int:
        """An issue with a label."""
        made = self.forge.issue(REPO, title, body, by="rev")
        self.forge.label_issue(made, label, by="rev")
        return made.number

    def demand(self, check: str) -> None:
        """A check that nothing lands without."""
        self.forge.protect(REPO, checks=(check,))

    def check(self, number: int, name: str, conclusion: str) -> None:
        """A result for a pull request's head."""
        head = self.forge.find_pull(REPO, number).head_sha
        self.forge.check(self.repo, head, name, conclusion, log="some output\n")

    def discuss(self, number: int, path: str, text: str) -> None:
        """Somebody comments on a line."""
        self.forge.thread(self.forge.find_pull(REPO, number), path, 1, text, by="rev")

    def approve(self, number: int) -> None:
        """Somebody approves."""
        self.forge.review(self.forge.find_pull(REPO, number), "APPROVE", by="rev")

    def pull(self, number: int) -> dict[str, Any]:
        """A pull request, as it is there."""
        with self.forge.world.lock:
            one = self.forge.find_pull(REPO, number)
            return {
                "head": one.head_sha,
                "draft": one.draft,
                "state": "merged" if one.merged else one.state,
                "merged": one.merge_commit,
                "autoMerge": one.auto_merge is not None,
                "said": [comment.body for thread in one.threads for comment in thread.comments],
                "comments": [comment.body for comment in one.comments],
                "branch": self.repo.head(one.head_ref),
            }

    def issue(self, number: int) -> dict[str, Any]:
        """An issue, as it is there."""
        with self.forge.world.lock:
            one = self.forge.find_issue(REPO, number)
            return {
                "state": one.state,
                "labels": [label.name for label in one.labels],
                "people": [person.login for person in one.assignees],
                "comments": [comment.body for comment in one.comments],
            }

    def base(self) -> tuple[str, list[str], list[str]]:
        """The base: its commit, the titles of its commits, its files."""
        head = self.repo.head("main") or ""
        titles = [one.message.partition("\n")[0] for one in self.forge.log(REPO)]
        return head, titles, bare.git(self.repo.path, "ls-tree", "--name-only", head).split()

    def pulls(self) -> int:
        """How many pull requests there are."""
        return len(self.repo.pulls())

    def record(self) -> list[tuple[str, ...]]:
        """Everything that happened, in its order."""
        return self.told

    def pushes(self) -> list[tuple[str, str, str]]:
        """Every push, in order."""
        return self.pushed

    def landings(self) -> list[dict[str, Any]]:
        """Every pull request: whose branch it is of, and what of it was merged, judged how, approved at which commits."""
        with self.forge.world.lock:
            return [
                {
                    "number": one.number,
                    "branch": one.head_ref,
                    "head": one.head_sha,
                    "merged": one.merged,
                    "named": self.merges.get(one.number, ("", ""))[0],
                    "landed": self.merges.get(one.number, ("", ""))[1],
                    "passed": self.judged.get(self.merges.get(one.number, ("", one.head_sha))[1]),
                    "approved": [review.commit_id for review in one.reviews if review.state == "APPROVED"],
                    "comments": [comment.body for comment in one.comments],
                }
                for one in self.repo.pulls()
            ]

    def tell(self, address: str, secret: str) -> None:
        """Send webhooks there."""
        self.forge.hook(REPO, address, secret)

    def fail(self, what: int | str, times: int, more: dict[str, Any]) -> None:
        """Let the next requests of the daemon fail."""
        self._times = times
        self.forge.fail(what, next=times, **more)

    def clear_faults(self) -> int:
        """No more of that; how many requests it hit."""
        hit = sum(self._times - fault.left for fault in self.forge.ledger.faults)
        self.forge.clear_faults()
        return hit

    def down(self) -> None:
        """Nobody listens."""
        if not self._down:
            self._down = True
            self.forge.down()

    def up(self) -> None:
        """Somebody does again."""
        if self._down:
            self._down = False
            self.forge.up()

    def hooks(self, order: str) -> int:
        """From now on webhooks are `lost`, `doubled`, `reordered`, or as they should be; how many there were since the last word."""
        hooks = self.forge.hooks
        count, self._seen = len(hooks.sent) - self._seen, len(hooks.sent)
        hooks._drop = 1_000_000 if order == "lost" else 0
        hooks._double = 1_000_000 if order == "doubled" else 0
        if order == "reordered":
            hooks.hold()
        else:
            hooks.release("reversed")
        return count

    def faults(self) -> list[str]:
        """What went wrong inside of it."""
        return [repr(error) for error in self.forge.world.errors]
