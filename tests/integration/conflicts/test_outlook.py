"""Which branches collide, with real repositories: what counts, what does not, and that nothing of the user's is touched."""

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
from agent_orchestrator.changes.conflicts.compare import Comparison
from agent_orchestrator.changes.conflicts.snapshot import Snapshots
from agent_orchestrator.errors import Missing, Temporary
from benchmarks.changes.conflicts import disagreements, make_world, pairs_of
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


class Here:
    """A repository and sessions in it."""

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
        found = await self.outlook.look(list(self.branches.values()), stale)
        return [(pair.a, pair.b, pair.files, pair.kind) for pair in found]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


async def test_a_conflict_is_seen_committed_or_not_tracked_or_not(here: Here) -> None:
    here.session("a", {"a.txt": "A\n"})
    here.session("b", {"a.txt": "B\n"}, commit=False)
    here.session("c", {"new.txt": "C\n"}, commit=False)
    here.session("d", {"new.txt": "D\n", "x.log": "D\n"})
    here.session("e", {"x.log": "E\n", "uv.lock": "E\n"}, commit=False)
    here.session("f", {"uv.lock": "F\n"})
    assert await here.pairs() == [("a", "b", ("a.txt",), "text"), ("c", "d", ("new.txt",), "text")]


async def test_changes_to_one_function_overlap(here: Here) -> None:
    here.session("a", {"code.py": CODE.replace("a = 1", "a = 10", 1)})
    here.session("b", {"code.py": CODE.replace("e = 5", "e = 50")}, commit=False)
    here.session("c", {"code.py": CODE.replace("    return b", "    return 2")})
    assert await here.pairs() == [("a", "b", ("code.py",), "overlap")]


async def test_changes_to_one_function_of_a_file_with_an_odd_name_overlap(here: Here) -> None:
    odd = ":odd.py"
    write(here.repo, {odd: CODE})
    git(here.repo, "add", "-A")
    git(here.repo, "commit", "-qm", "odd")
    here.session("a", {odd: CODE.replace("a = 1", "a = 10", 1)})
    here.session("b", {odd: CODE.replace("e = 5", "e = 50")})
    assert await here.pairs() == [("a", "b", (odd,), "overlap")]


async def test_the_same_change_on_both_sides_is_none(here: Here) -> None:
    here.session("a", {"code.py": CODE.replace("a = 1", "a = 10", 1), "d/x.txt": "y\n" + "x\n" * 8})
    here.session("b", {"code.py": CODE.replace("a = 1", "a = 10", 1), "d/x.txt": "x\n" * 8 + "y\n"})
    assert await here.pairs() == []


async def test_folders_and_files_in_each_others_way(here: Here) -> None:
    here.session("file", {"thing": "x\n"})
    here.session("folder", {"thing/inner": "x\n"}, commit=False)
    here.session("moved", {"d/x.txt": None, "e/x.txt": "x\n" * 9})
    here.session("into", {"d/new.txt": "new\n"})
    assert [pair[:2] for pair in await here.pairs()] == [("file", "folder"), ("moved", "into")]


async def test_nothing_of_the_users_is_touched(here: Here) -> None:
    path = here.session("a", {"a.txt": "A\n"}, commit=False)
    here.session("b", {"a.txt": "B\n", "big.txt": "b\n" * 100}, commit=False)
    git(path, "add", "a.txt")
    index = Path(git(path, "rev-parse", "--path-format=absolute", "--git-path", "index"))

    def seen() -> tuple[object, ...]:
        objects = sorted(str(one) for one in (here.repo / ".git" / "objects").rglob("*"))
        return (
            objects,
            index.read_bytes(),
            index.stat().st_mtime_ns,
            git(path, "--no-optional-locks", "status", "--porcelain"),
            git(path, "for-each-ref"),
        )

    before = seen()
    assert await here.pairs() == [("a", "b", ("a.txt",), "text")]
    assert seen() == before


