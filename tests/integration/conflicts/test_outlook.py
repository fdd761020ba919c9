"""Predicted conflicts between branches of real repositories, without changes to the user's files."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.conflicts import Branch, RepositoryPrediction
from agent_orchestrator.changes.conflicts.compare import BranchComparer
from agent_orchestrator.changes.conflicts.snapshot import Snapshots
from agent_orchestrator.errors import Missing, Temporary
from benchmarks.changes.conflicts import disagreements, make_small_repository, pairs_of
from tests.integration.merge.world import write
from tests.integration.rescue.world import git, make_repository

pytestmark = pytest.mark.anyio

CODE = """\
import os


def first():
    a = 1
    b = 2
    c = 3
    d = 4
    e = 5
    return a


def second():
    a = 1
    b = 2
    return b
"""
FILES = {"a.txt": "one\n", "code.py": CODE, "d/x.txt": "x\n" * 9, "uv.lock": "1\n", ".gitignore": "*.log\n"}


class ConflictWorld:
    """A repository, sessions in it, and their predicted conflicts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repo = make_repository(root / "repo", FILES)
        self.outlook = RepositoryPrediction(LocalHost(), self.repo / ".git", root / "work")
        self.branches: dict[str, Branch] = {}

    def session(self, name: str, files: Mapping[str, str | bytes | None], *, commit: bool = True) -> Path:
        path = self.root / name
        git(self.repo, "worktree", "add", "-q", "--no-track", "-b", name, str(path), "main")
        start = git(path, "rev-parse", "HEAD")
        self.branches[name] = Branch(name, "main", start, start, path, float(len(self.branches)))
        self.change(name, files, commit=commit)
        return path

    def change(self, name: str, files: Mapping[str, str | bytes | None], *, commit: bool = True) -> None:
        path = self.root / name
        write(path, files)
        if commit:
            git(path, "add", "-A")
            git(path, "commit", "-qm", "work")

    async def pairs(self, stale: Collection[str] = ()) -> list[tuple[str, str, tuple[str, ...], str]]:
        conflicts = await self.outlook.predict(list(self.branches.values()), stale)
        return [(pair.a, pair.b, pair.files, pair.kind) for pair in conflicts]


@pytest.fixture
def world(tmp_path: Path) -> ConflictWorld:
    return ConflictWorld(tmp_path)


async def test_conflicts_include_uncommitted_and_untracked_files(world: ConflictWorld) -> None:
    world.session("a", {"a.txt": "A\n"})
    world.session("b", {"a.txt": "B\n"}, commit=False)
    world.session("c", {"new.txt": "C\n"}, commit=False)
    world.session("d", {"new.txt": "D\n", "x.log": "D\n"})
    world.session("e", {"x.log": "E\n", "uv.lock": "E\n"}, commit=False)
    world.session("f", {"uv.lock": "F\n"})
    assert await world.pairs() == [("a", "b", ("a.txt",), "text"), ("c", "d", ("new.txt",), "text")]


async def test_changes_to_one_function_overlap(world: ConflictWorld) -> None:
    world.session("a", {"code.py": CODE.replace("a = 1", "a = 10", 1)})
    world.session("b", {"code.py": CODE.replace("e = 5", "e = 50")}, commit=False)
    world.session("c", {"code.py": CODE.replace("    return b", "    return 2")})
    assert await world.pairs() == [("a", "b", ("code.py",), "overlap")]


async def test_changes_to_one_function_of_a_file_with_an_odd_name_overlap(world: ConflictWorld) -> None:
    odd = ":odd.py"
    write(world.repo, {odd: CODE})
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-qm", "odd")
    world.session("a", {odd: CODE.replace("a = 1", "a = 10", 1)})
    world.session("b", {odd: CODE.replace("e = 5", "e = 50")})
    assert await world.pairs() == [("a", "b", (odd,), "overlap")]


