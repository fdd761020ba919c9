"""Random workspaces: anything that an agent may leave behind, as Hypothesis steps that are run as far as possible."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from tests.integration.rescue.states import SCENARIOS
from tests.integration.rescue.world import git

Step = tuple[str, str, bytes]

PLAIN = ["a.txt", "b.txt", "d/c.txt", "d", "e", "e/f", "e/f/g", "out/o", "h.log", "lib", "lib/x"]
ODD_NAMES = [
    "x y",
    "n\nl",
    "tab\t",
    "end\r",
    "ü",
    "u\u0308",
    "日本",
    "-d",
    "--",
    ":(top)x",
    "*",
    "[a]?",
    "back\\slash",
    '"q"',
    " both ",
    "caf\udce9",
    "a" * 200,
    "deep/" * 30 + "z",
    ".hidden",
    "CON",
    "a.TXT",
    "d/.gitignore",
    ".gitattributes",
]
NAMES = st.sampled_from([*PLAIN, *PLAIN, *ODD_NAMES])
CONTENT = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"one\r\ntwo\nthree\r", b"\0" * 70, b"\xff\xfe\0a", b"<<<<<<< ours\n=======\n>>>>>>> theirs\n"]
    ),
)
RULES = st.sampled_from(
    [
        b"*.txt text eol=crlf\n",
        b"* text=auto\n",
        b"*.txt ident\n$Id$\n",
        b"*.txt working-tree-encoding=UTF-16\n",
        b"* filter=lfs diff=lfs merge=lfs -text\n",
        b"*.txt filter=missing\n",
        b"* -text\n",
        b"*\n!*.txt\n",
    ]
)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
MODES = st.sampled_from([b"755", b"600", b"444", b"400", b"640", b"777", b"4755"])
TARGETS = st.sampled_from([b"a.txt", b"../up", b"d", b"/dev/null", b"/nowhere/at all", b".", b"..", b"x y", b"\xff"])

COMMANDS: dict[str, list[list[str]]] = {
    "commit": [["commit", "-qm", "step"]],
    "commit-all": [["add", "-A"], ["commit", "-qm", "all"]],
    "stash": [["stash", "-q"]],
    "stash-all": [["stash", "push", "-qu", "-m", "with: a message"]],
    "detach": [["checkout", "-q", "--detach"]],
    "amend": [["commit", "-q", "--amend", "-m", "amended"]],
    "undo": [["reset", "-q", "--soft", "HEAD~1"]],
    "drop": [["reset", "-q", "--hard", "HEAD~1"]],
    "merge": [["merge", "-q", "--no-commit", "--no-ff", "other"]],
    "rebase": [["rebase", "-q", "other"]],
    "pick": [["cherry-pick", "other"]],
    "tag": [["tag", "-fam", "noted", "mark"]],
    "note": [["notes", "add", "-fm", "noted"]],
    "branch": [["branch", "-f", "own"]],
    "sparse": [["sparse-checkout", "set", "--no-cone", "/a.txt", "/e/"]],
    "split-index": [["update-index", "--split-index"]],
    "index-4": [["update-index", "--index-version", "4"]],
    "untracked-cache": [["update-index", "--force-untracked-cache"]],
    "bisect": [["bisect", "start", "HEAD", "HEAD~1"]],
    "resolve-undo": [["add", "-u"]],
}

STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("write"), NAMES, CONTENT),
    st.tuples(st.just("write"), NAMES, CONTENT),
    st.tuples(st.just("huge"), NAMES, st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("mode"), NAMES, MODES),
    st.tuples(st.just("link"), NAMES, TARGETS),
    st.tuples(st.just("hard-link"), NAMES, st.sampled_from([b"a.txt", b"b.txt", b"x y"])),
    st.tuples(st.just("folder"), NAMES, st.just(b"")),
    st.tuples(st.just("move"), NAMES, st.sampled_from([b"a.txt", b"moved", b"e/moved"])),
    st.tuples(st.just("remove"), NAMES, st.just(b"")),
    st.tuples(st.just("pipe"), NAMES, st.just(b"")),
    st.tuples(st.sampled_from(["stage", "unstage", "intend", "assume", "skip", "forget"]), NAMES, st.just(b"")),
    st.tuples(st.just("write"), st.sampled_from([".gitattributes", ".gitignore", "d/.gitattributes"]), RULES),
    st.tuples(st.just("write"), NAMES, st.just(POINTER)),
    st.tuples(st.just("nested"), NAMES, st.sampled_from([b"", b"commit", b"dirty", b"bare"])),
    st.tuples(
        st.just("submodule"), st.sampled_from(["lib/sub", "sub"]), st.sampled_from([b"", b"commit", b"dirty", b"off"])
    ),
    st.tuples(st.sampled_from(sorted(COMMANDS)), st.just(""), st.just(b"")),
    st.tuples(st.just("scene"), st.sampled_from(sorted(SCENARIOS)), st.just(b"")),
)
INDEX = {
    "stage": ["add", "-f", "--"],
    "unstage": ["reset", "-q", "--"],
    "intend": ["add", "-fN", "--"],
    "assume": ["update-index", "--assume-unchanged", "--"],
    "skip": ["update-index", "--skip-worktree", "--"],
    "forget": ["rm", "-rq", "--cached", "--"],
}


def run_step(root: Path, step: Step) -> None:
    """Run one step as far as possible."""
    action, name, content = step
    for command in COMMANDS.get(action, []):
        git(root, *command, check=False)
    if action in INDEX:
        git(root, *INDEX[action], name, check=False)
    with contextlib.suppress(OSError, AssertionError):
        if action == "scene":
            for path in root.rglob("*"):
                _remove_pipe(path)
            SCENARIOS[name](root)
        elif action in _ACTIONS:
            _ACTIONS[action](root, root / name, content)


def _is_inside(root: Path, path: Path) -> bool:
    """Return whether a path stays in the workspace: a symlink on the way may leave it."""
    return path.parent.resolve().is_relative_to(root.resolve()) and not path.is_symlink() and path != root


def _write(root: Path, path: Path, content: bytes) -> None:
    if _is_inside(root, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_pipe(path)
        path.write_bytes(content)


def _remove_pipe(path: Path) -> None:
    """Remove a named pipe, because writing to it would block."""
    if path.is_fifo():
        path.unlink()


def _huge(root: Path, path: Path, content: bytes) -> None:
    _write(root, path, random.Random(content).randbytes(3_000_000))


def _mode(root: Path, path: Path, content: bytes) -> None:
    if _is_inside(root, path) and path.is_file():
        path.chmod(int(content, 8))


def _link(root: Path, path: Path, content: bytes) -> None:
    if _is_inside(root, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.fsdecode(content))


def _hard_link(root: Path, path: Path, content: bytes) -> None:
    if _is_inside(root, path) and (root / os.fsdecode(content)).is_file():
        path.hardlink_to(root / os.fsdecode(content))


def _folder(root: Path, path: Path, _content: bytes) -> None:
    if _is_inside(root, path):
        path.mkdir(parents=True)


def _move(root: Path, path: Path, content: bytes) -> None:
    target = root / os.fsdecode(content)
    if (
        _is_inside(root, path) and _is_inside(root, target) and not path.is_fifo()
    ):  # which is not saved: Git would call it deleted
        path.rename(target)


def _remove(root: Path, path: Path, _content: bytes) -> None:
    if not path.parent.resolve().is_relative_to(root.resolve()):
        return
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _pipe(root: Path, path: Path, _content: bytes) -> None:
    """Make a named pipe, but none named `.git…` (Git would block) and none in place of a tracked file (Git would report it deleted)."""
    tracked = git(root, "--literal-pathspecs", "ls-files", "--", str(path.relative_to(root)))
    if _is_inside(root, path) and not path.name.startswith(".git") and not tracked:
        os.mkfifo(path)


def _nested(root: Path, path: Path, content: bytes) -> None:
    if not _is_inside(root, path):
        return
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "-q", *(["--bare"] if content == b"bare" else []))
    if content in (b"commit", b"dirty"):
        (path / "inner").write_text("inner\n")
        git(path, "add", "-A")
        git(path, "commit", "-qm", "inner")
    if content == b"dirty":
        (path / "inner").write_text("changed\n")


def _submodule(root: Path, path: Path, content: bytes) -> None:
    if not _is_inside(root, path) or path.exists():
        return
    git(
        root,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        "../../library",
        str(path.relative_to(root)),
    )
    if content == b"off":
        git(root, "submodule", "--quiet", "deinit", "-f", str(path.relative_to(root)))
    if content in (b"commit", b"dirty"):
        (path / "more").write_text("more\n")
    if content == b"commit":
        git(path, "add", "-A")
        git(path, "commit", "-qm", "more")


_ACTIONS: dict[str, Callable[[Path, Path, bytes], None]] = {
    "write": _write,
    "huge": _huge,
    "mode": _mode,
    "link": _link,
    "hard-link": _hard_link,
    "folder": _folder,
    "move": _move,
    "remove": _remove,
    "pipe": _pipe,
    "nested": _nested,
    "submodule": _submodule,
}
