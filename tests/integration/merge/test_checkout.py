"""The user's checkout of the base is updated by a merge, or the merge is blocked with a reason; other files are not changed."""

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
from agent_orchestrator.changes.merge import Blocked, CompletedMerge, merge, repair_checkouts, user_checkout
from agent_orchestrator.changes.merge.user_checkout import BranchCheckout
from agent_orchestrator.errors import Temporary
from agent_orchestrator.protocols.host import ProgramResult
from tests.hostile import create_nested_folders
from tests.integration.merge.world import DaemonKilled, MergeWorld, snapshot, write
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


def edit_file(world: MergeWorld, name: str, text: str = "user's\n") -> None:
    write(world.repo, {name: text})


def stage_edit(world: MergeWorld) -> None:
    edit_file(world, "b.txt")
    git(world.repo, "add", "b.txt")


def stage_and_edit_back(world: MergeWorld) -> None:
    old = (world.repo / "b.txt").read_text()
    stage_edit(world)
    edit_file(world, "b.txt", old)


def stage_new(world: MergeWorld) -> None:
    edit_file(world, "x.txt")
    git(world.repo, "add", "x.txt")


def intent_to_add(world: MergeWorld) -> None:
    edit_file(world, "x.txt")
    git(world.repo, "add", "-N", "x.txt")


def hide_edit(world: MergeWorld, option: str) -> None:
    git(world.repo, "update-index", option, "b.txt")
    edit_file(world, "b.txt")


def replace_by_link(world: MergeWorld) -> None:
    (world.repo / "b.txt").unlink()
    (world.repo / "b.txt").symlink_to("a.txt")


def make_folder_with_content(world: MergeWorld) -> None:
    edit_file(world, "x.txt/inside.txt")


def make_folder_with_link(world: MergeWorld) -> None:
    (world.repo / "x.txt").mkdir()
    (world.repo / "x.txt" / "link").symlink_to("..")


BLOCKING_EDITS: dict[str, tuple[Callable[[MergeWorld], None], str]] = {
    "edited": (lambda world: edit_file(world, "b.txt"), "b.txt"),
    "staged": (stage_edit, "b.txt"),
    "staged, then edited back": (stage_and_edit_back, "b.txt"),
    "staged new": (stage_new, "x.txt"),
    "intent to add": (intent_to_add, "x.txt"),
    "deleted": (lambda world: (world.repo / "b.txt").unlink(), "b.txt"),
    "edited what is to be deleted": (lambda world: edit_file(world, "d/c.txt"), "d/c.txt"),
    "mode": (lambda world: (world.repo / "b.txt").chmod(0o755), "b.txt"),
    "replaced by a link": (replace_by_link, "b.txt"),
    "untracked": (lambda world: edit_file(world, "x.txt"), "x.txt"),
    "untracked folder": (make_folder_with_content, "x.txt/inside.txt"),
    "untracked link to a folder": (make_folder_with_link, "x.txt/link"),
    "untracked above": (lambda world: edit_file(world, "new"), "new"),
    "ignored": (lambda world: edit_file(world, "trace.log"), "trace.log"),
    "assume-unchanged": (lambda world: hide_edit(world, "--assume-unchanged"), "b.txt"),
    "skip-worktree": (lambda world: hide_edit(world, "--skip-worktree"), "b.txt"),
}


def commit_changes(world: MergeWorld) -> None:
    """Commit a change, a deletion and additions, also of an ignored file and in a new folder."""
    write(world.agent, {"b.txt": "agent's\n", "d/c.txt": None, "x.txt": "x", "new/y.txt": "y", "trace.log": "x"})
    git(world.agent, "add", "-A", "-f")
    git(world.agent, "commit", "-qm", "change")
    world.use_head()


@pytest.mark.parametrize("case", BLOCKING_EDITS)
async def test_conflicting_local_changes_are_named_and_kept(world: MergeWorld, case: str) -> None:
    act, name = BLOCKING_EDITS[case]
    commit_changes(world)
    act(world)
    before, files, status = world.main(), snapshot(world.repo), world.status()
    index = git(world.repo, "ls-files", "-v", "--stage")
    outcome = await world.merge()
    assert isinstance(outcome, Blocked), outcome
    assert (outcome.files, outcome.checkout) == ((name,), world.repo)
    assert name in outcome.reason
    assert (world.main(), snapshot(world.repo), world.status()) == (before, files, status)
    assert git(world.repo, "ls-files", "-v", "--stage") == index
    assert world.leftovers() == []


