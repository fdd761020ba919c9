"""Files in folders an agent may write: symlinks that leave, pipes and endless files are not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_orchestrator.base.files import safe
from agent_orchestrator.base.git.refs import find_layout, read_head, read_ref, read_symbolic_head
from tests.hostile import create_nested_folders

COMMIT = "1" * 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an agent's folder; the folder beside it is not the agent's."""
    (tmp_path / "outside/deep").mkdir(parents=True)
    (tmp_path / "outside/secret").write_text("secret")
    (tmp_path / "outside/deep/secret").write_text("secret")
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("mine")
    (root / "a/link").symlink_to("../../outside")
    (root / "a/file-link").symlink_to("../../outside/secret")
    (root / "own-link").symlink_to("a/b/file")
    os.mkfifo(root / "pipe")
    (root / "zero").symlink_to("/dev/zero")
    return root


def test_a_plain_file_is_read(root: Path) -> None:
    assert safe.read(root, "a/b/file") == b"mine"
    assert safe.read_text(root, "a/./b//file") == "mine"
    assert safe.read_regular_file(root / "a/b/file") == b"mine"


@pytest.mark.parametrize(
    "name",
    [
        "a/link/secret",
        "a/link/deep/secret",
        "a/file-link",
        "own-link",
        "pipe",
        "zero",
        "a",
        "../outside/secret",
        "/etc/passwd",
        "a/../../outside/secret",
        "a\0b",
        "",
        ".",
    ],
)
def test_nothing_but_a_regular_file_inside_the_root_is_read(root: Path, name: str) -> None:
    with pytest.raises(safe.UnsafePath):
        safe.read(root, name)


@pytest.mark.parametrize("name", ["a/file-link", "own-link", "pipe", "zero"])
def test_symlinks_and_pipes_are_not_read_by_an_absolute_path_either(root: Path, name: str) -> None:
    with pytest.raises(OSError):
        safe.read_regular_file(root / name)


def test_a_file_over_the_limit_is_refused(root: Path) -> None:
    os.truncate(root / "a/b/file", 1 << 40)
    with pytest.raises(safe.UnsafePath):
        safe.read(root, "a/b/file")
    with pytest.raises(safe.UnsafePath):
        safe.read_regular_file(root / "a/b/file")


def test_making_a_file_follows_no_symlink(root: Path, tmp_path: Path) -> None:
    (root / "mark").symlink_to(tmp_path / "planted")
    safe.touch(root / "mark")
    safe.touch(root / "mark")
    assert not (tmp_path / "planted").exists() and (root / "mark").read_bytes() == b""


def test_paths_that_leave_the_root_are_recognized(root: Path) -> None:
    inside = ["a/b/file", "own-link", "a/b", "a/b/new", "new/deep/er", "a/b/*.py", ".", "HEAD~1", "main..x"]
    assert not any(safe.escapes_folder(root, name) for name in inside)
    outside = ["a/link", "a/link/x", "a/file-link", "a/link/*", "pipe", "zero", "a/../../outside/x", "a/link/../x"]
    assert all(safe.escapes_folder(root, name) for name in outside)
    (root / "gitdir").symlink_to(".git")
    (root / ".git").mkdir()
    assert safe.escapes_folder(root, "gitdir/config") and safe.escapes_folder(root, ".git/config")


def test_a_hard_link_counts_as_leading_out_when_writing(root: Path, tmp_path: Path) -> None:
    os.link(tmp_path / "outside/secret", root / "hard")
    assert safe.escapes_folder(root, "hard", writing=True) and not safe.escapes_folder(root, "hard")


# -- Git's files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def git_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "git"
    (folder / "refs/heads").mkdir(parents=True)
    (folder / "refs/heads/main").write_text(f"{COMMIT}\n")
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "secret").write_text("secret")
    return folder


def test_a_head_is_read(git_dir: Path) -> None:
    assert (read_symbolic_head(git_dir), read_head(git_dir)) == ("refs/heads/main", COMMIT)


