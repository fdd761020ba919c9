"""States that an agent may leave a checkout in, each created by one function."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.integration.rescue.world import git

Scenario = Callable[[Path], None]


def commit(root: Path, name: str, content: str, message: str = "work") -> str:
    (root / name).write_text(content)
    git(root, "add", "-A")
    git(root, "commit", "-qm", message)
    return git(root, "rev-parse", "HEAD")


def staged_and_unstaged(root: Path) -> None:
    (root / "a.txt").write_text("staged\n")
    git(root, "add", "a.txt")
    (root / "a.txt").write_text("staged, then changed\n")
    (root / "b.txt").write_text("unstaged\n")
    (root / "new.txt").write_text("new and staged\n")
    git(root, "add", "new.txt")


def staged_then_gone(root: Path) -> None:
    (root / "only-index.txt").write_text("in the index alone\n")
    git(root, "add", "only-index.txt")
    (root / "only-index.txt").unlink()


def deleted_and_renamed(root: Path) -> None:
    (root / "a.txt").unlink()
    git(root, "rm", "-q", "b.txt")
    git(root, "mv", "d/c.txt", "moved.txt")


def untracked(root: Path) -> None:
    (root / "notes").mkdir()
    (root / "notes" / "plan.txt").write_text("plan\n")
    (root / "binary").write_bytes(bytes(range(256)) * 4000)


def intent_to_add(root: Path) -> None:
    (root / "later.txt").write_text("later\n")
    git(root, "add", "-N", "later.txt")


def modes_and_links(root: Path) -> None:
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "secret").write_text("s\n")
    (root / "secret").chmod(0o600)
    (root / "a.txt").chmod(0o755)
    (root / "link").symlink_to("d/../a.txt")
    (root / "dangling").symlink_to("/nowhere/at all")
    (root / "b.txt").unlink()
    (root / "b.txt").symlink_to("a.txt")


def odd_names(root: Path) -> None:
    top = os.fsencode(root)
    for name in (
        b"new\nline",
        b'"quoted"',
        b"caf\xe9",
        b" lead and trail ",
        b"-rf",
        "日本".encode(),
        b"tab\there",
        b"end\r",
        b":(top)x",
        b"*",
    ):
        Path(os.fsdecode(os.path.join(top, name))).write_bytes(b"content of " + name)


def empty_folders(root: Path) -> None:
    (root / "empty" / "deep").mkdir(parents=True)
    (root / "extra.txt").write_text("x")


def file_becomes_folder(root: Path) -> None:
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()
    (root / "a.txt" / "inside").write_text("now a folder\n")
    (root / "d" / "c.txt").unlink()
    (root / "d").rmdir()
    (root / "d").write_text("now a file\n")


def folder_becomes_link(root: Path) -> None:
    (root / "elsewhere").mkdir()
    (root / "elsewhere" / "c.txt").write_text("another c\n")
    (root / "d" / "c.txt").unlink()
    (root / "d").rmdir()
    (root / "d").symlink_to("elsewhere")


def line_endings(root: Path) -> None:
    (root / ".gitattributes").write_text("*.txt text eol=crlf\n*.up filter=up\n")
    git(root, "config", "filter.up.clean", "tr a-z A-Z")
    git(root, "config", "filter.up.smudge", "tr A-Z a-z")
    (root / "mixed.txt").write_bytes(b"one\r\ntwo\nthree\r")
    (root / "x.up").write_bytes(b"MiXed\n")
    git(root, "add", "-A")
    (root / "plain.txt").write_bytes(b"a\nb\r\n")


def hidden_changes(root: Path) -> None:
    git(root, "update-index", "--assume-unchanged", "a.txt")
    git(root, "update-index", "--skip-worktree", "b.txt")
    (root / "a.txt").write_text("changed behind Git's back\n")
    (root / "b.txt").write_text("this too\n")


def stashed(root: Path) -> None:
    (root / "a.txt").write_text("first stash\n")
    git(root, "stash", "-q")
    (root / "b.txt").write_text("second stash\n")
    (root / "u.txt").write_text("untracked in stash\n")
    git(root, "stash", "push", "-q", "-u", "-m", "with a message")


def detached(root: Path) -> None:
    commit(root, "one.txt", "1\n")
    git(root, "checkout", "-q", "--detach")
    commit(root, "two.txt", "2\n")
    (root / "a.txt").write_text("and dirty\n")


def narrowed(root: Path) -> None:
    git(root, "sparse-checkout", "set", "--no-cone", "/a.txt")


def orphan(root: Path) -> None:
    git(root, "checkout", "-q", "--orphan", "fresh")
    git(root, "rm", "-rqf", ".")
    (root / "first.txt").write_text("first\n")
    git(root, "add", "first.txt")


def _conflict(root: Path) -> None:
    git(root, "branch", "side")
    commit(root, "a.txt", "ours\n")
    git(root, "checkout", "-q", "side")
    commit(root, "a.txt", "theirs\n", "theirs")
    commit(root, "after.txt", "after\n", "after")
    git(root, "checkout", "-q", "feature/task")


def merging(root: Path) -> None:
    _conflict(root)
    git(root, "merge", "side", check=False)
    (root / "b.txt").write_text("while merging\n")


def rebasing(root: Path) -> None:
    _conflict(root)
    git(root, "checkout", "-q", "-B", "feature/task", "side")
    base = git(root, "rev-parse", "main" if git(root, "branch", "--list", "main") else "origin/main")
    git(root, "checkout", "-q", "-b", "onto", base)
    commit(root, "a.txt", "onto\n")
    git(root, "checkout", "-q", "feature/task")
    git(root, "rebase", "onto", check=False)
    (root / "half.txt").write_text("half resolved\n")


def rebasing_with_autostash(root: Path) -> None:
    _conflict(root)
    (root / "b.txt").write_text("put aside by rebase\n")
    git(root, "rebase", "--autostash", "side", check=False)


def applying_patches(root: Path) -> None:
    _conflict(root)
    patch = git(root, "format-patch", "--stdout", "side~2..side")
    git(root, "am", "-q", check=False, stdin=patch.encode())


def cherry_picking(root: Path) -> None:
    _conflict(root)
    git(root, "cherry-pick", "side~1", "side", check=False)


def reverting(root: Path) -> None:
    first = commit(root, "a.txt", "second\n")
    commit(root, "a.txt", "third\n")
    git(root, "revert", "--no-edit", first, check=False)


def bisecting(root: Path) -> None:
    good = git(root, "rev-parse", "HEAD")
    for number in range(4):
        commit(root, "a.txt", f"{number}\n")
    git(root, "bisect", "start", "HEAD", good)


def nested_repositories(root: Path) -> None:
    for name in ("nested", "unborn", "d/inner"):
        (root / name).mkdir(parents=True)
        git(root / name, "init", "-q")
        (root / name / "file").write_text(name)
    git(root / "nested", "add", "-A")
    git(root / "nested", "commit", "-qm", "inside")
    (root / "nested" / "file").write_text("changed inside\n")


def repository_made_in_a_tracked_folder(root: Path) -> None:
    git(root / "d", "init", "-q")
    (root / "d" / "more.txt").write_text("more\n")
    git(root / "d", "add", "-A")


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        staged_and_unstaged,
        staged_then_gone,
        deleted_and_renamed,
        untracked,
        intent_to_add,
        modes_and_links,
        odd_names,
        empty_folders,
        file_becomes_folder,
        folder_becomes_link,
        narrowed,
        line_endings,
        hidden_changes,
        stashed,
        detached,
        orphan,
        merging,
        rebasing,
        rebasing_with_autostash,
        applying_patches,
        cherry_picking,
        reverting,
        bisecting,
        nested_repositories,
        repository_made_in_a_tracked_folder,
    )
}