async def test_endless_folders_block_a_merge(world: MergeWorld) -> None:
    commit_changes(world)
    (world.repo / "x.txt").mkdir()
    create_nested_folders(world.repo / "x.txt", 2100)
    try:
        outcome = await world.merge()
        assert isinstance(outcome, Blocked) and outcome.files == ("x.txt",), outcome
    finally:
        subprocess.run(["rm", "-rf", str(world.repo / "x.txt")], check=True)  # pytest could not


async def test_a_blocked_merge_succeeds_once_the_file_is_out_of_the_way(world: MergeWorld) -> None:
    commit_changes(world)
    edit_file(world, "x.txt")
    built = await world.build()
    assert isinstance(await world.merge(built), Blocked)
    (world.repo / "x.txt").unlink()
    await world.merge_successfully(built)
    assert world.status() == ""


async def test_unrelated_local_changes_of_every_kind_are_kept(world: MergeWorld) -> None:
    commit_changes(world)
    write(world.repo, {"a.txt": "staged\n", "untracked é.txt": "u", "deep/er/file": "u", "other.log": "ignored"})
    git(world.repo, "add", "a.txt")
    write(world.repo, {"a.txt": "staged and edited\n"})
    write(world.repo, {".gitignore": None})
    git(world.repo, "stash", "store", "-m", "kept", git(world.repo, "stash", "create"))
    staged_blob = git(world.repo, "ls-files", "--stage", "a.txt")
    await world.merge_successfully()
    assert world.status() == " D .gitignore\nMM a.txt\n?? deep/er/file\n?? other.log\n?? untracked é.txt".replace(
        "untracked é.txt", '"untracked \\303\\251.txt"'
    )
    assert git(world.repo, "ls-files", "--stage", "a.txt") == staged_blob
    assert (world.repo / "a.txt").read_text() == "staged and edited\n"
    assert (world.repo / "new/y.txt").read_text() == "y"
    assert git(world.repo, "stash", "list").endswith("kept")


async def test_local_changes_equal_to_the_merge_do_not_block_it(world: MergeWorld) -> None:
    commit_changes(world)
    write(world.repo, {"x.txt": "x", "b.txt": "agent's\n", "d/c.txt": None})
    await world.merge_successfully()
    assert world.status() == ""


async def test_a_file_with_a_new_timestamp_only_does_not_block_a_merge(world: MergeWorld) -> None:
    commit_changes(world)
    os.utime(world.repo / "b.txt", (1, 1))
    await world.merge_successfully()
    assert (world.repo / "b.txt").read_text() == "agent's\n"


async def test_a_change_of_the_same_size_and_timestamp_is_detected(world: MergeWorld) -> None:
    commit_changes(world)
    path = world.repo / "b.txt"
    moment = path.stat().st_mtime_ns
    path.write_text("B\n")
    for name in (path, world.repo / ".git/index"):
        os.utime(name, ns=(moment, moment))
    outcome = await world.merge()
    assert isinstance(outcome, Blocked)
    assert path.read_text() == "B\n"


@pytest.mark.parametrize("command", ["merge", "cherry-pick", "revert", "rebase", "am"])
async def test_an_unfinished_git_command_blocks_a_merge(world: MergeWorld, command: str) -> None:
    commit_changes(world)
    git(world.repo, "checkout", "-q", "-b", "side")
    world.commit({"a.txt": "side\n"}, target=world.repo)
    patch = git(world.repo, "format-patch", "-1", "--stdout") + "\n"
    git(world.repo, "checkout", "-q", "main")
    world.commit({"a.txt": "main\n"}, target=world.repo)
    world.commit({"a.txt": "main 2\n"}, target=world.repo)
    argv = {"revert": ("HEAD~",), "am": ("-q", "-3")}.get(command, ("side",))
    git(world.repo, command, *argv, check=False, stdin=patch.encode(), env={"GIT_EDITOR": ":"})
    before, status = world.main(), world.status()
    outcome = await world.merge()
    assert isinstance(outcome, Blocked)
    assert ("is unfinished in" in outcome.reason) or ("is being rebased in" in outcome.reason)
    assert (world.main(), world.status()) == (before, status)
    if command != "am":
        git(world.repo, command, "--abort")
        await world.merge_successfully()