async def test_the_same_change_on_both_sides_is_no_conflict(world: ConflictWorld) -> None:
    world.session("a", {"code.py": CODE.replace("a = 1", "a = 10", 1), "d/x.txt": "y\n" + "x\n" * 8})
    world.session("b", {"code.py": CODE.replace("a = 1", "a = 10", 1), "d/x.txt": "x\n" * 8 + "y\n"})
    assert await world.pairs() == []


async def test_a_folder_and_a_file_of_the_same_name_conflict(world: ConflictWorld) -> None:
    world.session("file", {"thing": "x\n"})
    world.session("folder", {"thing/inner": "x\n"}, commit=False)
    world.session("moved", {"d/x.txt": None, "e/x.txt": "x\n" * 9})
    world.session("into", {"d/new.txt": "new\n"})
    assert [pair[:2] for pair in await world.pairs()] == [("file", "folder"), ("moved", "into")]


async def test_the_prediction_changes_nothing_in_the_repository(world: ConflictWorld) -> None:
    path = world.session("a", {"a.txt": "A\n"}, commit=False)
    world.session("b", {"a.txt": "B\n", "big.txt": "b\n" * 100}, commit=False)
    git(path, "add", "a.txt")
    index = Path(git(path, "rev-parse", "--path-format=absolute", "--git-path", "index"))

    def repository_state() -> tuple[object, ...]:
        objects = sorted(str(file) for file in (world.repo / ".git" / "objects").rglob("*"))
        return (
            objects,
            index.read_bytes(),
            index.stat().st_mtime_ns,
            git(path, "--no-optional-locks", "status", "--porcelain"),
            git(path, "for-each-ref"),
        )

    before = repository_state()
    assert await world.pairs() == [("a", "b", ("a.txt",), "text")]
    assert repository_state() == before


