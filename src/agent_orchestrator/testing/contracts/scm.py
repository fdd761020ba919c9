"""The suite that every SCM plugin must pass. To run it on yours:

    from agent_orchestrator.testing.contracts.scm import SCMContract

    class TestMyForge(SCMContract):
        @pytest.fixture
        def scm(self, server) -> SCM:
            return MyForge({"url": server.url, "repo": "acme/app"}, LocalHost())

The repository has a branch `main` with the file `a.txt` (lines `1`, `2`, `3`), no checks and no pull request. Branches are pushed by
real Git to `push_url`. `restarted` may return a second object for the same repository, as after a restart of the daemon; `ask` may
return a function with which another person comments on a line, `review` one with which another person reviews;
both may be `async`. A forge with `hosted = False` has no addresses and merges nothing: the daemon does.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.errors import AoError, NotFound
from agent_orchestrator.protocols.forge import (
    SCM,
    Hint,
    KnownPullRequest,
    Merged,
    MergeOptions,
    PullRequestSpec,
    PullRequestState,
    Unmergeable,
)

PULL_REQUEST_SPEC = PullRequestSpec("feature/x", "main", "Fix it", "Because it is broken.", draft=True)

Ask = Callable[[PullRequestState, str, int, str], Awaitable[None] | None]
"""Adds another person's comment: pull request, path, line, text."""
Review = Callable[[PullRequestState, str, str], Awaitable[None] | None]
"""Adds another person's review: pull request, verdict (`approved`, `changes_requested`), text."""