async def test_only_what_moved_is_looked_at_again(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        here.session(name, {"a.txt": f"{name}\n"})
    merged: list[int] = []
    really = Comparison._merge

    async def counting(self: Comparison, pairs: list[tuple[str, str]]) -> object:
        merged.append(len(pairs))
        return await really(self, pairs)

    monkeypatch.setattr(Comparison, "_merge", counting)
    assert len(await here.pairs()) == 3
    assert len(await here.pairs()) == 3
    assert merged == [3]
    here.change("a", {"a.txt": "one\n", "other.txt": "x\n"})
    assert await here.pairs() == [("b", "c", ("a.txt",), "text")]
    here.change("b", {"a.txt": "one\n"}, commit=False)
    assert len(await here.pairs()) == 1, "nobody said that its files changed"
    assert await here.pairs({"b"}) == []
    assert merged == [3, 0, 0]


async def test_a_folder_that_went_in_two_directions_is_a_conflict_in_no_file(here: Here) -> None:
    write(here.repo, {"d/y.txt": "y\n" * 9})
    git(here.repo, "add", "-A")
    git(here.repo, "commit", "-qm", "y")
    moves: dict[str, str | bytes | None] = {
        "d/x.txt": None,
        "e/x.txt": "x\n" * 9,
        "d/y.txt": None,
        "f/y.txt": "y\n" * 9,
    }
    here.session("split", moves)
    here.session("into", {"d/new.txt": "new\n"})
    assert await here.pairs() == [("split", "into", (), "text")]
    with pytest.raises(AssertionError):
        git(here.root / "into", "merge", "-q", "--no-edit", "split")


async def test_a_base_that_went_on_and_branches_of_different_age(here: Here) -> None:
    here.session("old", {"a.txt": "old\n"})
    write(here.repo, {"a.txt": "main\n", "d/x.txt": "main\n"})
    git(here.repo, "commit", "-qam", "on main")
    here.session("young", {"b.txt": "young\n"})
    here.session("child", {"c.txt": "child\n"})
    git(here.root / "child", "merge", "-q", "--no-edit", "young")
    assert await here.pairs() == [("old", "young", ("a.txt",), "text"), ("old", "child", ("a.txt",), "text")]
    git(here.root / "old", "merge", "-q", "-X", "ours", "--no-edit", "main")
    assert await here.pairs() == []


async def test_two_that_merged_each_other_and_left_out_different_things(here: Here) -> None:
    """They parted at two places; seen from one of them alone they have nothing in common."""
    for name, file in (("left", "a.txt"), ("right", "code.py")):
        here.session(name, {file: f"{name}\n"})
    for name, begin, other, how in (
        ("drops-right", "left", "right", ("-s", "ours")),
        ("goes-on-right", "left", "right", ()),
        ("drops-left", "right", "left", ("-s", "ours")),
        ("goes-on-left", "right", "left", ()),
    ):
        path = here.session(name, {}, commit=False)
        git(path, "reset", "-q", "--hard", begin)
        git(path, "merge", "-q", "--no-edit", *how, other)
    here.change("goes-on-right", {"code.py": "more\n"})
    here.change("goes-on-left", {"a.txt": "more\n"})
    found = {pair[:2]: pair[2:] for pair in await here.pairs()}
    assert found["drops-right", "goes-on-right"] == (("code.py",), "text")
    assert found["drops-left", "goes-on-left"] == (("a.txt",), "text")


async def test_one_that_goes_back_behind_what_all_had_in_common(here: Here) -> None:
    first = git(here.repo, "rev-parse", "main")
    for number in range(2):
        write(here.repo, {"more.txt": f"{number}\n"})
        git(here.repo, "add", "-A")
        git(here.repo, "commit", "-qm", f"on main {number}")
    path = here.session("a", {"b.txt": "a\n"})
    here.session("b", {"a.txt": "b\n"})
    assert await here.pairs() == []
    git(path, "reset", "-q", "--hard", first)
    here.change("a", {"a.txt": "a\n"})
    assert await here.pairs() == [("a", "b", ("a.txt",), "text")]


async def test_unfinished_rebases_count_as_what_was_committed_before(here: Here) -> None:
    path = here.session("a", {"a.txt": "A\n"})
    here.session("b", {"a.txt": "B\n"})
    here.branches["a"] = Branch("a", "main", git(path, "rev-parse", "HEAD"), here.branches["a"].start, path, 0.0)
    write(here.repo, {"a.txt": "main\n"})
    git(here.repo, "commit", "-qam", "on main")
    git(path, "rebase", "-q", "main", check=False)
    assert "rebase" in git(path, "status")
    assert await here.pairs() == [("a", "b", ("a.txt",), "text")]


async def test_a_clone_with_commits_of_its_own(here: Here) -> None:
    path = here.root / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(here.repo), str(path)], check=True)
    git(path, "checkout", "-q", "-b", "clone")
    start = git(path, "rev-parse", "HEAD")
    here.session("a", {"a.txt": "A\n"})
    here.branches["clone"] = Branch("clone", "main", start, start, path, 9.0)
    write(path, {"a.txt": "clone\n"})
    git(path, "commit", "-qam", "in the clone")
    write(path, {"code.py": "x\n"})
    here.change("a", {"code.py": "y\n"}, commit=False)
    assert await here.pairs() == [("a", "clone", ("a.txt", "code.py"), "text")]


