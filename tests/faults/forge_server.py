"""A GitHub for tests in a separate process, which outlives the daemons, with its own record of events."""

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

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import GitHubServer, merges
from agent_orchestrator.testing.github.graphql.endpoint import load_schema
from tests.forges import fetch

REPO = "acme/app"
IS_AVAILABLE = fetch.GRAPHQL.is_present and importlib.util.find_spec("graphql") is not None
"""Whether GitHub's published schema was fetched (`make test-forges`)."""
MEMBER_PERMISSIONS = {"dev": "write", "rev": "write"}


class ForgeServer:
    """The client side: every call is executed by `ForgeActors` in the other process."""

    def __init__(self) -> None:
        schema = fetch.GRAPHQL.path(fetch.GRAPHQL.files[0])
        load_schema(schema)  # before the fork, so that the next one has it cached
        self._lock = threading.Lock()
        self._wire, theirs = Pipe()
        self._pid = os.fork()
        if not self._pid:
            self._wire.close()
            _serve(theirs, schema)
        theirs.close()

    def ask(self, what: str, *args: Any) -> Any:
        """Call a method of `ForgeActors` and return its result; raise `RuntimeError` if it fails."""
        with self._lock:  # people and faults use it concurrently
            self._wire.send((what, args))
            answer = self._wire.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """End the process."""
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
            town = ForgeActors(forge)
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