class SCMContract:
    """Subclass it and define the fixture `scm`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def scm(self) -> SCM:
        """The plugin under test."""
        raise NotImplementedError("give a fixture named `scm`")

    @pytest.fixture
    def restarted(self, scm: SCM) -> SCM:
        """The plugin as after a restart of the daemon; the same object by default."""
        return scm

    @pytest.fixture
    def ask(self) -> Ask | None:
        """A function with which another person comments on a line, or None to skip those tests."""
        return None

    @pytest.fixture
    def review(self) -> Review | None:
        """A function with which another person reviews, or None to skip those tests."""
        return None

    @pytest.fixture
    def clone(self, scm: SCM, tmp_path: Path) -> ForgeClone:
        """A clone of the repository, with a pushed branch `feature/x`."""
        clone = ForgeClone(scm, tmp_path / "clone")
        clone.push("feature/x", "1\ntwo\n3\n")
        return clone

    # -- identity

    async def test_it_implements_the_scm_protocol(self, scm: SCM) -> None:
        assert isinstance(scm, SCM), "let its class inherit from agent_orchestrator.protocols.SCM"
        assert scm.repo
        assert await scm.configured() is True
        assert (await scm.login()).name

    async def test_git_pushes_to_push_url(self, scm: SCM, clone: ForgeClone) -> None:
        for url, env in (scm.push_url(), scm.fetch_url()):
            assert url and all(isinstance(value, str) for value in env.values())
        assert clone.remote("feature/x") == clone.head()

    # -- open

    async def test_a_pull_request_is_opened_once(self, scm: SCM, restarted: SCM, clone: ForgeClone) -> None:
        assert await scm.find("feature/x") is None
        first = await scm.open(PULL_REQUEST_SPEC)
        assert (first.title, first.state, first.draft) == ("Fix it", "open", True)
        assert (first.branch, first.base) == ("feature/x", "main")
        assert (first.head, first.base_head) == (clone.head(), clone.remote("main"))
        assert first.id and first.number > 0
        assert first.url.startswith(("http://", "https://")) if scm.hosted else first.url == ""
        again = await restarted.open(PULL_REQUEST_SPEC)
        assert (again.id, again.number) == (first.id, first.number)
        reopened = await restarted.find("feature/x")
        assert reopened is not None and reopened.id == first.id
        assert (await scm.get(first.number)).id == first.id

    @pytest.mark.usefixtures("clone")
    async def test_a_missing_pull_request_is_an_error_or_left_out(self, scm: SCM) -> None:
        opened = await scm.open(PULL_REQUEST_SPEC)
        with pytest.raises(NotFound) as caught:
            await scm.get(opened.number + 4711)
        assert "\n" not in str(caught.value)
        assert [pull.id for pull in await scm.read([opened.id])] == [opened.id]
        assert await scm.read([]) == []

    @pytest.mark.usefixtures("clone")
    async def test_a_branch_that_was_not_pushed_gets_no_pull_request(self, scm: SCM) -> None:
        with pytest.raises(AoError) as caught:
            await scm.open(replace(PULL_REQUEST_SPEC, branch="nowhere"))
        assert "\n" not in str(caught.value)
        assert await scm.find("nowhere") is None

    @pytest.mark.usefixtures("clone")
    async def test_a_draft_is_marked_ready(self, scm: SCM, restarted: SCM) -> None:
        opened = await scm.open(PULL_REQUEST_SPEC)
        await scm.ready(opened)
        await restarted.ready(opened)
        (pull,) = await scm.read([opened.id])
        assert (pull.draft, pull.title) == (False, "Fix it")

    async def test_a_read_returns_the_current_state(self, scm: SCM, clone: ForgeClone) -> None:
        opened = await scm.open(PULL_REQUEST_SPEC)
        head = clone.push("feature/x", "1\ntwo\nthree\n")
        (pull,) = await scm.read([opened.id])
        assert pull.head == head, "the head is the last pushed commit"
        assert pull.checks == () and pull.checks_expected is not True
        assert pull.mergeable in ("yes", "unknown")
        hint = await scm.changed([KnownPullRequest(opened.number, opened.id, opened.head, settled=False, read_at=0.0)])
        assert isinstance(hint, Hint) and hint.repo == scm.repo

    @pytest.mark.usefixtures("clone")
    async def test_a_closed_pull_request_does_not_prevent_a_new_one(self, scm: SCM, restarted: SCM) -> None:
        first = await scm.open(PULL_REQUEST_SPEC)
        await scm.close(first)
        await restarted.close(first)
        closed = await scm.find("feature/x")
        assert closed is not None and (closed.id, closed.state) == (first.id, "closed")
        second = await scm.open(PULL_REQUEST_SPEC)
        assert second.number != first.number
        current = await scm.find("feature/x")
        assert current is not None and current.id == second.id

    # -- comments and reviews

    @pytest.mark.usefixtures("clone")
    async def test_a_comment_is_added_once_per_key(self, scm: SCM, restarted: SCM) -> None:
        opened = await scm.open(PULL_REQUEST_SPEC)
        comment = await scm.comment(opened, "hello", "k:1")
        assert await scm.comment(opened, "hello", "k:1") == comment
        assert await restarted.comment(opened, "in other words", "k:1") == comment
        other_comment = await restarted.comment(opened, "done", "k:2")
        assert other_comment != comment
        (pull,) = await scm.read([opened.id])
        comments = [(comment.id, comment.body, comment.mark, comment.author.kind) for comment in pull.comments]
        assert comments == [(comment, "hello", "k:1", "agent"), (other_comment, "done", "k:2", "agent")]

    @pytest.mark.usefixtures("clone")
    async def test_a_thread_is_answered_once_and_resolved(self, scm: SCM, restarted: SCM, ask: Ask | None) -> None:
        if ask is None:
            pytest.skip("no other person can comment")
        opened = await scm.open(PULL_REQUEST_SPEC)
        await wait_if_awaitable(ask(opened, "a.txt", 2, "why two?"))
        (pull,) = await scm.read([opened.id])
        (question,) = pull.comments
        thread = question.thread
        assert (question.body, question.path, question.line) == ("why two?", "a.txt", 2) and thread
        assert question.author.kind == "person" and not question.resolved
        answer = await scm.reply(pull, thread, "because", "k:1")
        assert await restarted.reply(pull, thread, "because", "k:1") == answer
        await scm.resolve(thread)
        await restarted.resolve(thread)
        (pull,) = await scm.read([opened.id])
        assert [(comment.body, comment.thread, comment.resolved) for comment in pull.comments] == [
            ("why two?", thread, True),
            ("because", thread, True),
        ]

    @pytest.mark.usefixtures("clone")
    async def test_a_review_is_read(self, scm: SCM, review: Review | None) -> None:
        if review is None:
            pytest.skip("no other person can review")
        opened = await scm.open(PULL_REQUEST_SPEC)
        await wait_if_awaitable(review(opened, "approved", "fine"))
        (pull,) = await scm.read([opened.id])
        assert "approved" in [review.verdict for review in pull.reviews]
        assert all(review.author.kind == "person" for review in pull.reviews)

    # -- merge

    async def test_a_forge_that_is_no_service_leaves_merging_to_the_daemon(self, scm: SCM, clone: ForgeClone) -> None:
        if scm.hosted:
            pytest.skip("it is a service, which merges")
        opened = await scm.open(PULL_REQUEST_SPEC)
        await scm.ready(opened)
        base = clone.remote("main")
        assert isinstance(await scm.merge(opened, merge_options(opened)), Unmergeable)
        assert clone.remote("main") == base

    async def test_a_pull_request_with_a_moved_head_is_not_merged(self, scm: SCM, clone: ForgeClone) -> None:
        opened = await scm.open(PULL_REQUEST_SPEC)
        await scm.ready(opened)
        base = clone.remote("main")
        clone.push("feature/x", "1\ntwo\nthree\n")
        refused = await scm.merge(opened, merge_options(opened))
        assert isinstance(refused, Unmergeable) and refused.moved and refused.reason
        assert clone.remote("main") == base

    @pytest.mark.parametrize("strategy", ["squash", "merge"])
    async def test_a_pull_request_is_merged_once(
        self, scm: SCM, restarted: SCM, clone: ForgeClone, strategy: str
    ) -> None:
        if not scm.hosted:
            pytest.skip("the daemon merges")
        opened = await scm.open(PULL_REQUEST_SPEC)
        await scm.ready(opened)
        (pull,) = await scm.read([opened.id])
        merged = await scm.merge(pull, merge_options(pull, strategy))
        assert isinstance(merged, Merged)
        assert clone.remote("main") == merged.commit
        assert clone.file("main") == "1\ntwo\n3\n"
        assert await restarted.merge(pull, merge_options(pull, strategy)) == merged
        (after,) = await restarted.read([opened.id])
        assert (after.state, after.merged_as) == ("merged", merged.commit)
        assert clone.remote("feature/x") == "", "its branch is deleted"

    async def test_a_conflict_is_not_merged(self, scm: SCM, clone: ForgeClone) -> None:
        opened = await scm.open(PULL_REQUEST_SPEC)
        await scm.ready(opened)
        base = clone.push("main", "1\nzwei\n3\n")
        (pull,) = await scm.read([opened.id])
        assert pull.mergeable in ("no", "unknown")
        assert isinstance(await scm.merge(pull, merge_options(pull)), Unmergeable)
        assert clone.remote("main") == base

    @pytest.mark.usefixtures("clone")
    async def test_canceling_an_unqueued_merge_changes_nothing(self, scm: SCM) -> None:
        opened = await scm.open(PULL_REQUEST_SPEC)
        await scm.cancel_merge(opened)
        assert await scm.rerun(opened) == 0
        (pull,) = await scm.read([opened.id])
        assert (pull.state, pull.queued) == ("open", False)


class ForgeClone:
    """A clone that fetches from and pushes to the plugin's URLs."""

    def __init__(self, scm: SCM, path: Path) -> None:
        self._scm, self._path = scm, path
        url, env = scm.fetch_url()
        path.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("fetch", "-q", url, "main", env=env)

    def push(self, branch: str, text: str) -> str:
        """Commit this text as `a.txt` on a branch, created from `main` if needed, and push it; return the commit."""
        url, env = self._scm.fetch_url()
        branch_head = self.remote(branch)
        self.git("fetch", "-q", url, branch if branch_head else "main", env=env)
        self.git("checkout", "-q", "-f", "--detach", "FETCH_HEAD")
        (self._path / "a.txt").write_text(text)
        self.git("add", "a.txt")
        self.git("commit", "-q", "-m", f"change {branch}")
        url, env = self._scm.push_url()
        self.git("push", "-q", url, f"HEAD:refs/heads/{branch}", env=env)
        return self.head()

    def head(self) -> str:
        """Return the checked-out commit."""
        return self.git("rev-parse", "HEAD")

    def remote(self, branch: str) -> str:
        """Return the commit of a branch at the forge, or "" if there is no such branch."""
        url, env = self._scm.fetch_url()
        return self.git("ls-remote", url, f"refs/heads/{branch}", env=env).partition("\t")[0]

    def file(self, branch: str) -> str:
        """Return the content of `a.txt` on a branch at the forge."""
        url, env = self._scm.fetch_url()
        self.git("fetch", "-q", url, branch, env=env)
        return self.git("show", "FETCH_HEAD:a.txt") + "\n"

    def git(self, *argv: str, env: object = None) -> str:
        """Run Git and return its output; raise `AssertionError` if it fails."""
        extra_env = dict(env) if isinstance(env, dict) else {}
        completed = subprocess.run(
            ["git", "-C", str(self._path), *argv],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", **extra_env},
        )
        assert completed.returncode == 0, f"git {' '.join(argv)}: {completed.stderr}"
        return completed.stdout.strip()


async def wait_if_awaitable(call: Awaitable[None] | None) -> None:
    """Wait for what a fixture's function began."""
    if call is not None:
        await call


def merge_options(pull: PullRequestState, strategy: str = "squash") -> MergeOptions:
    """Return the options of a merge at the pull request's recorded head."""
    return MergeOptions(head=pull.head, strategy=strategy, title="Fix it", body="Because it is broken.")
