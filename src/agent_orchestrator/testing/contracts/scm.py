"""What every SCM plugin must do. Yours too:

    from agent_orchestrator.testing.contracts.scm import SCMContract

    class TestMyForge(SCMContract):
        @pytest.fixture
        def scm(self, server) -> SCM:
            return MyForge({"url": server.url, "repo": "acme/app"}, LocalHost())

The repository has a branch `main` with the file `a.txt` (`1`, `2`, `3`, a line each), no checks and no pull request. Branches are pushed
by real Git to where `push_url` says. `restarted` may give a second object for the same repository, as the daemon makes one when it is
started again; `ask` may give a way to have somebody else say something on a line, and `judge` one to have somebody else review.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.errors import AoError, NotFound
from agent_orchestrator.protocols.forge import SCM, Hint, Known, Merged, Merging, PullSpec, PullState, Unmergeable

SPEC = PullSpec("feature/x", "main", "Fix it", "Because it is broken.", draft=True)

Ask = Callable[[PullState, str, int, str], None]
"""Has somebody else say something about a file's line."""
Judge = Callable[[PullState, str, str], None]
"""Has somebody else give a verdict (`approved`, `changes_requested`) with words."""


class SCMContract:
    """Subclass it and give the fixture `scm`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def scm(self) -> SCM:
        """The plugin under test."""
        raise NotImplementedError("give a fixture named `scm`")

    @pytest.fixture
    def restarted(self, scm: SCM) -> SCM:
        """The plugin as after a restart of the daemon; the same object where there is no other."""
        return scm

    @pytest.fixture
    def ask(self) -> Ask | None:
        """How somebody else says something on a line; none: that cannot be had here."""
        return None

    @pytest.fixture
    def judge(self) -> Judge | None:
        """How somebody else reviews; none: that cannot be had here."""
        return None

    @pytest.fixture
    def clone(self, scm: SCM, tmp_path: Path) -> Clone:
        """The repository as an agent has it, with a branch `feature/x` that was pushed."""
        clone = Clone(scm, tmp_path / "clone")
        clone.push("feature/x", "1\ntwo\n3\n")
        return clone

    # -- who and where

    async def test_it_is_what_the_slot_asks_for(self, scm: SCM) -> None:
        assert isinstance(scm, SCM), "let its class inherit from agent_orchestrator.protocols.SCM"
        assert scm.repo
        assert await scm.configured() is True
        assert (await scm.login()).name

    async def test_git_pushes_where_it_says(self, scm: SCM, clone: Clone) -> None:
        for url, env in (scm.push_url(), scm.fetch_url()):
            assert url and all(isinstance(value, str) for value in env.values())
        assert clone.remote("feature/x") == clone.head()

    # -- open

    async def test_a_pull_request_is_opened_once(self, scm: SCM, restarted: SCM, clone: Clone) -> None:
        assert await scm.find("feature/x") is None
        first = await scm.open(SPEC)
        assert (first.title, first.state, first.draft) == ("Fix it", "open", True)
        assert (first.branch, first.base) == ("feature/x", "main")
        assert (first.head, first.base_head) == (clone.head(), clone.remote("main"))
        assert first.id and first.number > 0 and first.url.startswith(("http://", "https://"))
        again = await restarted.open(SPEC)
        assert (again.id, again.number) == (first.id, first.number)
        found = await restarted.find("feature/x")
        assert found is not None and found.id == first.id
        assert (await scm.get(first.number)).id == first.id

    @pytest.mark.usefixtures("clone")
    async def test_what_is_not_there_is_named_or_left_out(self, scm: SCM) -> None:
        made = await scm.open(SPEC)
        with pytest.raises(NotFound) as caught:
            await scm.get(made.number + 4711)
        assert "\n" not in str(caught.value)
        assert [pull.id for pull in await scm.read([made.id])] == [made.id]
        assert await scm.read([]) == []

    @pytest.mark.usefixtures("clone")
    async def test_a_branch_that_was_not_pushed_has_none(self, scm: SCM) -> None:
        with pytest.raises(AoError) as caught:
            await scm.open(replace(SPEC, branch="nowhere"))
        assert "\n" not in str(caught.value)
        assert await scm.find("nowhere") is None

    @pytest.mark.usefixtures("clone")
    async def test_a_draft_becomes_ready(self, scm: SCM, restarted: SCM) -> None:
        made = await scm.open(SPEC)
        await scm.ready(made)
        await restarted.ready(made)
        (found,) = await scm.read([made.id])
        assert (found.draft, found.title) == (False, "Fix it")

    async def test_it_tells_how_things_are(self, scm: SCM, clone: Clone) -> None:
        made = await scm.open(SPEC)
        head = clone.push("feature/x", "1\ntwo\nthree\n")
        (found,) = await scm.read([made.id])
        assert found.head == head, "the head is the one that was pushed last"
        assert found.checks == () and found.checks_expected is not True
        assert found.mergeable in ("yes", "unknown")
        hint = await scm.changed([Known(made.number, made.id, made.head, settled=False, read_at=0.0)])
        assert isinstance(hint, Hint) and hint.repo == scm.repo

    @pytest.mark.usefixtures("clone")
    async def test_a_closed_one_does_not_stand_in_the_way(self, scm: SCM, restarted: SCM) -> None:
        first = await scm.open(SPEC)
        await scm.close(first)
        await restarted.close(first)
        closed = await scm.find("feature/x")
        assert closed is not None and (closed.id, closed.state) == (first.id, "closed")
        second = await scm.open(SPEC)
        assert second.number != first.number
        found = await scm.find("feature/x")
        assert found is not None and found.id == second.id

    # -- say

    @pytest.mark.usefixtures("clone")
    async def test_a_comment_is_made_once_for_a_key(self, scm: SCM, restarted: SCM) -> None:
        made = await scm.open(SPEC)
        said = await scm.comment(made, "hello", "k:1")
        assert await scm.comment(made, "hello", "k:1") == said
        assert await restarted.comment(made, "in other words", "k:1") == said
        other = await restarted.comment(made, "done", "k:2")
        assert other != said
        (found,) = await scm.read([made.id])
        told = [(one.id, one.body, one.mark, one.author.kind) for one in found.comments]
        assert told == [(said, "hello", "k:1", "agent"), (other, "done", "k:2", "agent")]

    @pytest.mark.usefixtures("clone")
    async def test_a_discussion_is_answered_once_and_settled(self, scm: SCM, restarted: SCM, ask: Ask | None) -> None:
        if ask is None:
            pytest.skip("nobody else can be had to say something")
        made = await scm.open(SPEC)
        ask(made, "a.txt", 2, "why two?")
        (found,) = await scm.read([made.id])
        (asked,) = found.comments
        thread = asked.thread
        assert (asked.body, asked.path, asked.line) == ("why two?", "a.txt", 2) and thread
        assert asked.author.kind == "person" and not asked.resolved
        said = await scm.reply(found, thread, "because", "k:1")
        assert await restarted.reply(found, thread, "because", "k:1") == said
        await scm.resolve(thread)
        await restarted.resolve(thread)
        (found,) = await scm.read([made.id])
        assert [(one.body, one.thread, one.resolved) for one in found.comments] == [
            ("why two?", thread, True),
            ("because", thread, True),
        ]

    @pytest.mark.usefixtures("clone")
    async def test_a_judgement_is_read(self, scm: SCM, judge: Judge | None) -> None:
        if judge is None:
            pytest.skip("nobody else can be had to review")
        made = await scm.open(SPEC)
        judge(made, "approved", "fine")
        (found,) = await scm.read([made.id])
        assert "approved" in [one.verdict for one in found.reviews]
        assert all(one.author.kind == "person" for one in found.reviews)

    # -- land

    async def test_only_the_commit_that_may_land_does(self, scm: SCM, clone: Clone) -> None:
        made = await scm.open(SPEC)
        await scm.ready(made)
        base = clone.remote("main")
        clone.push("feature/x", "1\ntwo\nthree\n")
        refused = await scm.merge(made, landing(made))
        assert isinstance(refused, Unmergeable) and refused.moved and refused.reason
        assert clone.remote("main") == base

    @pytest.mark.parametrize("strategy", ["squash", "merge"])
    async def test_it_lands_once(self, scm: SCM, restarted: SCM, clone: Clone, strategy: str) -> None:
        made = await scm.open(SPEC)
        await scm.ready(made)
        (found,) = await scm.read([made.id])
        landed = await scm.merge(found, landing(found, strategy))
        assert isinstance(landed, Merged)
        assert clone.remote("main") == landed.commit
        assert clone.file("main") == "1\ntwo\n3\n"
        assert await restarted.merge(found, landing(found, strategy)) == landed
        (after,) = await restarted.read([made.id])
        assert (after.state, after.merged_as) == ("merged", landed.commit)
        assert clone.remote("feature/x") == "", "its branch is gone"

    async def test_a_conflict_does_not_land(self, scm: SCM, clone: Clone) -> None:
        made = await scm.open(SPEC)
        await scm.ready(made)
        base = clone.push("main", "1\nzwei\n3\n")
        (found,) = await scm.read([made.id])
        assert found.mergeable in ("no", "unknown")
        assert isinstance(await scm.merge(found, landing(found)), Unmergeable)
        assert clone.remote("main") == base

    @pytest.mark.usefixtures("clone")
    async def test_what_does_not_wait_is_not_called_off(self, scm: SCM) -> None:
        made = await scm.open(SPEC)
        await scm.call_off(made)
        assert await scm.rerun(made) == 0
        (found,) = await scm.read([made.id])
        assert (found.state, found.queued) == ("open", False)


class Clone:
    """A clone that Git fetches from and pushes to the forge, as the plugin says."""

    def __init__(self, scm: SCM, path: Path) -> None:
        self._scm, self._path = scm, path
        url, env = scm.fetch_url()
        path.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("fetch", "-q", url, "main", env=env)

    def push(self, branch: str, text: str) -> str:
        """Give `a.txt` on a branch, new from `main` or as it is, this text; returns the commit."""
        url, env = self._scm.fetch_url()
        there = self.remote(branch)
        self.git("fetch", "-q", url, branch if there else "main", env=env)
        self.git("checkout", "-q", "-f", "--detach", "FETCH_HEAD")
        (self._path / "a.txt").write_text(text)
        self.git("add", "a.txt")
        self.git("commit", "-q", "-m", f"change {branch}")
        url, env = self._scm.push_url()
        self.git("push", "-q", url, f"HEAD:refs/heads/{branch}", env=env)
        return self.head()

    def head(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "HEAD")

    def remote(self, branch: str) -> str:
        """The commit of a branch at the forge; nothing where there is none."""
        url, env = self._scm.fetch_url()
        return self.git("ls-remote", url, f"refs/heads/{branch}", env=env).partition("\t")[0]

    def file(self, branch: str) -> str:
        """What `a.txt` says on a branch at the forge."""
        url, env = self._scm.fetch_url()
        self.git("fetch", "-q", url, branch, env=env)
        return self.git("show", "FETCH_HEAD:a.txt") + "\n"

    def git(self, *argv: str, env: object = None) -> str:
        """Run Git; raises when it fails."""
        added = dict(env) if isinstance(env, dict) else {}
        done = subprocess.run(
            ["git", "-C", str(self._path), *argv],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", **added},
        )
        assert done.returncode == 0, f"git {' '.join(argv)}: {done.stderr}"
        return done.stdout.strip()


def landing(pull: PullState, strategy: str = "squash") -> Merging:
    """How it is to land: at the head that it had."""
    return Merging(head=pull.head, strategy=strategy, title="Fix it", body="Because it is broken.")
