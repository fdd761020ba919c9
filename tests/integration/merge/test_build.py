"""Building a merge of head and base with each strategy, without changing any checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.merge import BuiltMerge, Conflicted, Strategy, build_merge
from agent_orchestrator.changes.merge import merge_tree as merging_module
from agent_orchestrator.changes.merge.repository import open_repository
from agent_orchestrator.errors import Conflict, NotFound, UsageError
from tests.integration.merge.world import MergeWorld, snapshot, write
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio

ALICE = {
    "GIT_AUTHOR_NAME": "Alice",
    "GIT_AUTHOR_EMAIL": "alice@example.invalid",
    "GIT_AUTHOR_DATE": "2020-02-03T04:05:06+0700",
}
BOB = {"GIT_AUTHOR_NAME": "Bøb", "GIT_AUTHOR_EMAIL": "bob@example.invalid", "GIT_AUTHOR_DATE": "2021-01-01T00:00:00Z"}


def two_authors(world: MergeWorld) -> None:
    for name, env in (("x.txt", ALICE), ("y.txt", BOB)):
        write(world.agent, {name: name})
        git(world.agent, "add", "-A")
        git(world.agent, "commit", "-qm", f"add {name}\n\nCo-authored-by: Carol <carol@example.invalid>", env=env)
    world.use_head()
    world.commit({"b.txt": "main's\n"}, target=world.repo)


def log(world: MergeWorld, commit: str, form: str) -> list[str]:
    return git(world.repo, "log", f"--format={form}", "--date=raw", f"main..{commit}").splitlines()


async def test_a_squash_is_one_commit_that_names_all_authors(world: MergeWorld) -> None:
    two_authors(world)
    before, files, tree = world.main(), snapshot(world.repo), world.tree_of_merge()
    built = await world.build()
    assert (built.tree, built.base_before, built.up_to_date) == (tree, before, False)
    assert git(world.repo, "rev-parse", f"{built.commit}^@") == before
    assert log(world, built.commit, "%an %ae %ad %cn") == ["Bøb bob@example.invalid 1609459200 +0000 Test"]
    assert git(world.repo, "log", "-1", "--format=%B", built.commit).strip() == (
        "Add x\n\nBecause of y.\n\n"
        "Co-authored-by: Alice <alice@example.invalid>\nCo-authored-by: Carol <carol@example.invalid>"
    )
    assert (world.main(), snapshot(world.repo), world.status(), world.leftovers()) == (before, files, "", [])


async def test_a_squash_uses_the_given_author(world: MergeWorld) -> None:
    two_authors(world)
    world.spec = replace(world.spec, author=("Dora", "dora@example.invalid"))
    built = await world.build()
    assert log(world, built.commit, "%an <%ae>") == ["Dora <dora@example.invalid>"]
    assert "Co-authored-by: Bøb <bob@example.invalid>" in log(world, built.commit, "%B")


async def test_a_merge_commit_has_both_parents(world: MergeWorld) -> None:
    two_authors(world)
    world.use_strategy("merge")
    built, tree = await world.build(), world.tree_of_merge()
    assert git(world.repo, "rev-parse", f"{built.commit}^@").split() == [world.main(), world.spec.head]
    assert built.tree == tree


async def test_a_rebase_keeps_authors_dates_and_messages(world: MergeWorld) -> None:
    two_authors(world)
    world.commit({"x.txt": "x.txt"}, target=world.repo)
    git(world.agent, "commit", "-q", "--allow-empty", "-m", "nothing at all")
    world.use_head()
    world.use_strategy("rebase")
    built = await world.build()
    assert built.tree == world.tree_of_merge()
    assert log(world, built.commit, "%s %an %ad") == ["add y.txt Bøb 1609459200 +0000"]  # x.txt and the empty one: gone
    body = git(world.repo, "log", "-1", "--format=%B", built.commit)
    assert body.strip() == "add y.txt\n\nCo-authored-by: Carol <carol@example.invalid>"


async def test_a_rebase_of_a_branch_on_top_of_the_base_rewrites_nothing(world: MergeWorld) -> None:
    world.commit({"x.txt": "1"})
    world.commit({"x.txt": "2"})
    world.use_strategy("rebase")
    assert (await world.build()).commit == world.spec.head


async def test_a_rebase_of_a_branch_with_a_resolved_merge_becomes_one_commit(world: MergeWorld) -> None:
    world.commit({"b.txt": "agent's\n"})
    world.commit({"b.txt": "main's\n"}, target=world.repo)
    git(world.agent, "merge", "-q", "main", check=False)
    world.commit({"b.txt": "both\n"}, "solve")
    world.use_strategy("rebase")
    built = await world.build()
    assert log(world, built.commit, "%s") == ["Add x"]
    assert world.show("b.txt", built.commit) == "both"


async def test_a_rebase_drops_a_clean_merge_of_the_base(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"}, "one")
    world.commit({"b.txt": "main's\n"}, target=world.repo)
    git(world.agent, "merge", "-q", "--no-edit", "main")
    world.commit({"y.txt": "y"}, "two")
    world.commit({"z.txt": "z"}, target=world.repo)
    world.use_strategy("rebase")
    built = await world.build()
    assert log(world, built.commit, "%s") == ["two", "one"]
    assert built.tree == world.tree_of_merge()


async def test_a_rebase_keeps_additional_changes_of_a_merge(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"}, "one")
    world.commit({"b.txt": "main's\n"}, target=world.repo)
    git(world.agent, "merge", "-q", "--no-commit", "main")
    world.commit({"extra.txt": "e"}, "merge and more")
    world.use_strategy("rebase")
    built = await world.build()
    assert log(world, built.commit, "%s %p") == [
        f"merge and more {git(world.repo, 'rev-parse', '--short', f'{built.commit}^')}",
        f"one {git(world.repo, 'rev-parse', '--short', 'main')}",
    ]


async def test_a_rebase_with_another_result_than_the_merge_becomes_one_commit(world: MergeWorld) -> None:
    world.commit({"b.txt": "main's\n", "x.txt": "x"}, "the same as main")
    world.commit({"b.txt": "b\n"}, "and back")
    world.commit({"b.txt": "main's\n"}, target=world.repo)
    world.use_strategy("rebase")
    built = await world.build()
    assert (built.tree, log(world, built.commit, "%s")) == (world.tree_of_merge(), ["Add x"])


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_conflicts_are_named(world: MergeWorld, strategy: Strategy) -> None:
    world.commit({"a.txt": "agent\n", "d/c.txt": "agent\n", "ü n.txt": "agent"})
    before = world.commit({"a.txt": "main\n", "d/c.txt": None, "ü n.txt": "main"}, target=world.repo)
    world.use_strategy(strategy)
    conflict = await build_merge(world.host, world.spec)
    assert isinstance(conflict, Conflicted)
    assert (sorted(conflict.files), conflict.base_before) == (["a.txt", "d/c.txt", "ü n.txt"], before)


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_a_branch_without_changes_is_up_to_date(world: MergeWorld, strategy: Strategy) -> None:
    world.use_strategy(strategy)
    assert (await world.build()).up_to_date
    world.commit({"b.txt": "same\n"})
    world.commit({"b.txt": "same\n", "z.txt": "z"}, target=world.repo)
    built = await world.build()
    assert (built.up_to_date, built.commit) == (True, world.main())


async def test_modes_links_renames_and_unusual_names_are_kept(world: MergeWorld) -> None:
    world.commit({"a.txt": "zero\n" + world.show("a.txt") + "\n"}, target=world.repo)
    git(world.agent, "mv", "a.txt", "renamed é.txt")
    (world.agent / "link").symlink_to("b.txt")
    world.commit(
        {"bin": b"\0\xff\r\n", "crlf.txt": "a\r\nb\r\n", " lead/-x ": "x", "tab\tnew\nline": "x", "run.sh": "#!"}
    )
    (world.agent / "run.sh").chmod(0o755)
    world.commit({}, "mode")
    for strategy in ("squash", "rebase"):
        world.use_strategy(strategy)
        built = await world.build()
        assert built.tree == world.tree_of_merge()
        assert world.show("renamed é.txt", built.commit).startswith("zero\none")
    await world.merge_successfully()
    assert snapshot(world.repo) == {**snapshot(world.agent), "renamed é.txt": snapshot(world.repo)["renamed é.txt"]}
    assert world.status() == ""


async def test_a_submodule_pointer_is_merged(world: MergeWorld) -> None:
    git(world.agent, "update-index", "--add", "--cacheinfo", f"160000,{world.main()},sub")
    git(world.agent, "commit", "-qm", "pointer")
    world.use_head()
    world.commit({"z.txt": "z"}, target=world.repo)
    await world.merge_successfully()
    assert git(world.repo, "ls-tree", "main", "sub").split()[:3] == [
        "160000",
        "commit",
        git(world.repo, "rev-parse", "main~2"),
    ]
    assert world.status() == ""


async def test_bad_input_has_a_clear_answer(world: MergeWorld) -> None:
    git(world.agent, "checkout", "-q", "--orphan", "alone")
    world.commit({"x": "x"})
    with pytest.raises(Conflict, match="no common ancestor"):
        await world.build()
    for change, error in (
        ({"base": "nope"}, NotFound),
        ({"head": "0" * 40}, NotFound),
        ({"base": "feature/x"}, UsageError),
        ({"base": "--bad"}, UsageError),
        ({"repo": world.root}, NotFound),
    ):
        with pytest.raises(error):
            await build_merge(world.host, replace(world.spec, **change))
    git(world.repo, "symbolic-ref", "refs/heads/trunk", "refs/heads/main")
    with pytest.raises(UsageError, match="alias of main"):
        await build_merge(world.host, replace(world.spec, base="trunk"))


async def test_attributes_of_the_base_are_used_instead_of_those_of_a_checkout(world: MergeWorld) -> None:
    world.commit({".gitattributes": "log.md merge=union\n", "log.md": "0\n"}, target=world.repo)
    git(world.agent, "reset", "-q", "--hard", "main")
    world.commit({"log.md": "0\nagent\n"})
    world.commit({"log.md": "0\nmain\n"}, target=world.repo)
    write(world.repo, {".gitattributes": "* -merge\n"})
    built = await world.build()
    assert world.show("log.md", built.commit).split() == ["0", "main", "agent"]


async def test_an_old_git_merges_in_a_scratch_folder(world: MergeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    two_authors(world)
    world.use_strategy("rebase")
    with_new_git = await world.build()
    monkeypatch.setattr(merging_module, "MERGE_TREE_VERSION", (99,))
    monkeypatch.delattr(Git, "merge_tree")
    with_old_git = await world.build()
    assert (with_old_git.tree, world.status(), world.leftovers()) == (with_new_git.tree, "", [])
    world.commit({"b.txt": "agent's\n", "d/c.txt": "agent's"})
    world.commit({"d/c.txt": None}, target=world.repo)
    assert await build_merge(world.host, world.spec) == Conflicted(("b.txt", "d/c.txt"), world.main())


async def test_a_merge_runs_no_hooks_and_needs_no_identity(world: MergeWorld, own_world: Path) -> None:
    (own_world / ".gitconfig").write_text("[user]\nuseConfigOnly = true\n")
    for name in ("reference-transaction", "post-merge", "post-checkout", "commit-msg"):
        hook = world.repo / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {world.root}/ran\nexit 1\n")
        hook.chmod(0o755)
    write(world.agent, {"x": "x"})
    git(world.agent, "add", "-A")
    someone = {**ALICE, "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b.c"}
    git(world.agent, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "x", env=someone)
    world.use_head()
    await world.merge_successfully()
    assert git(world.repo, "log", "-1", "--format=%cn", "main") == "Alice"
    assert not (world.root / "ran").exists()


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
@pytest.mark.parametrize("passphrase", ["", "secret"])
async def test_commits_are_signed_only_without_a_passphrase_prompt(world: MergeWorld, passphrase: str) -> None:
    key = world.root / "key"
    os.spawnlp(os.P_WAIT, "ssh-keygen", "ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(key))
    world.commit({"x": "x"})
    for name, value in (("gpg.format", "ssh"), ("user.signingkey", str(key)), ("commit.gpgsign", "true")):
        git(world.repo, "config", name, value)
    built = await world.build()
    signed = "gpgsig" in git(world.repo, "cat-file", "commit", built.commit)
    assert (signed, len(built.notes)) == ((False, 1) if passphrase else (True, 0))


async def test_building_twice_gives_the_same_tree(world: MergeWorld) -> None:
    two_authors(world)
    trees = set()
    strategies: tuple[Strategy, ...] = ("squash", "merge", "rebase")
    for strategy in strategies * 2:
        world.use_strategy(strategy)
        built = await world.build()
        assert isinstance(built, BuiltMerge)
        trees.add(built.tree)
    assert len(trees) == 1


def leading_out(world: MergeWorld, levels: int) -> str:
    """Create a tree like the branch's, with a `.gitattributes` this many folders above the checkout."""

    def tree(*entries: tuple[str, str, str]) -> str:
        content = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(sha) for mode, name, sha in entries)
        argv = ["git", "hash-object", "-t", "tree", "--literally", "-w", "--stdin"]
        done = subprocess.run(argv, cwd=world.agent, input=content, capture_output=True, check=True)
        return done.stdout.decode().strip()

    (world.root / "blob").write_text("* merge=union\n")
    subtree = tree(("100644", ".gitattributes", git(world.agent, "hash-object", "-w", str(world.root / "blob"))))
    for _ in range(levels - 1):
        subtree = tree(("40000", "..", subtree))
    tree_entries = (line.split(None, 3) for line in git(world.agent, "ls-tree", "HEAD").splitlines())
    return tree(("40000", "..", subtree), *((mode.lstrip("0"), name, sha) for mode, _, sha, name in tree_entries))


async def test_paths_that_leave_the_checkout_are_neither_written_nor_merged(world: MergeWorld) -> None:
    world.commit({"x.txt": "x\n"})
    bad = git(world.agent, "commit-tree", "-p", "HEAD", "-m", "bad", leading_out(world, 3))
    planted = world.spec.work.parent / ".gitattributes"
    repository = await open_repository(world.host, world.repo, world.spec.branch, world.spec.base)
    async with merging_module.open_merger(repository, world.spec.work, bad):
        assert not planted.exists()
    git(world.agent, "update-ref", "HEAD", bad)
    world.use_head()
    with pytest.raises(Conflict, match=r"'\.\./\.\./\.\./\.gitattributes' is no name that Git would check out"):
        await build_merge(world.host, world.spec)
    assert not planted.exists() and world.leftovers() == []
