"""The user's checkout of the base follows, or the landing waits and says for what; nothing else in it is touched."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.git.commands import GitFailed
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.merge import Blocked, Merged, merge, repair_checkouts, user_checkout
from agent_orchestrator.changes.merge.user_checkout import Checkout
from agent_orchestrator.errors import Temporary
from agent_orchestrator.protocols.host import Completed
from tests.hostile import nested
from tests.integration.merge.world import Killed, World, snapshot, write
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


def mine(world: World, name: str, text: str = "user's\n") -> None:
    write(world.repo, {name: text})


def staged(world: World) -> None:
    mine(world, "b.txt")
    git(world.repo, "add", "b.txt")


def staged_and_edited_back(world: World) -> None:
    old = (world.repo / "b.txt").read_text()
    staged(world)
    mine(world, "b.txt", old)


def staged_new(world: World) -> None:
    mine(world, "x.txt")
    git(world.repo, "add", "x.txt")


def intent_to_add(world: World) -> None:
    mine(world, "x.txt")
    git(world.repo, "add", "-N", "x.txt")


def hidden(world: World, how: str) -> None:
    git(world.repo, "update-index", how, "b.txt")
    mine(world, "b.txt")


def replaced_by_link(world: World) -> None:
    (world.repo / "b.txt").unlink()
    (world.repo / "b.txt").symlink_to("a.txt")


def folder_with_content(world: World) -> None:
    mine(world, "x.txt/inside.txt")


def folder_with_link(world: World) -> None:
    (world.repo / "x.txt").mkdir()
    (world.repo / "x.txt" / "link").symlink_to("..")


IN_THE_WAY: dict[str, tuple[Callable[[World], None], str]] = {
    "edited": (lambda world: mine(world, "b.txt"), "b.txt"),
    "staged": (staged, "b.txt"),
    "staged, then edited back": (staged_and_edited_back, "b.txt"),
    "staged new": (staged_new, "x.txt"),
    "intent to add": (intent_to_add, "x.txt"),
    "deleted": (lambda world: (world.repo / "b.txt").unlink(), "b.txt"),
    "edited what is to be deleted": (lambda world: mine(world, "d/c.txt"), "d/c.txt"),
    "mode": (lambda world: (world.repo / "b.txt").chmod(0o755), "b.txt"),
    "replaced by a link": (replaced_by_link, "b.txt"),
    "untracked": (lambda world: mine(world, "x.txt"), "x.txt"),
    "untracked folder": (folder_with_content, "x.txt/inside.txt"),
    "untracked link to a folder": (folder_with_link, "x.txt/link"),
    "untracked above": (lambda world: mine(world, "new"), "new"),
    "ignored": (lambda world: mine(world, "trace.log"), "trace.log"),
    "assume-unchanged": (lambda world: hidden(world, "--assume-unchanged"), "b.txt"),
    "skip-worktree": (lambda world: hidden(world, "--skip-worktree"), "b.txt"),
}


def change(world: World) -> None:
    """Changes, deletes and adds, also an ignored file and one in a new folder."""
    write(world.agent, {"b.txt": "agent's\n", "d/c.txt": None, "x.txt": "x", "new/y.txt": "y", "trace.log": "x"})
    git(world.agent, "add", "-A", "-f")
    git(world.agent, "commit", "-qm", "change")
    world.use_head()


@pytest.mark.parametrize("case", IN_THE_WAY)
async def test_what_stands_in_the_way_is_named_and_kept(world: World, case: str) -> None:
    act, name = IN_THE_WAY[case]
    change(world)
    act(world)
    before, files, status = world.main(), snapshot(world.repo), world.status()
    index = git(world.repo, "ls-files", "-v", "--stage")
    found = await world.land()
    assert isinstance(found, Blocked), found
    assert (found.files, found.checkout) == ((name,), world.repo)
    assert name in found.reason
    assert (world.main(), snapshot(world.repo), world.status()) == (before, files, status)
    assert git(world.repo, "ls-files", "-v", "--stage") == index
    assert world.litter() == []


async def test_folders_without_end_are_in_the_way(world: World) -> None:
    change(world)
    (world.repo / "x.txt").mkdir()
    nested(world.repo / "x.txt", 2100)
    try:
        found = await world.land()
        assert isinstance(found, Blocked) and found.files == ("x.txt",), found
    finally:
        subprocess.run(["rm", "-rf", str(world.repo / "x.txt")], check=True)  # pytest could not


async def test_once_it_is_out_of_the_way_it_lands(world: World) -> None:
    change(world)
    mine(world, "x.txt")
    built = await world.built()
    assert isinstance(await world.land(built), Blocked)
    (world.repo / "x.txt").unlink()
    await world.landed(built)
    assert world.status() == ""


async def test_unrelated_changes_of_every_kind_stay(world: World) -> None:
    change(world)
    write(world.repo, {"a.txt": "staged\n", "untracked é.txt": "u", "deep/er/file": "u", "other.log": "ignored"})
    git(world.repo, "add", "a.txt")
    write(world.repo, {"a.txt": "staged and edited\n"})
    write(world.repo, {".gitignore": None})
    git(world.repo, "stash", "store", "-m", "kept", git(world.repo, "stash", "create"))
    staged_blob = git(world.repo, "ls-files", "--stage", "a.txt")
    await world.landed()
    assert world.status() == " D .gitignore\nMM a.txt\n?? deep/er/file\n?? other.log\n?? untracked é.txt".replace(
        "untracked é.txt", '"untracked \\303\\251.txt"'
    )
    assert git(world.repo, "ls-files", "--stage", "a.txt") == staged_blob
    assert (world.repo / "a.txt").read_text() == "staged and edited\n"
    assert (world.repo / "new/y.txt").read_text() == "y"
    assert git(world.repo, "stash", "list").endswith("kept")


async def test_what_is_the_same_already_is_not_in_the_way(world: World) -> None:
    change(world)
    write(world.repo, {"x.txt": "x", "b.txt": "agent's\n", "d/c.txt": None})
    await world.landed()
    assert world.status() == ""


async def test_a_touched_file_is_not_a_changed_file(world: World) -> None:
    change(world)
    os.utime(world.repo / "b.txt", (1, 1))
    await world.landed()
    assert (world.repo / "b.txt").read_text() == "agent's\n"


async def test_a_change_of_the_same_size_within_the_same_moment_is_seen(world: World) -> None:
    change(world)
    path = world.repo / "b.txt"
    moment = path.stat().st_mtime_ns
    path.write_text("B\n")
    for name in (path, world.repo / ".git/index"):
        os.utime(name, ns=(moment, moment))
    found = await world.land()
    assert isinstance(found, Blocked)
    assert path.read_text() == "B\n"


@pytest.mark.parametrize("command", ["merge", "cherry-pick", "revert", "rebase", "am"])
async def test_an_unfinished_command_is_waited_for(world: World, command: str) -> None:
    change(world)
    git(world.repo, "checkout", "-q", "-b", "side")
    world.commit({"a.txt": "side\n"}, where=world.repo)
    patch = git(world.repo, "format-patch", "-1", "--stdout") + "\n"
    git(world.repo, "checkout", "-q", "main")
    world.commit({"a.txt": "main\n"}, where=world.repo)
    world.commit({"a.txt": "main 2\n"}, where=world.repo)
    argv = {"revert": ("HEAD~",), "am": ("-q", "-3")}.get(command, ("side",))
    git(world.repo, command, *argv, check=False, stdin=patch.encode(), env={"GIT_EDITOR": ":"})
    before, status = world.main(), world.status()
    found = await world.land()
    assert isinstance(found, Blocked)
    assert ("is unfinished in" in found.reason) or ("is being rebased in" in found.reason)
    assert (world.main(), world.status()) == (before, status)
    if command != "am":
        git(world.repo, command, "--abort")
        await world.landed()


async def test_conflicts_of_a_stash_are_waited_for(world: World) -> None:
    change(world)
    mine(world, "a.txt", "stashed\n")
    git(world.repo, "stash", "-q")
    world.commit({"a.txt": "main\n"}, where=world.repo)
    git(world.repo, "stash", "pop", check=False)
    found = await world.land()
    assert isinstance(found, Blocked)
    assert found.files == ("a.txt",)


async def test_another_git_command_at_work_is_waited_for(world: World) -> None:
    change(world)
    built, lock = await world.built(), world.repo / ".git/index.lock"
    lock.touch()
    found = await world.land(built)
    assert isinstance(found, Blocked)
    assert "another Git command" in found.reason
    timer = threading.Timer(0.1, lock.unlink)
    timer.start()
    await world.landed(built)
    timer.join()


@pytest.mark.parametrize("detached", [True, False])
async def test_only_the_ref_moves_where_something_else_is_checked_out(world: World, detached: bool) -> None:
    change(world)
    git(world.repo, "checkout", "-q", *(["--detach"] if detached else ["-b", "other"]))
    mine(world, "b.txt")
    head, files = git(world.repo, "rev-parse", "HEAD"), snapshot(world.repo)
    built = await world.built()
    await world.landed(built)
    assert (world.main(), git(world.repo, "rev-parse", "HEAD")) == (built.commit, head)
    assert (snapshot(world.repo), world.status()) == (files, " M b.txt")


async def test_a_second_worktree_follows_and_other_worktrees_do_not(world: World) -> None:
    change(world)
    git(world.repo, "checkout", "-q", "-b", "other")
    second = world.root / "second one"
    git(world.repo, "worktree", "add", "-q", str(second), "main")
    mine(world, "b.txt")
    write(second, {"a.txt": "user's\n"})
    await world.landed()
    assert world.status(second) == " M a.txt"
    assert (second / "x.txt").read_text() == "x"
    assert (world.status(), world.status(world.agent)) == (" M b.txt", "")


async def test_all_checkouts_of_the_base_follow_or_none(world: World) -> None:
    change(world)
    second = world.root / "second"
    git(world.repo, "worktree", "add", "-q", "--force", str(second), "main")
    built, before = await world.built(), world.main()

    def edit(step: str) -> None:
        if step == "recorded":
            write(second, {"b.txt": "edited at this moment\n"})

    found = await merge(world.host, world.spec, built, edit)
    assert isinstance(found, Blocked)
    assert (world.main(), world.status(), world.status(second)) == (before, "", " M b.txt")
    git(second, "checkout", "-q", "b.txt")
    await world.landed(built)
    assert (world.status(), world.status(second), world.litter()) == ("", "", [])


async def test_worktrees_that_are_not_there(world: World) -> None:
    change(world)
    git(world.repo, "checkout", "-q", "-b", "other")
    second = world.root / "second"
    git(world.repo, "worktree", "add", "-q", str(second), "main")
    git(world.repo, "worktree", "lock", str(second))
    second.rename(world.root / "unplugged")
    found = await world.land()
    assert isinstance(found, Blocked)
    assert "not there" in found.reason
    git(world.repo, "worktree", "unlock", str(second))
    await world.landed()


async def test_a_sparse_checkout_stays_sparse(world: World) -> None:
    change(world)
    git(world.repo, "sparse-checkout", "set", "--cone", "d")
    await world.landed()
    assert not (world.repo / "new").exists()
    assert (world.repo / "b.txt").read_text() == "agent's\n"
    assert world.status() == ""


async def test_a_submodule_keeps_its_checkout(world: World) -> None:
    inner = world.repo / "sub"
    git(world.root, "clone", "-q", str(world.repo), str(inner))
    git(world.repo, "add", "sub", check=False)
    git(world.repo, "commit", "-qm", "sub")
    git(world.agent, "reset", "-q", "--hard", "main")
    git(inner, "commit", "-q", "--allow-empty", "-m", "inner")
    write(inner, {"b.txt": "user's\n"})
    git(world.agent, "update-index", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(world.agent, "commit", "-qm", "pointer")
    world.use_head()
    head, files = git(inner, "rev-parse", "HEAD"), snapshot(inner)
    await world.landed()
    assert (git(inner, "rev-parse", "HEAD"), snapshot(inner)) == (head, files)
    assert git(world.repo, "rev-parse", "main:sub") == "1" * 40


async def test_line_endings_are_the_users(world: World) -> None:
    world.commit({".gitattributes": "*.txt text\n"}, where=world.repo)
    git(world.repo, "config", "core.autocrlf", "true")
    git(world.agent, "reset", "-q", "--hard", "main")
    write(world.repo, {"b.txt": None})
    git(world.repo, "checkout", "-q", "b.txt")
    assert (world.repo / "b.txt").read_bytes() == b"b\r\n"
    git(world.agent, "config", "core.autocrlf", "true")
    world.commit({"b.txt": "agent's\r\n"})
    await world.landed()
    assert ((world.repo / "b.txt").read_bytes(), world.status()) == (b"agent's\r\n", "")
    assert world.show("b.txt") == "agent's"


@pytest.mark.parametrize("step", ["recorded", "locked"])
async def test_an_edit_at_the_same_moment_is_kept(world: World, step: str) -> None:
    change(world)
    built, before = await world.built(), world.main()

    def edit(done: str) -> None:
        if done == step:
            mine(world, "b.txt")

    found = await merge(world.host, world.spec, built, edit)
    assert isinstance(found, Blocked)
    assert (world.main(), (world.repo / "b.txt").read_text(), world.status()) == (before, "user's\n", " M b.txt")
    assert world.litter() == []


async def test_another_branch_checked_out_at_the_same_moment_is_not_moved(world: World) -> None:
    change(world)
    git(world.repo, "branch", "other")
    built = await world.built()

    def switch(done: str) -> None:
        if done == "recorded":
            git(world.repo, "checkout", "-q", "other")

    found = await merge(world.host, world.spec, built, switch)
    assert isinstance(found, Blocked)
    assert (world.status(), git(world.repo, "rev-parse", "other")) == ("", built.base_before)
    await world.landed(built)


@pytest.mark.parametrize("crash", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("step", ["files", "index"])
async def test_a_branch_begun_at_the_same_moment_stands_where_it_was_begun(
    world: World, step: str, crash: bool
) -> None:
    world.commit({"a.txt": "changed\n", "new.txt": "new\n", "d/c.txt": None})
    built, before, old = await world.built(), snapshot(world.repo), world.main()

    def begin(done: str) -> None:
        if done == step:
            git(world.repo, "switch", "-qc", "mine")
        if done == "ref" and crash:
            raise Killed(done)

    with pytest.raises(Killed) if crash else nullcontext():
        await merge(world.host, world.spec, built, begin)
    await repair_checkouts(world.host, world.repo)
    assert world.main() == built.commit
    assert (git(world.repo, "symbolic-ref", "--short", "HEAD"), git(world.repo, "rev-parse", "HEAD")) == ("mine", old)
    assert (world.status(), snapshot(world.repo), world.litter()) == ("", before, [])


async def test_the_base_checked_out_at_the_same_moment_follows(world: World) -> None:
    change(world)
    git(world.repo, "checkout", "-q", "--detach")
    built = await world.built()

    def switch(done: str) -> None:
        if done == "recorded":
            git(world.repo, "checkout", "-q", "main")

    assert isinstance(await merge(world.host, world.spec, built, switch), Merged)
    assert (world.main(), world.status(), world.litter()) == (built.commit, "", [])


async def test_a_user_who_edits_all_the_time_loses_nothing(world: World) -> None:
    ended = threading.Event()
    written = 0

    def edit() -> None:
        nonlocal written
        while not ended.wait(0.001):
            (world.repo / "a.txt").write_text(f"{written}\n")
            (world.repo / f"note-{written % 7}.txt").write_text(f"{written}\n")
            written += 1

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        for number in range(4):
            world.commit({"x.txt": f"{number}", f"n/{number}.txt": "n"})
            await world.landed()
            git(world.agent, "reset", "-q", "--hard", "main")
            world.use_head()
    finally:
        ended.set()
        editor.join()
    assert (world.repo / "a.txt").read_text() == f"{written - 1}\n"
    assert world.status().splitlines()[0] == " M a.txt"
    assert all(line.startswith("?? note-") for line in world.status().splitlines()[1:])


async def test_a_checkout_that_may_not_be_written_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    change(world)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(Checkout, "_make_lock", refuse)  # whoever runs the tests may write everywhere
    found = await world.land()
    assert isinstance(found, Blocked)
    assert "may not be written" in found.reason
    assert world.status() == ""


# -- an agent's own checkout ---------------------------------------------------------------------------------------------


def own_folder(world: World) -> Path:
    """The agent's own Git folder, and `main` checked out beside its own branch: it follows, as the user's does."""
    folder = Path(git(world.agent, "rev-parse", "--absolute-git-dir"))
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    git(world.agent, "reset", "-q", "--hard")
    return folder


async def test_its_lock_is_a_file_of_our_own(world: World, tmp_path: Path) -> None:
    """Whatever lies there under the name that we write first: nothing is written through it."""
    world.commit({"b.txt": "agent's\n"})
    (tmp_path / "profile").write_text("mine\n")
    (own_folder(world) / "ao-landing.lock").symlink_to(tmp_path / "profile")
    assert isinstance(await world.land(), Merged)
    assert (tmp_path / "profile").read_text() == "mine\n" and world.litter() == []


@pytest.mark.parametrize("kind", ["symlink", "long"])
async def test_an_index_that_is_none_is_waited_for(world: World, tmp_path: Path, kind: str) -> None:
    world.commit({"b.txt": "agent's\n"})
    built, folder = await world.built(), own_folder(world)
    if kind == "symlink":
        (folder / "index").rename(tmp_path / "index")
        (folder / "index").symlink_to(tmp_path / "index")
    else:
        os.truncate(folder / "index", 1 << 40)
    before = world.main()
    waits = await world.land(built)
    assert isinstance(waits, Blocked) and "index cannot be copied" in waits.reason and waits.checkout == world.agent
    assert world.main() == before and world.litter() == []


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        '{"about": 1}',
        json.dumps(
            {"about": user_checkout._MARK, **{key: [] for key in ("pid", "started", "boot", "ref", "old", "new")}}
        ),
        json.dumps(
            {
                "about": user_checkout._MARK,
                "pid": 2**31 - 1,
                "started": "",
                "boot": "",
                "ref": "refs/heads/main",
                "old": "--output=written",
                "new": "--output=written",
            }
        ),
    ],
)
async def test_a_lock_that_we_have_not_written_is_not_ours(world: World, content: str) -> None:
    world.commit({"b.txt": "agent's\n"})
    lock = Path(git(world.agent, "rev-parse", "--absolute-git-dir"), "index.lock")
    lock.write_text(content)
    assert isinstance(await world.land(), Merged)
    assert lock.read_text() == content and not (world.agent / "written").exists()


def forged(old: str, new: str) -> str:
    fields = {"pid": 2**31 - 1, "started": "", "boot": "", "ref": "refs/heads/main", "old": old, "new": new}
    return json.dumps({"about": user_checkout._MARK, **fields})


@pytest.mark.parametrize("kind", ["no commits", "no index"])
async def test_a_lock_that_an_agent_forged_keeps_no_other_from_landing(world: World, kind: str, tmp_path: Path) -> None:
    world.commit({"b.txt": "agent's\n"})
    folder = Path(git(world.agent, "rev-parse", "--absolute-git-dir"))
    head, main = world.spec.head, world.main()
    content = forged("0" * 39 + "1", "0" * 39 + "2") if kind == "no commits" else forged(main, head)
    if kind == "no index":
        (folder / "index").rename(tmp_path / "index")
        (folder / "index").symlink_to(tmp_path / "index")
    (folder / "index.lock").write_text(content)
    assert await repair_checkouts(world.host, world.repo) == ()
    assert isinstance(await world.land(), Merged)
    assert (folder / "index.lock").read_text() == content


def rebases_it(world: World) -> None:
    folder = own_folder(world)
    git(world.agent, "symbolic-ref", "HEAD", "refs/heads/feature/x")
    write(folder, {"rebase-merge/head-name": "refs/heads/main\n"})


AGENTS = {
    "changed files": lambda world: write(world.agent, {"b.txt": "its own\n"}),
    "an unfinished merge": lambda world: write(own_folder(world), {"MERGE_HEAD": world.main()}),
    "a lock": lambda world: write(own_folder(world), {"index.lock": "", "HEAD.lock": ""}),
    "a folder of our own": lambda world: (own_folder(world) / "ao-landing.index").mkdir(),
    "a rebase": rebases_it,
}


@pytest.mark.parametrize("left", AGENTS)
async def test_an_agent_that_has_the_base_checked_out_keeps_nobody_from_landing(world: World, left: str) -> None:
    """It keeps its files and the commit that it stands on, and the base goes on without it."""
    world.commit({"b.txt": "agent's\n"})
    built, before = await world.built(), world.main()
    own_folder(world)
    git(world.agent, "reset", "-q", "--hard", "main")
    AGENTS[left](world)
    files = snapshot(world.agent)
    assert isinstance(await merge(world.host, world.spec, built), Blocked)
    found = await merge(world.host, world.spec, built, workspaces=[world.agent])
    assert isinstance(found, Merged) and world.main() == built.commit and world.status() == ""
    assert snapshot(world.agent) == files
    if left not in ("a lock", "a rebase"):
        head = Path(git(world.agent, "rev-parse", "--absolute-git-dir"), "HEAD").read_text()
        assert head == f"{before}\n"


class KillingOnce(LocalHost):
    """Git is killed when it is to move the files of a checkout."""

    killed = False

    async def run(self, argv: Sequence[str], **options: Any) -> Completed:
        if not self.killed and "read-tree" in argv and "-u" in argv:
            self.killed = True
            return Completed(-9, b"", b"")
        return await super().run(argv, **options)


async def test_a_git_that_was_killed_on_the_way_is_tried_again(world: World) -> None:
    world.commit({"x.txt": "x\n"})
    before, built = world.main(), await world.built()
    world.host = KillingOnce()
    with pytest.raises(GitFailed) as killed:
        await world.land(built)
    assert killed.value.retryable and (world.main(), world.status(), world.litter()) == (before, "", [])
    assert isinstance(await world.land(built), Merged) and world.show("x.txt") == "x"


class LackingOnceMoved(LocalHost):
    """There is no descriptor for a Git from when the ref has moved, for a while."""

    lacking = False

    async def run(self, argv: Sequence[str], **options: Any) -> Completed:
        if self.lacking and "worktree" not in argv:
            raise Temporary("git could not be started: Too many open files")
        done = await super().run(argv, **options)
        self.lacking |= "update-ref" in argv and "--stdin" in argv
        return done


@pytest.mark.parametrize("named", ["by its path", "by a symlink"])
async def test_a_checkout_that_a_landing_left_locked_is_set_right_as_soon_as_it_can(
    world: World, named: str, tmp_path: Path
) -> None:
    world.commit({"x.txt": "x\n"})
    built = await world.built()
    if named == "by a symlink":
        (tmp_path / "alias").symlink_to(world.repo)
    repo = tmp_path / "alias" if named == "by a symlink" else world.repo
    world.host = host = LackingOnceMoved()
    with pytest.raises(Temporary):
        await world.land(built)
    assert world.main() == built.commit and world.litter() != []
    with pytest.raises(Temporary):
        await repair_checkouts(host, repo)
    host.lacking = False
    await repair_checkouts(host, repo)
    assert (world.status(), world.litter()) == ("", []) and world.show("x.txt") == "x"