@pytest.mark.parametrize(
    "named", ["../secret", "refs/../../secret", "/etc/passwd", "refs/heads/../../../secret", "refs/heads/x\0"]
)
def test_a_head_that_points_outside_refs_is_none(git_dir: Path, named: str) -> None:
    (git_dir / "HEAD").write_text(f"ref: {named}\n")
    assert (read_symbolic_head(git_dir), read_head(git_dir), read_ref(git_dir, named)) == (None, None, None)


def test_a_ref_that_is_no_object_is_none(git_dir: Path, tmp_path: Path) -> None:
    ref = git_dir / "refs/heads/main"
    ref.write_text("secret\n")
    assert read_head(git_dir) is None
    ref.unlink()
    ref.symlink_to(tmp_path / "secret")
    assert read_head(git_dir) is None
    (git_dir / "packed-refs").write_text("secret refs/heads/main\n")
    assert read_head(git_dir) is None


def test_refs_in_a_cycle_are_none(git_dir: Path) -> None:
    (git_dir / "refs/heads/main").write_text("ref: refs/heads/main\n")
    assert read_head(git_dir) is None


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main", "packed-refs", "commondir"])
def test_a_pipe_in_place_of_a_ref_file_does_not_block(git_dir: Path, name: str) -> None:
    (git_dir / name).unlink(missing_ok=True)
    os.mkfifo(git_dir / name)
    assert read_head(git_dir) in (None, COMMIT)


def test_a_pipe_in_place_of_the_git_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert find_layout(tmp_path) is None


@pytest.mark.parametrize("content", ["\0", "a\0b", "x" * 5000, "../" * 3000])
def test_an_invalid_commondir_is_ignored(git_dir: Path, content: str) -> None:
    (git_dir / "commondir").write_text(content)
    assert read_head(git_dir) in (None, COMMIT)


# -- copies and new files ------------------------------------------------------------------------------------------------


def test_a_copy_keeps_times_and_holes_of_its_source(root: Path, tmp_path: Path) -> None:
    source, target = root / "a/b/file", tmp_path / "copy"
    os.truncate(source, 64 << 20)
    with source.open("ab") as file:
        file.write(b"end")
    os.utime(source, ns=(1, 123456789))
    target.symlink_to(tmp_path / "outside/secret")
    safe.copy_regular_file(source, target, 65 << 20)
    assert (tmp_path / "outside/secret").read_text() == "secret" and not target.is_symlink()
    assert target.read_bytes() == source.read_bytes() and target.stat().st_mtime_ns == 123456789
    assert target.stat().st_blocks * 512 < 8 << 20
    with pytest.raises(safe.UnsafePath, match="too long"):
        safe.copy_regular_file(source, target, 64 << 20)
    assert not target.exists()


@pytest.mark.parametrize("name", ["a/file-link", "pipe", "zero", "a"])
def test_nothing_but_a_regular_file_is_copied(root: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(safe.UnsafePath):
        safe.copy_regular_file(root / name, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_new_file_replaces_a_symlink_or_a_pipe(root: Path, tmp_path: Path) -> None:
    for name in ("a/file-link", "pipe"):
        with safe.create_file(root / name) as file:
            file.write(b"new")
        assert (root / name).read_bytes() == b"new"
    assert (tmp_path / "outside/secret").read_text() == "secret"


def test_a_tree_is_copied_within_limits_and_pipes_are_skipped(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "kept"
    (source / "below").mkdir(parents=True)
    (source / "below" / "small").write_text("small")
    (source / "large").write_bytes(bytes(2000))
    (source / "link").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    assert sorted(safe.copy_tree_limited(source, target, 1000, 100)) == [source / "large", source / "pipe"]
    assert (target / "below" / "small").read_text() == "small" and (target / "link").readlink() == Path("/etc")
    assert [path.name for path in safe.copy_tree_limited(source, tmp_path / "few", 10_000, 0)] == ["…"]
    deep = tmp_path / "deep"
    deep.mkdir()
    create_nested_folders(deep, 900)
    [skipped] = safe.copy_tree_limited(deep, tmp_path / "shallow", 10_000, 500)
    assert len(skipped.relative_to(deep).parts) == 501
