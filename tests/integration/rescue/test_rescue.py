"""Everything an agent leaves in its workspace is restored byte for byte after the workspace was removed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.rescue import describe_uncommitted, removal_obstacles, rescue, restore_work, survey
from tests.hostile import create_nested_folders
from tests.integration.rescue.states import SCENARIOS, Scenario, commit, merging, staged_and_unstaged
from tests.integration.rescue.world import RescueWorld, git, make_repository, read_files, read_git_state

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_every_state_is_restored_byte_for_byte(world: RescueWorld, scenario: Scenario) -> None:
    await world.make()
    scenario(world.path)
    files, state = read_files(world.path), read_git_state(world.path)
    fsck_output = git(world.path, "fsck", "--connectivity-only", "--no-dangling", check=False)
    assert await removal_obstacles(world.host, world.spec.repo, world.path, "app-task") != ()

    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")

    assert not saved.clean and saved.saved and not saved.unsafe, saved
    assert saved.ref == "refs/ao/rescue/app-task" and git(world.spec.repo, "rev-parse", saved.ref) == saved.commit
    assert read_files(world.path) == files and read_git_state(world.path) == state, "saving must not change anything"
    assert await removal_obstacles(world.host, world.spec.repo, world.path, "app-task") == ()
    git(world.spec.repo, "stash", "clear")
    restored = await world.recreate()
    assert restored.restored == saved.saved
    assert read_files(world.path) == files
    _same_state(read_git_state(world.path), state)
    assert git(world.path, "fsck", "--connectivity-only", "--no-dangling", check=False) == fsck_output


def _same_state(now: dict[str, str], before: dict[str, str]) -> None:
    """Check that the state of a checkout is unchanged, except shared refs."""
    assert {name for name in now if name.startswith("file ")} >= {name for name in before if name.startswith("file ")}
    for name, value in before.items():
        if name != "file ORIG_HEAD":
            assert now[name] == value, name


async def test_a_rescue_survives_garbage_collection(world: RescueWorld) -> None:
    """Everything in a rescue is reachable from its ref."""
    await world.make()
    merging(world.path)
    (world.path / "staged").write_text("in the index\n")
    git(world.path, "add", "staged")
    (world.path / "staged").write_text("in the folder\n")
    files, state = read_files(world.path), read_git_state(world.path)
    await rescue(world.host, world.spec.repo, world.path, "app-task")
    await world.plugin.remove(world.spec)
    git(world.spec.repo, "branch", "-D", "side", check=False)
    git(world.spec.repo, "reflog", "expire", "--expire=now", "--all")
    git(world.spec.repo, "gc", "-q", "--prune=now")
    await world.plugin.create(replace(world.spec, existing=True), lambda _: None)
    await restore_work(world.host, world.spec.repo, world.path, "app-task")
    assert read_files(world.path) == files
    assert read_git_state(world.path)["index"] == state["index"]
    git(world.path, "fsck", "--connectivity-only", "--no-dangling")
    git(world.path, "cat-file", "-e", ":3:a.txt")
    git(world.path, "cat-file", "-e", "MERGE_HEAD^{tree}")


async def test_worktrees_created_by_the_agent_are_saved(world: RescueWorld) -> None:
    """In an ignored folder, as agents' helpers create them, and elsewhere."""
    await world.make()
    for name in ("changed", "clean", "loose"):
        git(world.path, "worktree", "add", "-q", *(["--detach"] if name == "loose" else []), f"out/trees/{name}")
    inner = world.path / "out" / "trees" / "changed"
    (inner / "unsaved.txt").write_text("of a helper\n")
    commit(world.path / "out" / "trees" / "clean", "kept.txt", "kept\n")
    only = commit(world.path / "out" / "trees" / "loose", "only.txt", "only\n")
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    if saved.unsafe:  # a clone's worktrees need the clone's own folder
        assert ["changed" in reason and "history" in reason for reason in saved.unsafe] == [True]
        (inner / "unsaved.txt").unlink()
        git(world.path, "worktree", "add", "-q", "--detach", str(world.path.parent / "elsewhere"))
        saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
        assert any("elsewhere is a worktree of this clone" in reason for reason in saved.unsafe)
        git(world.path, "worktree", "remove", "--force", str(world.path.parent / "elsewhere"))
        saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
        assert not saved.unsafe and await removal_obstacles(world.host, world.spec.repo, world.path, "app-task") == ()
    else:
        assert "1 nested repository" in saved.saved
        assert (await world.recreate()).restored == saved.saved
        assert (inner / "unsaved.txt").read_text() == "of a helper\n"
        assert git(inner, "status", "--porcelain") == "?? unsaved.txt"
    git(world.spec.repo, "worktree", "prune")
    git(world.spec.repo, "reflog", "expire", "--expire=now", "--all")
    git(world.spec.repo, "gc", "-q", "--prune=now")
    git(world.spec.repo, "cat-file", "-e", f"{only}^{{commit}}")