async def test_conflicts_of_a_stash_block_a_merge(world: MergeWorld) -> None:
    commit_changes(world)
    edit_file(world, "a.txt", "stashed\n")
    git(world.repo, "stash", "-q")
    world.commit({"a.txt": "main\n"}, target=world.repo)
    git(world.repo, "stash", "pop", check=False)
    outcome = await world.merge()
    assert isinstance(outcome, Blocked)
    assert outcome.files == ("a.txt",)


async def test_a_lock_of_another_git_command_blocks_a_merge(world: MergeWorld) -> None:
    commit_changes(world)
    built, lock = await world.build(), world.repo / ".git/index.lock"
    lock.touch()
    outcome = await world.merge(built)
    assert isinstance(outcome, Blocked)
    assert "another Git command" in outcome.reason
    timer = threading.Timer(0.1, lock.unlink)
    timer.start()
    await world.merge_successfully(built)
    timer.join()


@pytest.mark.parametrize("detached", [True, False])
async def test_only_the_ref_moves_if_another_branch_is_checked_out(world: MergeWorld, detached: bool) -> None:
    commit_changes(world)
    git(world.repo, "checkout", "-q", *(["--detach"] if detached else ["-b", "other"]))
    edit_file(world, "b.txt")
    head, files = git(world.repo, "rev-parse", "HEAD"), snapshot(world.repo)
    built = await world.build()
    await world.merge_successfully(built)
    assert (world.main(), git(world.repo, "rev-parse", "HEAD")) == (built.commit, head)
    assert (snapshot(world.repo), world.status()) == (files, " M b.txt")


async def test_only_worktrees_of_the_base_are_updated(world: MergeWorld) -> None:
    commit_changes(world)
    git(world.repo, "checkout", "-q", "-b", "other")
    second = world.root / "second one"
    git(world.repo, "worktree", "add", "-q", str(second), "main")
    edit_file(world, "b.txt")
    write(second, {"a.txt": "user's\n"})
    await world.merge_successfully()
    assert world.status(second) == " M a.txt"
    assert (second / "x.txt").read_text() == "x"
    assert (world.status(), world.status(world.agent)) == (" M b.txt", "")


async def test_all_checkouts_of_the_base_are_updated_or_none(world: MergeWorld) -> None:
    commit_changes(world)
    second = world.root / "second"
    git(world.repo, "worktree", "add", "-q", "--force", str(second), "main")
    built, before = await world.build(), world.main()

    def edit(step: str) -> None:
        if step == "recorded":
            write(second, {"b.txt": "edited at this moment\n"})

    outcome = await merge(world.host, world.spec, built, edit)
    assert isinstance(outcome, Blocked)
    assert (world.main(), world.status(), world.status(second)) == (before, "", " M b.txt")
    git(second, "checkout", "-q", "b.txt")
    await world.merge_successfully(built)
    assert (world.status(), world.status(second), world.leftovers()) == ("", "", [])


async def test_a_missing_locked_worktree_blocks_a_merge(world: MergeWorld) -> None:
    commit_changes(world)
    git(world.repo, "checkout", "-q", "-b", "other")
    second = world.root / "second"
    git(world.repo, "worktree", "add", "-q", str(second), "main")
    git(world.repo, "worktree", "lock", str(second))
    second.rename(world.root / "unplugged")
    outcome = await world.merge()
    assert isinstance(outcome, Blocked)
    assert "not there" in outcome.reason
    git(world.repo, "worktree", "unlock", str(second))
    await world.merge_successfully()