async def test_a_workspace_that_is_gone_counts_by_its_branch(here: Here) -> None:
    path = here.session("a", {"a.txt": "A\n"})
    here.session("b", {"a.txt": "B\n"})
    head = git(path, "rev-parse", "HEAD")
    here.branches["a"] = Branch("a", "main", head, here.branches["a"].start, None, 0.0)
    assert await here.pairs() == [("a", "b", ("a.txt",), "text")]


async def test_the_bases_own_attributes_count(here: Here) -> None:
    write(here.repo, {".gitattributes": "*.txt merge=union\n"})
    git(here.repo, "add", "-A")
    git(here.repo, "commit", "-qm", "union")
    here.session("a", {"a.txt": "one\nA\n"})
    here.session("b", {"a.txt": "one\nB\n"})
    assert [pair[3] for pair in await here.pairs()] == ["overlap"]


async def test_an_old_git_says_so(here: Here) -> None:
    here.session("a", {"a.txt": "A\n"})
    here.session("b", {"a.txt": "B\n"})
    here.outlook._comparison._version = (2, 38, 1)
    assert len(await here.pairs()) == 1
    here.change("a", {"a.txt": "C\n"})
    here.outlook._comparison._version = (2, 37)
    with pytest.raises(Missing, match=r"Git 2\.37 cannot predict.*install"):
        await here.pairs()


async def test_what_was_changed_since_the_base(here: Here) -> None:
    here.session("a", {"a.txt": "A\n", "uv.lock": "x\n"})
    here.session("b", {"b.txt": "B\n"}, commit=False)
    await here.pairs()
    main = git(here.repo, "rev-parse", "main").strip()
    assert await here.outlook.changed(here.branches["a"], main) == {"a.txt"}
    assert await here.outlook.changed(here.branches["b"], main) == {"b.txt"}


def test_real_merges_agree(tmp_path: Path) -> None:
    world = make_world(tmp_path, 1, 10)
    assert len(pairs_of(world.branches)) == 45
    assert disagreements(world) == []


def test_a_folder_that_cannot_be_cleared_is_what_the_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no fault of ours: the disk is read-only, and it is looked again later."""
    snapshots = Snapshots(LocalHost(), tmp_path / "repo", tmp_path / "work")
    snapshots.begin()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(Temporary, match="Read-only"):
            snapshots.begin()
    snapshots.begin()


@pytest.mark.parametrize("kind", ["symlink", "long"])
async def test_an_index_that_an_agent_made_up_is_not_copied(here: Here, kind: str) -> None:
    """One that goes elsewhere, and one that takes no room where it is, and more than a gigabyte where it would be copied to."""
    here.session("a", {"a.txt": "A\n"})
    path = here.session("b", {"a.txt": "B\n"}, commit=False)
    here.session("c", {"a.txt": "C\n"})
    index = Path(git(path, "rev-parse", "--absolute-git-dir"), "index")
    if kind == "symlink":
        index.rename(here.root / "elsewhere")
        index.symlink_to(here.root / "elsewhere")
    else:
        entries, size = index.read_bytes()[:-20], 3 << 29
        index.write_bytes(entries + b"ZZZZ" + size.to_bytes(4, "big"))
        os.truncate(index, len(entries) + 8 + size + 20)
    assert "M a.txt" in git(path, "--no-optional-locks", "status", "--porcelain"), "Git itself takes it"
    assert await here.pairs() == [("a", "c", ("a.txt",), "text")]


@pytest.mark.parametrize("missing", ["parent", "tree", "blob"])
async def test_a_commit_that_is_not_all_there_hides_no_other_collision(here: Here, missing: str) -> None:
    """An agent can make one by hand; one that is whole again counts."""
    here.session("a", {"a.txt": "A\n"})
    path = here.session("b", {"a.txt": "B\n"})
    here.session("c", {"a.txt": "C\n"})
    nowhere, good = "0" * 39 + "1", git(path, "rev-parse", "HEAD")
    blob = git(path, "rev-parse", "HEAD:a.txt")
    entry = {"blob": f"100644 blob {nowhere}\ta.txt\n", "tree": f"040000 tree {nowhere}\ta.txt\n"}
    listing = entry.get(missing, f"100644 blob {blob}\ta.txt\n")
    tree = git(path, "mktree", "--missing", stdin=listing.encode())
    parent = nowhere if missing == "parent" else good
    about = f"tree {tree}\nparent {parent}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nx\n"
    made = git(path, "hash-object", "-t", "commit", "-w", "--stdin", stdin=about.encode())
    reference = here.repo / ".git/refs/heads/b"
    reference.write_text(f"{made}\n")
    for _ in range(2):
        assert ("a", "c", ("a.txt",), "text") in await here.pairs()
    reference.write_text(f"{good}\n")
    found = [pair[:2] for pair in await here.pairs()]
    assert sorted(found) == [("a", "b"), ("a", "c"), ("b", "c")]