async def test_work_that_could_not_be_restored_is_reported_until_it_is(world: RescueWorld) -> None:
    """The branch moved meanwhile, and then there is more to save."""
    await world.make()
    (world.path / "first.txt").write_text("first\n")
    first = await rescue(world.host, world.spec.repo, world.path, "app-task")
    await world.plugin.remove(world.spec)
    branch = f"refs/heads/{world.spec.branch}"
    tree, tip = f"{branch}^{{tree}}", git(world.spec.repo, "rev-parse", branch)
    git(world.spec.repo, "update-ref", branch, git(world.spec.repo, "commit-tree", tree, "-p", tip, "-m", "more"))
    await world.plugin.create(replace(world.spec, existing=True), lambda _: None)
    command = f"git cherry-pick -n -m 1 {(first.commit or '')[:12]}"
    assert command in (await restore_work(world.host, world.spec.repo, world.path, "app-task")).waiting
    (world.path / "second.txt").write_text("second\n")
    second = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert (first.commit or "")[:12] in second.saved[-1] and "not brought back" in second.saved[-1]
    again = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert again.commit == second.commit and again.saved == second.saved[:-1], "what is the same is not saved twice"
    await world.recreate()
    assert (world.path / "second.txt").exists() and not (world.path / "first.txt").exists()
    git(world.spec.repo, "gc", "-q", "--prune=now")
    git(world.path, *command.split()[1:])
    assert (world.path / "first.txt").read_text() == "first\n"


async def test_a_clean_workspace_has_nothing_to_save(world: RescueWorld) -> None:
    await world.make()
    commit(world.path, "done.txt", "done\n")
    if world.spec.repo != world.path:
        publish = getattr(world.plugin, "publish", None)
        if publish:
            await publish(world.spec)
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert saved.clean and saved.ref is None and saved.saved == ()
    assert await removal_obstacles(world.host, world.spec.repo, world.path, "app-task") == ()
    assert await describe_uncommitted(world.host, world.path) == ""
    assert (await restore_work(world.host, world.spec.repo, world.path, "app-task")).restored == ()


async def test_discarded_commits_are_saved(world: RescueWorld) -> None:
    await world.make()
    lost = commit(world.path, "work.txt", "hours of work\n")
    git(world.path, "reset", "-q", "--hard", "HEAD~1")
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert saved.saved == ("1 commit that no branch has",)
    await world.plugin.remove(world.spec)
    git(world.spec.repo, "merge-base", "--is-ancestor", lost, "refs/ao/rescue/app-task")


async def test_ignored_files_are_saved_if_named_and_changed(world: RescueWorld) -> None:
    (world.spec.repo / "same.log").write_text("same\n")
    await world.make()
    (world.path / "out" / "deep").mkdir(parents=True)
    (world.path / "out" / "deep" / "result").write_bytes(b"\0result")
    (world.path / "other.log").write_text("not named\n")
    (world.path / "same.log").write_text("same\n")
    (world.path / "mine.log").write_text("mine\n")
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task", ["out", "same.log", "m*.log"])
    assert saved.saved == ("2 ignored files that are to be kept",)
    await world.recreate()
    assert (world.path / "out" / "deep" / "result").read_bytes() == b"\0result"
    assert (world.path / "mine.log").read_text() == "mine\n"
    assert not (world.path / "other.log").exists() and not (world.path / "same.log").exists()


async def test_the_same_content_is_saved_once(world: RescueWorld) -> None:
    await world.make()
    (world.path / "x").write_text("x")
    first = await rescue(world.host, world.spec.repo, world.path, "app-task")
    second = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert second == first