class ForgeActors:
    """The people at the forge, its checks, and the record of all webhook events."""

    def __init__(self, forge: GitHubServer) -> None:
        self.forge = forge
        self.events: list[tuple[str, ...]] = []
        self.pushed: list[tuple[str, str, str]] = []
        """Ref, commit before, commit after."""
        self.check_results: dict[str, bool] = {}
        """Commit → whether its check passed."""
        self.merges: dict[int, tuple[str, str]] = {}
        """Pull request → the commit named in the request to merge, and the merged one."""
        self._down = False
        self._counted_hooks = self._times = 0
        self.repo = forge.repository(REPO, {"README.md": "# app\n"}, people=MEMBER_PERMISSIONS)
        original: Callable[..., None] = forge.world.hooks.send_event

        def happened(repo: Any, event: str, payload: dict[str, Any]) -> None:
            self._record(event, payload)
            original(repo, event, payload)

        forge.world.hooks.send_event = happened  # type: ignore[method-assign]
        original_merge = merges.merge

        def merge(
            world: Any, pull: Any, user: Any, method: str = "merge", sha: str | None = None, *arguments: Any
        ) -> str:
            commit, head = original_merge(world, pull, user, method, sha, *arguments), pull.head_sha
            self.merges[pull.number] = (sha or "", head)
            return commit

        merges.merge = merge  # type: ignore[assignment]  # only this process is affected

    def _record(self, event: str, payload: dict[str, Any]) -> None:
        if event == "push":
            self.pushed.append((payload["ref"], payload["before"], payload["after"]))
        subject = payload.get("pull_request") or payload.get("issue") or {}
        actor, action = payload["sender"]["login"], str(payload.get("action", ""))
        name_key = {"labeled": "label", "unlabeled": "label"}.get(action)
        label_name = str((payload.get(name_key or "") or {}).get("name", ""))
        text = str((payload.get("comment") or {}).get("body", ""))
        self.events.append((event, action, str(subject.get("number", "")), actor, label_name or text))

    def addresses(self) -> tuple[str, str, str]:
        """Return the URL of the API, the URL for Git, and a token."""
        return self.forge.url, self.forge.git_url(REPO), self.forge.token("dev")

    def check_pushes(self) -> None:
        """Run checks at every push; they fail if there is a file `broken.txt`."""

        def run(_repo: Any, sha: str) -> None:
            broken = "broken.txt" in bare_repository.git(self.repo.path, "ls-tree", "--name-only", sha)
            self.check_results[sha] = not broken
            log = "E   assert broken\n" if broken else "ok\n"
            self.forge.check(self.repo, sha, "tests", "failure" if broken else "success", log=log)

        self.forge.ci(REPO, run)

    def open_issue(self, title: str, body: str, label: str) -> int:
        """Open an issue with a label and return its number."""
        issue = self.forge.issue(REPO, title, body, by="rev")
        self.forge.label_issue(issue, label, by="rev")
        return issue.number

    def demand(self, check: str) -> None:
        """Require a check for merges."""
        self.forge.protect(REPO, checks=(check,))

    def check(self, number: int, name: str, conclusion: str) -> None:
        """Report a check's conclusion for a pull request's head."""
        head = self.forge.find_pull(REPO, number).head_sha
        self.forge.check(self.repo, head, name, conclusion, log="some output\n")

    def discuss(self, number: int, path: str, text: str) -> None:
        """Comment on a line as another person."""
        self.forge.thread(self.forge.find_pull(REPO, number), path, 1, text, by="rev")

    def approve(self, number: int) -> None:
        """Approve as another person."""
        self.forge.review(self.forge.find_pull(REPO, number), "APPROVE", by="rev")

    def pull(self, number: int) -> dict[str, Any]:
        """Return the state of a pull request at the forge."""
        with self.forge.world.lock:
            pull = self.forge.find_pull(REPO, number)
            return {
                "head": pull.head_sha,
                "draft": pull.draft,
                "state": "merged" if pull.merged else pull.state,
                "merged": pull.merge_commit,
                "autoMerge": pull.auto_merge is not None,
                "said": [comment.body for thread in pull.threads for comment in thread.comments],
                "comments": [comment.body for comment in pull.comments],
                "branch": self.repo.head(pull.head_ref),
            }

    def issue(self, number: int) -> dict[str, Any]:
        """Return the state of an issue at the forge."""
        with self.forge.world.lock:
            issue = self.forge.find_issue(REPO, number)
            return {
                "state": issue.state,
                "labels": [label.name for label in issue.labels],
                "people": [person.login for person in issue.assignees],
                "comments": [comment.body for comment in issue.comments],
            }

    def base(self) -> tuple[str, list[str], list[str]]:
        """Return the base's commit, the titles of its commits and its files."""
        head = self.repo.head("main") or ""
        titles = [commit.message.partition("\n")[0] for commit in self.forge.log(REPO)]
        return head, titles, bare_repository.git(self.repo.path, "ls-tree", "--name-only", head).split()

    def pulls(self) -> int:
        """Return the number of pull requests."""
        return len(self.repo.pulls())

    def record(self) -> list[tuple[str, ...]]:
        """Return all events in order."""
        return self.events

    def pushes(self) -> list[tuple[str, str, str]]:
        """Return all pushes in order."""
        return self.pushed

    def pull_records(self) -> list[dict[str, Any]]:
        """Return every pull request with its branch, merged commit, check result, approved commits and comments."""
        with self.forge.world.lock:
            return [
                {
                    "number": pull.number,
                    "branch": pull.head_ref,
                    "head": pull.head_sha,
                    "merged": pull.merged,
                    "named": self.merges.get(pull.number, ("", ""))[0],
                    "landed": self.merges.get(pull.number, ("", ""))[1],
                    "passed": self.check_results.get(self.merges.get(pull.number, ("", pull.head_sha))[1]),
                    "approved": [review.commit_id for review in pull.reviews if review.state == "APPROVED"],
                    "comments": [comment.body for comment in pull.comments],
                }
                for pull in self.repo.pulls()
            ]

    def add_webhook(self, address: str, secret: str) -> None:
        """Register a webhook."""
        self.forge.hook(REPO, address, secret)

    def fail(self, what: int | str, times: int, more: dict[str, Any]) -> None:
        """Make the next requests of the daemon fail."""
        self._times = times
        self.forge.fail(what, next=times, **more)

    def clear_faults(self) -> int:
        """Remove all faults and return how many requests they hit."""
        hit = sum(self._times - fault.remaining for fault in self.forge.ledger.faults)
        self.forge.clear_faults()
        return hit

    def down(self) -> None:
        """Stop listening."""
        if not self._down:
            self._down = True
            self.forge.down()

    def up(self) -> None:
        """Listen again."""
        if self._down:
            self._down = False
            self.forge.up()

    def hooks(self, order: str) -> int:
        """Make webhooks `lost`, `doubled`, `reordered` or normal; return how many were sent since the last call."""
        hooks = self.forge.hooks
        count, self._counted_hooks = len(hooks.sent) - self._counted_hooks, len(hooks.sent)
        hooks._drop_count = 1_000_000 if order == "lost" else 0
        hooks._duplicate_count = 1_000_000 if order == "doubled" else 0
        if order == "reordered":
            hooks.hold()
        else:
            hooks.release("reversed")
        return count

    def faults(self) -> list[str]:
        """Return the exceptions inside the forge."""
        return [repr(error) for error in self.forge.world.errors]
