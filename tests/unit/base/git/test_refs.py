"""Refs read from Git's files, to which agents may write: symlinks are not followed, reading is bounded, and long lists cost little."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_orchestrator.base.git import refs as git_files
from agent_orchestrator.base.git.refs import read_head, read_ref, read_refs
from agent_orchestrator.errors import Conflict, Temporary
from agent_orchestrator.testing.contracts.workspace import git_in
from tests.examples import example_count
from tests.hostile import create_nested_folders
from tests.unit.base.test_short_of_descriptors import no_descriptors

COMMIT, OTHER = "1" * 40, "2" * 40
SORTED = "# pack-refs with: peeled fully-peeled sorted \n"


@pytest.fixture
def git_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "git"
    (folder / "refs/heads/feature").mkdir(parents=True)
    (folder / "refs/heads/main").write_text(f"{COMMIT}\n")
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    return folder


def linked(folder: Path) -> None:
    folder.symlink_to("/")


def linked_below(folder: Path) -> None:
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/root").symlink_to("/")


def too_deep(folder: Path) -> None:
    folder.mkdir()
    create_nested_folders(folder, 100)  # and not a thousand: removing it recurses


def too_many(folder: Path) -> None:
    folder.mkdir()
    for number in range(30):
        (folder / str(number)).write_text("")


@pytest.mark.parametrize("plant", [linked, linked_below, too_deep, too_many])
def test_unexpected_entries_among_refs_are_reported_and_not_entered(
    git_dir: Path, plant: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(git_dir / "refs/heads/feature/victim")
    monkeypatch.setattr(git_files, "_MAX_LISTED_FILES", 20)
    with pytest.raises(Conflict, match="which Git has not made: see what it is and remove it"):
        read_refs(git_dir, ["refs/heads/main"], "refs/heads/feature/victim")


def test_files_that_are_no_refs_are_ignored(git_dir: Path, tmp_path: Path) -> None:
    below = git_dir / "refs/heads/feature/x"
    below.mkdir()
    (below / "long").write_text(f"{COMMIT}{' ' * 5000}\n")
    (below / "nowhere").symlink_to("nothing")
    (below / "round").symlink_to("round")
    (tmp_path / "commit").write_text(f"{COMMIT}\n")
    (below / "file").symlink_to(tmp_path / "commit")
    os.mkfifo(below / "pipe")
    (below / "one").write_text(f"{COMMIT}\n")
    refs = {"refs/heads/main": COMMIT, "refs/heads/feature/x/one": COMMIT}
    assert read_refs(git_dir, ["refs/heads/main", "refs/heads/none"], "refs/heads/feature/x") == refs


def test_refs_that_cannot_be_read_raise_a_temporary_error(git_dir: Path) -> None:
    (git_dir / "refs/heads/feature/x").mkdir()
    with no_descriptors(), pytest.raises(Temporary):
        read_refs(git_dir, [], "refs/heads/feature/x")


def test_refs_in_another_repositorys_folder_are_left_to_git(git_dir: Path) -> None:
    (git_dir / "refs").rename(git_dir / "theirs")
    (git_dir / "refs").symlink_to("theirs")
    assert read_refs(git_dir, ["refs/heads/main"], "refs/heads/x") is None


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts what a process reads")
def test_a_sorted_list_is_searched_without_reading_it_all(git_dir: Path) -> None:
    lines = (f"{number:040x} refs/heads/m{number:08}\n^{OTHER}\n" for number in range(200_000))
    (git_dir / "packed-refs").write_text(SORTED + "".join(lines))
    (git_dir / "refs/heads/main").write_text("ref: refs/heads/feature/a\n")
    (git_dir / "refs/heads/feature/a").write_text("ref: refs/heads/m00123456\n")
    before = bytes_read()
    assert read_head(git_dir) == f"{123456:040x}"
    assert read_ref(git_dir, "refs/heads/none") is None
    assert read_refs(git_dir, ["refs/heads/m00000000", "refs/heads/m00199999", "refs/heads/m002"], "refs/heads/m") == {
        "refs/heads/m00000000": f"{0:040x}",
        "refs/heads/m00199999": f"{199999:040x}",
    }
    assert bytes_read() - before < 4 << 20 < (git_dir / "packed-refs").stat().st_size


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts what a process reads")
def test_an_unsorted_list_is_read_once_and_only_if_short(git_dir: Path) -> None:
    packed = git_dir / "packed-refs"
    packed.write_text(f"{OTHER} refs/heads/z\n" + f"{COMMIT} refs/tags/none\n" * 100_000 + f"{COMMIT} refs/heads/b\n")
    for name, other in (("main", "a"), ("a", "c"), ("c", "b")):
        (git_dir / "refs/heads" / name).write_text(f"ref: refs/heads/{other}\n")
    before = bytes_read()
    assert read_head(git_dir) == COMMIT and read_ref(git_dir, "refs/heads/z") == OTHER
    assert bytes_read() - before < 2.5 * packed.stat().st_size
    os.truncate(packed, 1 << 30)
    assert read_head(git_dir) is None and bytes_read() - before < 3 * (5 << 20)
    assert read_refs(git_dir, [], "refs/heads/x") is None, "then Git is asked"


NAMES = st.from_regex(r"[ab-]{1,3}(/[ab.-]{0,2}[ab]){0,2}", fullmatch=True)


@settings(max_examples=example_count(0.5))
@given(st.lists(NAMES, max_size=12), st.lists(NAMES, min_size=1, max_size=4))
def test_sorted_and_unsorted_lists_give_the_same_refs(
    tmp_path_factory: pytest.TempPathFactory, packed: list[str], queried: list[str]
) -> None:
    git_dir = tmp_path_factory.mktemp("git")
    refs = sorted({f"refs/heads/{name}".encode() for name in packed if git_files.is_valid_branch(name)})
    entries = [f"{number:040x} {name.decode()}\n" + f"^{OTHER}\n" * (number % 2) for number, name in enumerate(refs)]
    names, results = [f"refs/heads/{name}" for name in (*packed, *queried)], []
    for head in (SORTED, "# pack-refs with: peeled \n"):
        (git_dir / "packed-refs").write_text(head + "".join(entries))
        results.append((read_refs(git_dir, names, names[-1]), [read_ref(git_dir, name) for name in names]))
    assert results[0] == results[1]
    assert {name.encode() for name in results[0][0] or {}} <= set(refs) <= {name.encode() for name in names}


def test_gits_own_packed_refs_are_marked_sorted(tmp_path: Path) -> None:
    git_in(tmp_path, "init", "-q", "-b", "main")
    git_in(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    git_in(tmp_path, "tag", "-am", "peeled", "v1")
    git_in(tmp_path, "pack-refs", "--all")
    assert (tmp_path / ".git/packed-refs").read_text().startswith(SORTED)
    tag = git_in(tmp_path, "rev-parse", "refs/tags/v1")
    assert read_ref(tmp_path / ".git", "refs/tags/v1") == tag