async def test_an_earlier_rescue_stays_reachable(world: RescueWorld) -> None:
    await world.make()
    (world.path / "x").write_text("first")
    first = await rescue(world.host, world.spec.repo, world.path, "app-task")
    (world.path / "x").write_text("second")
    second = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert first.commit and second.commit and first.commit != second.commit
    git(world.spec.repo, "merge-base", "--is-ancestor", first.commit, second.commit)
    await world.recreate()
    assert (world.path / "x").read_text() == "second"
    (world.path / "x").write_text("third")
    third = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert third.commit
    git(world.spec.repo, "merge-base", "--is-ancestor", second.commit, third.commit)


async def test_restored_work_is_not_restored_again(world: RescueWorld) -> None:
    await world.make()
    (world.path / "x").write_text("x")
    await rescue(world.host, world.spec.repo, world.path, "app-task")
    await world.recreate()
    (world.path / "x").unlink()
    assert (await restore_work(world.host, world.spec.repo, world.path, "app-task")).restored == ()
    assert not (world.path / "x").exists()


async def test_a_restore_can_be_repeated_after_a_crash(world: RescueWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.make()
    staged_and_unstaged(world.path)
    files, state = read_files(world.path), read_git_state(world.path)
    await rescue(world.host, world.spec.repo, world.path, "app-task")

    def crash(*_: object) -> None:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr("agent_orchestrator.sessions.rescue.restore._restore_git_files", crash)
        with pytest.raises(RuntimeError, match="killed here"):
            await world.recreate()
    assert read_files(world.path) != {} and read_git_state(world.path)["index"] != state["index"]
    await restore_work(world.host, world.spec.repo, world.path, "app-task")
    assert read_files(world.path) == files and read_git_state(world.path)["index"] == state["index"]


async def test_a_kept_workspace_is_not_changed_by_a_restore(world: RescueWorld) -> None:
    await world.make()
    staged_and_unstaged(world.path)
    files = read_files(world.path)
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    restored = await restore_work(world.host, world.spec.repo, world.path, "app-task")
    assert restored.restored == saved.saved and not restored.waiting and read_files(world.path) == files


async def test_newer_work_is_never_overwritten(world: RescueWorld) -> None:
    await world.make()
    (world.path / "a.txt").write_text("saved\n")
    await rescue(world.host, world.spec.repo, world.path, "app-task")
    (world.path / "a.txt").write_text("newer, by hand\n")
    restored = await restore_work(world.host, world.spec.repo, world.path, "app-task")
    assert "changes of its own" in restored.waiting and restored.ref == "refs/ao/rescue/app-task"
    assert (world.path / "a.txt").read_text() == "newer, by hand\n"
    git(world.path, "checkout", "-q", "a.txt")
    commit(world.path, "b.txt", "moved on\n")
    restored = await restore_work(world.host, world.spec.repo, world.path, "app-task")
    assert "has moved" in restored.waiting
    git(world.path, "cherry-pick", "-n", "-m", "1", git(world.spec.repo, "rev-parse", "refs/ao/rescue/app-task"))
    assert (world.path / "a.txt").read_text() == "saved\n" and (world.path / "b.txt").read_text() == "moved on\n"


async def test_a_rescue_can_be_read_with_git(world: RescueWorld) -> None:
    await world.make()
    staged_and_unstaged(world.path)
    await rescue(world.host, world.spec.repo, world.path, "app-task")
    content = git(world.spec.repo, "show", "refs/ao/rescue/app-task:a.txt")
    assert content == "staged, then changed"
    assert (
        git(world.spec.repo, "log", "-1", "--format=%an <%ae>", "refs/ao/rescue/app-task")
        == "Agent Orchestrator <ao@localhost>"
    )
    assert git(
        world.spec.repo, "diff", "--name-only", "refs/ao/rescue/app-task^1", "refs/ao/rescue/app-task"
    ).split() == [
        "a.txt",
        "b.txt",
        "new.txt",
    ]


async def test_a_rescue_needs_no_git_identity(world: RescueWorld, own_world: Path) -> None:
    await world.make()
    (world.path / "x").write_text("x")
    (own_world / ".gitconfig").write_text("[user]\nuseConfigOnly = true\n")
    git(world.path, "config", "--unset-all", "user.name", check=False)
    assert (await rescue(world.host, world.spec.repo, world.path, "app-task")).commit


async def test_a_rescue_runs_no_hooks_or_filters(world: RescueWorld) -> None:
    await world.make()
    (world.path / ".gitattributes").write_text("* filter=trap\n")
    (world.path / "x").write_text("x\n")
    mark = world.spec.private / "mark"
    git(world.path, "config", "filter.trap.smudge", f"touch '{mark}'; cat")
    hooks = Path(git(world.path, "rev-parse", "--path-format=absolute", "--git-path", "hooks"))
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "post-checkout", "pre-commit", "post-rewrite"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{mark}'\n")
        (hooks / name).chmod(0o755)
    await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert not mark.exists()


async def test_special_files_are_reported_and_skipped(world: RescueWorld) -> None:
    await world.make()
    os.mkfifo(world.path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        descriptor = os.open(world.path, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{descriptor}/sock")
        finally:
            os.close(descriptor)
    (world.path / "x").write_text("x")
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert saved.skipped == ("pipe", "sock") and saved.saved == ("1 untracked file",)


async def test_unsaved_files_are_summarized(world: RescueWorld) -> None:
    await world.make()
    (world.path / "a.txt").write_text("changed\n")
    assert await describe_uncommitted(world.host, world.path) == "1 file uncommitted"
    (world.path / "x").write_text("x")
    assert await describe_uncommitted(world.host, world.path) == "2 files uncommitted"


async def test_a_submodule_with_its_own_work_keeps_the_workspace(world: RescueWorld, tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library")
    git(world.spec.repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(world.spec.repo, "commit", "-qm", "with library")
    await world.make()
    assert (world.path / "lib" / "a.txt").is_file()
    assert await removal_obstacles(world.host, world.spec.repo, world.path, "app-task") == ()
    (world.path / "lib" / "a.txt").write_text("changed in the library\n")
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert not saved.clean and any("lib" in reason for reason in saved.unsafe)
    git(world.path / "lib", "commit", "-qam", "not pushed", env={"GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z"})
    assert any(
        "lib" in reason for reason in await removal_obstacles(world.host, world.spec.repo, world.path, "app-task")
    )
    git(world.path / "lib", "switch", "-q", "-c", "work")
    git(world.path / "lib", "switch", "-q", "--orphan", "begun")
    git(world.path, "update-index", "--assume-unchanged", "lib")
    reasons = await removal_obstacles(world.host, world.spec.repo, world.path, "app-task")
    assert "submodule lib has commits that are not pushed" in reasons


async def test_a_submodule_excluded_by_a_sparse_checkout_is_restored(
    world: RescueWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text('[include]\npath = ~/.gitconfig\n[protocol "file"]\nallow = always\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    library = make_repository(world.spec.path.parent / "library")
    await world.make()
    git(world.path, "submodule", "--quiet", "add", str(library), "lib")
    git(world.path, "sparse-checkout", "set", "--no-cone", "/a.txt")
    files = read_files(world.path)
    assert b"lib/a.txt" in files and b".gitmodules" not in files
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert not saved.unsafe
    await world.recreate()
    assert read_files(world.path) == files


async def test_a_removed_submodule_with_commits_keeps_the_workspace(world: RescueWorld) -> None:
    """Its commits exist only in the workspace's Git folder."""
    library = make_repository(world.spec.path.parent / "library")
    await world.make()
    git(world.path, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(world.path, "commit", "-qm", "with library")
    git(world.path / "lib", "commit", "-q", "--allow-empty", "-m", "not pushed")
    git(world.path, "reset", "-q", "--hard", "HEAD~1")
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert [reason for reason in saved.unsafe if reason.startswith("lib was a submodule,")]
    assert await removal_obstacles(world.host, world.spec.repo, world.path, "app-task")


def make_sparse_file(path: Path, size: int = 300 << 30) -> None:
    """Create a sparse file that would take hours to read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(size)


async def test_files_too_large_to_save_keep_the_workspace_without_delay(world: RescueWorld) -> None:
    await world.make()
    git(world.path, "init", "-q", "within")
    make_sparse_file(world.path / "within/data")
    make_sparse_file(world.path / "huge.bin")
    make_sparse_file(world.path / "a.txt")
    make_sparse_file(Path(git(world.path, "rev-parse", "--absolute-git-dir")) / "HUGE")
    reasons = {f"{name} is too large to be saved: more than 4 GB" for name in ("within", "huge.bin", "a.txt")}
    reasons.add("HUGE is too large to be saved: more than 0.25 GB")
    async with asyncio.timeout(60):
        saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
        assert not saved.clean and saved.ref is None and set(saved.unsafe) == reasons
        (world.path / "small").write_text("small\n")
        saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
        assert saved.saved == ("1 untracked file",) and set(saved.unsafe) == reasons
        assert set(await removal_obstacles(world.host, world.spec.repo, world.path, "app-task")) == reasons
    assert git(world.spec.repo, "show", f"{saved.ref}:small") == "small"


async def test_files_too_large_together_keep_the_workspace(world: RescueWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MAX_TOTAL_SIZE", 1 << 30)
    await world.make()
    for name in ("one", "two", "zwei"):
        make_sparse_file(world.path / name, 400 << 20)
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    assert saved.saved == ("2 untracked files",)
    assert saved.unsafe == ("zwei is too large to be saved: more than 1 GB with what else is to be saved",)


@pytest.mark.parametrize("detached", [False, True], ids=["branch", "detached"])
async def test_with_a_missing_head_the_files_are_saved_and_the_workspace_is_kept(
    world: RescueWorld, detached: bool
) -> None:
    await world.make()
    (world.path / "a.txt").write_text("mine\n")
    (world.path / "new").write_text("new\n")
    (world.path / "b.txt").write_text("staged\n")
    git(world.path, "add", "b.txt")
    git_dir = Path(git(world.path, "rev-parse", "--path-format=absolute", "--git-dir"))
    common = Path(git(world.path, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    good = git(world.path, "rev-parse", "HEAD")
    lost = git_dir / "HEAD" if detached else common / "refs/heads/feature/task"
    lost.write_text(f"{'12' * 20}\n")
    before = read_files(world.path)
    saved = await rescue(world.host, world.spec.repo, world.path, "app-task")
    (reason,) = saved.unsafe
    remedy = f"git -C {world.path} reset --soft "
    assert reason == f"HEAD names 121212121212, which is no commit here; lead it to a commit: {remedy}COMMIT"
    for name, text in (("a.txt", "mine"), ("b.txt", "staged"), ("new", "new"), ("d/c.txt", "three")):
        assert git(world.spec.repo, "show", f"{saved.ref}:{name}") == text
    assert read_files(world.path) == before and lost.read_text() == f"{'12' * 20}\n", "nothing is changed"
    assert await removal_obstacles(world.host, world.spec.repo, world.path, "app-task") == (reason,)
    git(world.path, "reset", "--soft", good)
    assert not (await rescue(world.host, world.spec.repo, world.path, "app-task")).unsafe, "the remedy is one"


async def test_a_full_disk_moves_no_ref_and_changes_no_file(small_disk: Path, tmp_path: Path) -> None:
    from agent_orchestrator.base.host import LocalHost
    from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
    from agent_orchestrator.testing.contracts.workspace import spec_for

    host = LocalHost()
    spec = spec_for(make_repository(small_disk / "repo"), tmp_path, "task")
    world = RescueWorld(host, WorktreeWorkspace({}, host), spec)
    await world.make()
    (world.path / "small").write_text("small\n")
    first = await rescue(host, spec.repo, world.path, "app-task")
    (world.path / "big").write_bytes(os.urandom(3_000_000))
    files, state = read_files(world.path), read_git_state(world.path)
    with pytest.raises(AoError) as caught:
        await rescue(host, spec.repo, world.path, "app-task")
    assert "disk space" in caught.value.remedy
    assert git(spec.repo, "rev-parse", "refs/ao/rescue/app-task") == first.commit
    assert read_files(world.path) == files and read_git_state(world.path) == state


# -- among what an agent has prepared ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "symlink"])
async def test_forged_marker_files_do_not_affect_a_restore(world: RescueWorld, tmp_path: Path, kind: str) -> None:
    await world.make()
    (world.path / "a.txt").write_text("changed\n")
    await rescue(world.host, world.spec.repo, world.path, "app-task")
    await world.plugin.remove(world.spec)
    await world.plugin.create(replace(world.spec, existing=True), lambda _: None)
    (tmp_path / "profile").write_text("mine\n")
    mark = Path(git(world.path, "rev-parse", "--absolute-git-dir"), "ao-bringing-back")
    if kind == "pipe":
        os.mkfifo(mark)
    else:
        mark.symlink_to(tmp_path / "profile")
    restored = await restore_work(world.host, world.spec.repo, world.path, "app-task")
    assert restored.restored and (world.path / "a.txt").read_text() == "changed\n" and not os.path.lexists(mark)
    assert (tmp_path / "profile").read_text() == "mine\n"


async def test_deep_and_long_git_state_files_are_surveyed(world: RescueWorld) -> None:
    await world.make()
    loose = commit(world.path, "a.txt", "loose\n")
    git(world.path, "reset", "-q", "--hard", "HEAD^")
    git_folder = Path(git(world.path, "rev-parse", "--absolute-git-dir"))
    (git_folder / "AO_STATE").write_text(" " * ((1 << 20) - 20) + loose + " " * (1 << 20))
    (git_folder / "rebase-merge").mkdir()
    create_nested_folders(git_folder / "rebase-merge", 1100)
    try:
        survey_result = await survey.survey(world.host, world.spec.repo, world.path, ())
        assert survey_result.mentioned.get(loose) == "commit" and "AO_STATE" in survey_result.git_files
    finally:
        subprocess.run(["rm", "-rf", str(git_folder / "rebase-merge")], check=True)  # pytest could not


async def test_a_forged_index_removes_nothing_outside_the_workspace(world: RescueWorld) -> None:
    """The index skips a file whose name leaves the workspace through a folder that does not exist when it is saved."""
    await world.make()
    (world.path / "d").mkdir(exist_ok=True)
    commit(world.path, "d/f", "f\n")
    elsewhere, name = world.path.parent / "victim", b"d/../../victim"
    elsewhere.write_text("precious\n")
    stand_in = "d/AA/AA/victim"
    sha = git(world.path, "rev-parse", "HEAD:d/f")
    git(world.path, "update-index", "--add", "--cacheinfo", f"100644,{sha},{stand_in}")
    git(world.path, "update-index", "--skip-worktree", stand_in, "d/f")
    index = Path(git(world.path, "rev-parse", "--path-format=absolute", "--git-path", "index"))
    content = index.read_bytes()[:-20].replace(stand_in.encode(), name)
    assert name in content
    index.write_bytes(content + hashlib.sha1(content).digest())
    shutil.rmtree(world.path / "d")
    await rescue(world.host, world.spec.repo, world.path, "app-task")
    await world.recreate()
    assert elsewhere.read_text() == "precious\n"


async def test_a_mount_in_a_workspace_keeps_it_and_is_not_emptied(world: RescueWorld, tmp_path: Path) -> None:
    """A mounted folder, ignored in the workspace, so that Git does not report it."""
    await world.make()
    foreign_folder, mount_point = tmp_path / "theirs", world.path / "data to see"
    foreign_folder.mkdir()
    (foreign_folder / "gold").write_text("gold\n")
    mount_point.mkdir()
    (world.path / ".gitignore").write_text("data*\n")
    if subprocess.run(
        ["mount", "--bind", str(foreign_folder), str(mount_point)], capture_output=True, check=False
    ).returncode:
        pytest.skip("a folder can only be mounted by root")
    try:
        reasons = (f"something is mounted in it: {mount_point}",)
        assert (await rescue(world.host, world.spec.repo, world.path, "app-task")).unsafe == reasons
        assert await removal_obstacles(world.host, world.spec.repo, world.path, "app-task") == reasons
        with pytest.raises(OSError, match="something is mounted there"):
            await world.plugin.remove(world.spec)
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)
    assert (foreign_folder / "gold").exists() and world.path.is_dir()
    assert await removal_obstacles(world.host, world.spec.repo, world.path, "app-task") == ()


async def test_files_in_place_of_earlier_copies_are_saved(world: RescueWorld, tmp_path: Path) -> None:
    """Git does not show files and folders that an earlier `copy` setting excluded."""
    repo = world.spec.repo
    for name in ("settings[1].json", *(f"conf/{number}" for number in range(120))):
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text("copied\n")
    first = replace(
        world.spec,
        session="app-first",
        path=tmp_path / "worktrees" / "first",
        private=tmp_path / "sessions" / "app-first",
        branch="feature/first",
        copy=("settings[1].json", "conf"),
    )
    await world.plugin.create(first, lambda _: None)
    assert git(first.path, "status", "--porcelain") == ""
    assert await removal_obstacles(world.host, repo, first.path, "app-first") == (), "nothing but copies"
    await world.plugin.remove(first)
    await world.make()
    (world.path / "conf").mkdir()
    for name in ("settings[1].json", "conf/mine"):
        (world.path / name).write_text("work\n")
    exclude = repo / ".git" / "info" / "exclude"
    if exclude.exists():  # an agent may have written to it, too
        exclude.write_text(exclude.read_text() + "/../../up\n//etc/passwd\n/.git\n")
    files = read_files(world.path)
    await rescue(world.host, repo, world.path, "app-task")
    await world.recreate()
    assert read_files(world.path) == files