async def test_only_changed_branches_are_compared_again(world: ConflictWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        world.session(name, {"a.txt": f"{name}\n"})
    merge_counts: list[int] = []
    original = BranchComparer._merge

    async def counting(self: BranchComparer, pairs: list[tuple[str, str]]) -> object:
        merge_counts.append(len(pairs))
        return await original(self, pairs)

    monkeypatch.setattr(BranchComparer, "_merge", counting)
    assert len(await world.pairs()) == 3
    assert len(await world.pairs()) == 3
    assert merge_counts == [3]
    world.change("a", {"a.txt": "one\n", "other.txt": "x\n"})
    assert await world.pairs() == [("b", "c", ("a.txt",), "text")]
    world.change("b", {"a.txt": "one\n"}, commit=False)
    assert len(await world.pairs()) == 1, "no change of its files was reported"
    assert await world.pairs({"b"}) == []
    assert merge_counts == [3, 0, 0]


async def test_a_folder_renamed_in_two_directions_is_a_conflict_without_files(world: ConflictWorld) -> None:
    write(world.repo, {"d/y.txt": "y\n" * 9})
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-qm", "y")
    moves: dict[str, str | bytes | None] = {
        "d/x.txt": None,
        "e/x.txt": "x\n" * 9,
        "d/y.txt": None,
        "f/y.txt": "y\n" * 9,
    }
    world.session("split", moves)
    world.session("into", {"d/new.txt": "new\n"})
    assert await world.pairs() == [("split", "into", (), "text")]
    with pytest.raises(AssertionError):
        git(world.root / "into", "merge", "-q", "--no-edit", "split")


async def test_branches_of_different_age_are_compared_after_the_base_moved(world: ConflictWorld) -> None:
    world.session("old", {"a.txt": "old\n"})
    write(world.repo, {"a.txt": "main\n", "d/x.txt": "main\n"})
    git(world.repo, "commit", "-qam", "on main")
    world.session("young", {"b.txt": "young\n"})
    world.session("child", {"c.txt": "child\n"})
    git(world.root / "child", "merge", "-q", "--no-edit", "young")
    assert await world.pairs() == [("old", "young", ("a.txt",), "text"), ("old", "child", ("a.txt",), "text")]
    git(world.root / "old", "merge", "-q", "-X", "ours", "--no-edit", "main")
    assert await world.pairs() == []


async def test_branches_that_merged_each_other_are_compared_with_all_merge_bases(world: ConflictWorld) -> None:
    """The branches have two merge bases; compared with only one of them they have nothing in common."""
    for name, file in (("left", "a.txt"), ("right", "code.py")):
        world.session(name, {file: f"{name}\n"})
    for name, begin, other, options in (
        ("drops-right", "left", "right", ("-s", "ours")),
        ("goes-on-right", "left", "right", ()),
        ("drops-left", "right", "left", ("-s", "ours")),
        ("goes-on-left", "right", "left", ()),
    ):
        path = world.session(name, {}, commit=False)
        git(path, "reset", "-q", "--hard", begin)
        git(path, "merge", "-q", "--no-edit", *options, other)
    world.change("goes-on-right", {"code.py": "more\n"})
    world.change("goes-on-left", {"a.txt": "more\n"})
    conflicts = {pair[:2]: pair[2:] for pair in await world.pairs()}
    assert conflicts["drops-right", "goes-on-right"] == (("code.py",), "text")
    assert conflicts["drops-left", "goes-on-left"] == (("a.txt",), "text")


async def test_a_branch_reset_behind_the_common_ancestor_is_compared_correctly(world: ConflictWorld) -> None:
    first = git(world.repo, "rev-parse", "main")
    for number in range(2):
        write(world.repo, {"more.txt": f"{number}\n"})
        git(world.repo, "add", "-A")
        git(world.repo, "commit", "-qm", f"on main {number}")
    path = world.session("a", {"b.txt": "a\n"})
    world.session("b", {"a.txt": "b\n"})
    assert await world.pairs() == []
    git(path, "reset", "-q", "--hard", first)
    world.change("a", {"a.txt": "a\n"})
    assert await world.pairs() == [("a", "b", ("a.txt",), "text")]


async def test_an_unfinished_rebase_counts_with_its_last_commit(world: ConflictWorld) -> None:
    path = world.session("a", {"a.txt": "A\n"})
    world.session("b", {"a.txt": "B\n"})
    world.branches["a"] = Branch(
        "a", "main", git(path, "rev-parse", "HEAD"), world.branches["a"].start_commit, path, 0.0
    )
    write(world.repo, {"a.txt": "main\n"})
    git(world.repo, "commit", "-qam", "on main")
    git(path, "rebase", "-q", "main", check=False)
    assert "rebase" in git(path, "status")
    assert await world.pairs() == [("a", "b", ("a.txt",), "text")]


async def test_a_clone_with_its_own_commits_is_compared(world: ConflictWorld) -> None:
    path = world.root / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(world.repo), str(path)], check=True)
    git(path, "checkout", "-q", "-b", "clone")
    start = git(path, "rev-parse", "HEAD")
    world.session("a", {"a.txt": "A\n"})
    world.branches["clone"] = Branch("clone", "main", start, start, path, 9.0)
    write(path, {"a.txt": "clone\n"})
    git(path, "commit", "-qam", "in the clone")
    write(path, {"code.py": "x\n"})
    world.change("a", {"code.py": "y\n"}, commit=False)
    assert await world.pairs() == [("a", "clone", ("a.txt", "code.py"), "text")]


async def test_a_workspace_that_is_gone_counts_by_its_branch(world: ConflictWorld) -> None:
    path = world.session("a", {"a.txt": "A\n"})
    world.session("b", {"a.txt": "B\n"})
    head = git(path, "rev-parse", "HEAD")
    world.branches["a"] = Branch("a", "main", head, world.branches["a"].start_commit, None, 0.0)
    assert await world.pairs() == [("a", "b", ("a.txt",), "text")]


async def test_attributes_of_the_base_are_used(world: ConflictWorld) -> None:
    write(world.repo, {".gitattributes": "*.txt merge=union\n"})
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-qm", "union")
    world.session("a", {"a.txt": "one\nA\n"})
    world.session("b", {"a.txt": "one\nB\n"})
    assert [pair[3] for pair in await world.pairs()] == ["overlap"]