async def test_a_sparse_checkout_stays_sparse(world: MergeWorld) -> None:
    commit_changes(world)
    git(world.repo, "sparse-checkout", "set", "--cone", "d")
    await world.merge_successfully()
    assert not (world.repo / "new").exists()
    assert (world.repo / "b.txt").read_text() == "agent's\n"
    assert world.status() == ""


async def test_a_submodule_keeps_its_checkout(world: MergeWorld) -> None:
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
    await world.merge_successfully()
    assert (git(inner, "rev-parse", "HEAD"), snapshot(inner)) == (head, files)
    assert git(world.repo, "rev-parse", "main:sub") == "1" * 40


async def test_line_endings_follow_the_users_configuration(world: MergeWorld) -> None:
    world.commit({".gitattributes": "*.txt text\n"}, target=world.repo)
    git(world.repo, "config", "core.autocrlf", "true")
    git(world.agent, "reset", "-q", "--hard", "main")
    write(world.repo, {"b.txt": None})
    git(world.repo, "checkout", "-q", "b.txt")
    assert (world.repo / "b.txt").read_bytes() == b"b\r\n"
    git(world.agent, "config", "core.autocrlf", "true")
    world.commit({"b.txt": "agent's\r\n"})
    await world.merge_successfully()
    assert ((world.repo / "b.txt").read_bytes(), world.status()) == (b"agent's\r\n", "")
    assert world.show("b.txt") == "agent's"


@pytest.mark.parametrize("step", ["recorded", "locked"])
async def test_a_simultaneous_edit_is_kept(world: MergeWorld, step: str) -> None:
    commit_changes(world)
    built, before = await world.build(), world.main()

    def edit(done: str) -> None:
        if done == step:
            edit_file(world, "b.txt")

    outcome = await merge(world.host, world.spec, built, edit)
    assert isinstance(outcome, Blocked)
    assert (world.main(), (world.repo / "b.txt").read_text(), world.status()) == (before, "user's\n", " M b.txt")
    assert world.leftovers() == []


async def test_a_branch_checked_out_simultaneously_is_not_moved(world: MergeWorld) -> None:
    commit_changes(world)
    git(world.repo, "branch", "other")
    built = await world.build()

    def switch(done: str) -> None:
        if done == "recorded":
            git(world.repo, "checkout", "-q", "other")

    outcome = await merge(world.host, world.spec, built, switch)
    assert isinstance(outcome, Blocked)
    assert (world.status(), git(world.repo, "rev-parse", "other")) == ("", built.base_before)
    await world.merge_successfully(built)