async def test_an_old_git_is_refused_with_a_remedy(world: ConflictWorld) -> None:
    world.session("a", {"a.txt": "A\n"})
    world.session("b", {"a.txt": "B\n"})
    world.outlook._comparison._version = (2, 38, 1)
    assert len(await world.pairs()) == 1
    world.change("a", {"a.txt": "C\n"})
    world.outlook._comparison._version = (2, 37)
    with pytest.raises(Missing, match=r"Git 2\.37 cannot predict.*install"):
        await world.pairs()


async def test_changed_files_since_the_base_are_listed(world: ConflictWorld) -> None:
    world.session("a", {"a.txt": "A\n", "uv.lock": "x\n"})
    world.session("b", {"b.txt": "B\n"}, commit=False)
    await world.pairs()
    main = git(world.repo, "rev-parse", "main").strip()
    assert await world.outlook.changed_paths(world.branches["a"], main) == {"a.txt"}
    assert await world.outlook.changed_paths(world.branches["b"], main) == {"b.txt"}


def test_predictions_agree_with_real_merges(tmp_path: Path) -> None:
    merged_world = make_small_repository(tmp_path, 1, 10)
    assert len(pairs_of(merged_world.branches)) == 45
    assert disagreements(merged_world) == []


def test_a_folder_that_cannot_be_cleared_is_a_temporary_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is read-only: the error is temporary, and the comparison is retried later."""
    snapshots = Snapshots(LocalHost(), tmp_path / "repo", tmp_path / "work")
    snapshots.reset()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(Temporary, match="Read-only"):
            snapshots.reset()
    snapshots.reset()


@pytest.mark.parametrize("kind", ["symlink", "long"])
async def test_a_forged_index_is_not_copied(world: ConflictWorld, kind: str) -> None:
    """A symlink, and a sparse file that would take more than a gigabyte when copied."""
    world.session("a", {"a.txt": "A\n"})
    path = world.session("b", {"a.txt": "B\n"}, commit=False)
    world.session("c", {"a.txt": "C\n"})
    index = Path(git(path, "rev-parse", "--absolute-git-dir"), "index")
    if kind == "symlink":
        index.rename(world.root / "elsewhere")
        index.symlink_to(world.root / "elsewhere")
    else:
        entries, size = index.read_bytes()[:-20], 3 << 29
        index.write_bytes(entries + b"ZZZZ" + size.to_bytes(4, "big"))
        os.truncate(index, len(entries) + 8 + size + 20)
    assert "M a.txt" in git(path, "--no-optional-locks", "status", "--porcelain"), "Git itself accepts it"
    assert await world.pairs() == [("a", "c", ("a.txt",), "text")]


@pytest.mark.parametrize("missing", ["parent", "tree", "blob"])
async def test_an_incomplete_commit_hides_no_other_conflict(world: ConflictWorld, missing: str) -> None:
    """An agent can create such a commit by hand; a complete one counts again."""
    world.session("a", {"a.txt": "A\n"})
    path = world.session("b", {"a.txt": "B\n"})
    world.session("c", {"a.txt": "C\n"})
    nowhere, good = "0" * 39 + "1", git(path, "rev-parse", "HEAD")
    blob = git(path, "rev-parse", "HEAD:a.txt")
    entry = {"blob": f"100644 blob {nowhere}\ta.txt\n", "tree": f"040000 tree {nowhere}\ta.txt\n"}
    listing = entry.get(missing, f"100644 blob {blob}\ta.txt\n")
    tree = git(path, "mktree", "--missing", stdin=listing.encode())
    parent = nowhere if missing == "parent" else good
    content = f"tree {tree}\nparent {parent}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nx\n"
    commit = git(path, "hash-object", "-t", "commit", "-w", "--stdin", stdin=content.encode())
    reference = world.repo / ".git/refs/heads/b"
    reference.write_text(f"{commit}\n")
    for _ in range(2):
        assert ("a", "c", ("a.txt",), "text") in await world.pairs()
    reference.write_text(f"{good}\n")
    pairs = [pair[:2] for pair in await world.pairs()]
    assert sorted(pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