@pytest.mark.parametrize("crash", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("step", ["files", "index"])
async def test_a_branch_created_simultaneously_keeps_its_commit(world: MergeWorld, step: str, crash: bool) -> None:
    world.commit({"a.txt": "changed\n", "new.txt": "new\n", "d/c.txt": None})
    built, before, old = await world.build(), snapshot(world.repo), world.main()

    def begin(done: str) -> None:
        if done == step:
            git(world.repo, "switch", "-qc", "mine")
        if done == "ref" and crash:
            raise DaemonKilled(done)

    with pytest.raises(DaemonKilled) if crash else nullcontext():
        await merge(world.host, world.spec, built, begin)
    await repair_checkouts(world.host, world.repo)
    assert world.main() == built.commit
    assert (git(world.repo, "symbolic-ref", "--short", "HEAD"), git(world.repo, "rev-parse", "HEAD")) == ("mine", old)
    assert (world.status(), snapshot(world.repo), world.leftovers()) == ("", before, [])


async def test_a_base_checked_out_simultaneously_is_updated(world: MergeWorld) -> None:
    commit_changes(world)
    git(world.repo, "checkout", "-q", "--detach")
    built = await world.build()

    def switch(done: str) -> None:
        if done == "recorded":
            git(world.repo, "checkout", "-q", "main")

    assert isinstance(await merge(world.host, world.spec, built, switch), CompletedMerge)
    assert (world.main(), world.status(), world.leftovers()) == (built.commit, "", [])


async def test_a_user_who_edits_during_merges_loses_nothing(world: MergeWorld) -> None:
    is_over = threading.Event()
    written = 0

    def edit() -> None:
        nonlocal written
        while not is_over.wait(0.001):
            (world.repo / "a.txt").write_text(f"{written}\n")
            (world.repo / f"note-{written % 7}.txt").write_text(f"{written}\n")
            written += 1

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        for number in range(4):
            world.commit({"x.txt": f"{number}", f"n/{number}.txt": "n"})
            await world.merge_successfully()
            git(world.agent, "reset", "-q", "--hard", "main")
            world.use_head()
    finally:
        is_over.set()
        editor.join()
    assert (world.repo / "a.txt").read_text() == f"{written - 1}\n"
    assert world.status().splitlines()[0] == " M a.txt"
    assert all(line.startswith("?? note-") for line in world.status().splitlines()[1:])


async def test_a_read_only_checkout_blocks_a_merge(world: MergeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_changes(world)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(BranchCheckout, "_make_lock", refuse)  # root can write everywhere
    outcome = await world.merge()
    assert isinstance(outcome, Blocked)
    assert "may not be written" in outcome.reason
    assert world.status() == ""


# -- an agent's own checkout ---------------------------------------------------------------------------------------------


def check_out_main_in_worktree(world: MergeWorld) -> Path:
    """Check out `main` in the agent's worktree, so that it follows as the user's checkout does, and return its Git folder."""
    folder = Path(git(world.agent, "rev-parse", "--absolute-git-dir"))
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    git(world.agent, "reset", "-q", "--hard")
    return folder


async def test_the_lock_is_not_written_through_a_symlink(world: MergeWorld, tmp_path: Path) -> None:
    """Nothing is written through a symlink with the name of our lock."""
    world.commit({"b.txt": "agent's\n"})
    (tmp_path / "profile").write_text("mine\n")
    (check_out_main_in_worktree(world) / "ao-landing.lock").symlink_to(tmp_path / "profile")
    assert isinstance(await world.merge(), CompletedMerge)
    assert (tmp_path / "profile").read_text() == "mine\n" and world.leftovers() == []


@pytest.mark.parametrize("kind", ["symlink", "long"])
async def test_an_index_that_cannot_be_copied_blocks_a_merge(world: MergeWorld, tmp_path: Path, kind: str) -> None:
    world.commit({"b.txt": "agent's\n"})
    built, folder = await world.build(), check_out_main_in_worktree(world)
    if kind == "symlink":
        (folder / "index").rename(tmp_path / "index")
        (folder / "index").symlink_to(tmp_path / "index")
    else:
        os.truncate(folder / "index", 1 << 40)
    before = world.main()
    outcome = await world.merge(built)
    assert (
        isinstance(outcome, Blocked) and "index cannot be copied" in outcome.reason and outcome.checkout == world.agent
    )
    assert world.main() == before and world.leftovers() == []


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
async def test_a_foreign_lock_is_left_alone(world: MergeWorld, content: str) -> None:
    world.commit({"b.txt": "agent's\n"})
    lock = Path(git(world.agent, "rev-parse", "--absolute-git-dir"), "index.lock")
    lock.write_text(content)
    assert isinstance(await world.merge(), CompletedMerge)
    assert lock.read_text() == content and not (world.agent / "written").exists()


def forged_lock(old: str, new: str) -> str:
    fields = {"pid": 2**31 - 1, "started": "", "boot": "", "ref": "refs/heads/main", "old": old, "new": new}
    return json.dumps({"about": user_checkout._MARK, **fields})


@pytest.mark.parametrize("kind", ["no commits", "no index"])
async def test_a_forged_lock_of_an_agent_does_not_block_merges(world: MergeWorld, kind: str, tmp_path: Path) -> None:
    world.commit({"b.txt": "agent's\n"})
    folder = Path(git(world.agent, "rev-parse", "--absolute-git-dir"))
    head, main = world.spec.head, world.main()
    content = forged_lock("0" * 39 + "1", "0" * 39 + "2") if kind == "no commits" else forged_lock(main, head)
    if kind == "no index":
        (folder / "index").rename(tmp_path / "index")
        (folder / "index").symlink_to(tmp_path / "index")
    (folder / "index.lock").write_text(content)
    assert await repair_checkouts(world.host, world.repo) == ()
    assert isinstance(await world.merge(), CompletedMerge)
    assert (folder / "index.lock").read_text() == content


def rebase_main(world: MergeWorld) -> None:
    folder = check_out_main_in_worktree(world)
    git(world.agent, "symbolic-ref", "HEAD", "refs/heads/feature/x")
    write(folder, {"rebase-merge/head-name": "refs/heads/main\n"})


AGENT_STATES = {
    "changed files": lambda world: write(world.agent, {"b.txt": "its own\n"}),
    "an unfinished merge": lambda world: write(check_out_main_in_worktree(world), {"MERGE_HEAD": world.main()}),
    "a lock": lambda world: write(check_out_main_in_worktree(world), {"index.lock": "", "HEAD.lock": ""}),
    "a folder of our own": lambda world: (check_out_main_in_worktree(world) / "ao-landing.index").mkdir(),
    "a rebase": rebase_main,
}


@pytest.mark.parametrize("state", AGENT_STATES)
async def test_an_agents_checkout_of_the_base_does_not_block_merges(world: MergeWorld, state: str) -> None:
    """The agent keeps its files and its commit, and the base moves without it."""
    world.commit({"b.txt": "agent's\n"})
    built, before = await world.build(), world.main()
    check_out_main_in_worktree(world)
    git(world.agent, "reset", "-q", "--hard", "main")
    AGENT_STATES[state](world)
    files = snapshot(world.agent)
    assert isinstance(await merge(world.host, world.spec, built), Blocked)
    outcome = await merge(world.host, world.spec, built, workspaces=[world.agent])
    assert isinstance(outcome, CompletedMerge) and world.main() == built.commit and world.status() == ""
    assert snapshot(world.agent) == files
    if state not in ("a lock", "a rebase"):
        head = Path(git(world.agent, "rev-parse", "--absolute-git-dir"), "HEAD").read_text()
        assert head == f"{before}\n"


class KilledOnce(LocalHost):
    """A host on which Git is killed once when it updates the files of a checkout."""

    killed = False

    async def run(self, argv: Sequence[str], **options: Any) -> ProgramResult:
        if not self.killed and "read-tree" in argv and "-u" in argv:
            self.killed = True
            return ProgramResult(-9, b"", b"")
        return await super().run(argv, **options)


async def test_a_merge_is_repeated_after_git_was_killed(world: MergeWorld) -> None:
    world.commit({"x.txt": "x\n"})
    before, built = world.main(), await world.build()
    world.host = KilledOnce()
    with pytest.raises(GitFailed) as killed:
        await world.merge(built)
    assert killed.value.retryable and (world.main(), world.status(), world.leftovers()) == (before, "", [])
    assert isinstance(await world.merge(built), CompletedMerge) and world.show("x.txt") == "x"


class FailsAfterMove(LocalHost):
    """A host on which Git cannot be started for a while after the ref has moved."""

    is_failing = False

    async def run(self, argv: Sequence[str], **options: Any) -> ProgramResult:
        if self.is_failing and "worktree" not in argv:
            raise Temporary("git could not be started: Too many open files")
        result = await super().run(argv, **options)
        self.is_failing |= "update-ref" in argv and "--stdin" in argv
        return result


@pytest.mark.parametrize("named", ["by its path", "by a symlink"])
async def test_a_checkout_left_locked_by_a_merge_is_repaired_later(
    world: MergeWorld, named: str, tmp_path: Path
) -> None:
    world.commit({"x.txt": "x\n"})
    built = await world.build()
    if named == "by a symlink":
        (tmp_path / "alias").symlink_to(world.repo)
    repo = tmp_path / "alias" if named == "by a symlink" else world.repo
    world.host = host = FailsAfterMove()
    with pytest.raises(Temporary):
        await world.merge(built)
    assert world.main() == built.commit and world.leftovers() != []
    with pytest.raises(Temporary):
        await repair_checkouts(host, repo)
    host.is_failing = False
    await repair_checkouts(host, repo)
    assert (world.status(), world.leftovers()) == ("", []) and world.show("x.txt") == "x"
