"""The forge's Git: bare repositories with real commits and merges, served by `git http-backend`."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NO_COMMIT = "0" * 40
_IDENTITY = {
    "GIT_AUTHOR_NAME": "GitHub",
    "GIT_AUTHOR_EMAIL": "noreply@github.com",
    "GIT_COMMITTER_NAME": "GitHub",
    "GIT_COMMITTER_EMAIL": "noreply@github.com",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class BareGitFailed(Exception):
    """A Git command failed."""


@dataclass(frozen=True)
class BareCommit:
    sha: str
    tree: str
    parents: tuple[str, ...]
    author: str
    email: str
    date: str
    committer: str
    committer_email: str
    committed: str
    message: str


@dataclass(frozen=True)
class FileChange:
    path: str
    status: str
    additions: int
    deletions: int
    patch: str | None
    sha: str


def git(
    path: Path, *argv: str, input_text: str | None = None, env: Mapping[str, str] | None = None, check: bool = True
) -> str:
    completed = subprocess.run(
        ["git", "-c", "core.fsync=none", "-C", str(path), *argv], input=input_text, capture_output=True, text=True, errors="replace",
        env={**os.environ, **_IDENTITY, **(env or {})}, check=False,
    )  # fmt: skip
    if check and completed.returncode:
        raise BareGitFailed(f"git {' '.join(argv)}: {completed.stderr.strip()}")
    return completed.stdout


def create(path: Path, branch: str) -> None:
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--bare", f"--initial-branch={branch}")
    git(path, "config", "http.receivepack", "true")
    git(path, "config", "uploadpack.allowAnySHA1InWant", "true")


PROTECTION_HOOK = """#!/bin/sh
grep -qsx "$1" protected || exit 0
grep -qsx "$REMOTE_USER" admins && exit 0
echo "error: GH006: Protected branch update failed for $1." >&2
exit 1
"""


def protect(path: Path, branches: Iterable[str], admins: Iterable[str]) -> None:
    """Allow pushes to these branches only by these people."""
    (path / "protected").write_text("".join(f"refs/heads/{branch}\n" for branch in branches))
    (path / "admins").write_text("".join(f"{login}\n" for login in admins))
    hook = path / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(PROTECTION_HOOK)
    hook.chmod(0o755)


def fork(parent: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    git(parent, "clone", "--quiet", "--bare", str(parent), str(path))
    git(path, "config", "http.receivepack", "true")


def refs(path: Path) -> dict[str, str]:
    out = git(path, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
    return dict(line.split(" ", 1) for line in out.splitlines())


def set_ref(path: Path, ref: str, sha: str, old: str | None = None) -> None:
    git(path, "update-ref", ref, sha, *([old] if old else []))


def delete_ref(path: Path, ref: str) -> None:
    git(path, "update-ref", "-d", ref)


def import_commit(path: Path, source: Path, sha: str, ref: str) -> None:
    """Make a ref of this repository point to a commit of `source`, fetching it if needed."""
    if source != path:
        git(path, "fetch", "--quiet", "--no-tags", str(source), f"+{sha}:{ref}")
    else:
        set_ref(path, ref, sha)


def resolve(path: Path, name: str) -> str | None:
    return git(path, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False).strip() or None


def commit_files(path: Path, parent: str | None, files: Mapping[str, str | None], message: str, author: str) -> str:
    """Create a commit on top of `parent` that writes these files (None removes one); return its id."""
    when = f"{int(time.time())} +0000"
    lines = [
        "commit refs/ao/new", "mark :1", f"author {author} <{author}@users.noreply.github.com> {when}",
        f"committer GitHub <noreply@github.com> {when}", _data(message + "\n"),
    ]  # fmt: skip
    lines += [f"from {parent}"] if parent else []
    for name, text in files.items():
        quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
        lines += [f"D {quoted}"] if text is None else [f"M 100644 inline {quoted}", _data(text)]
    if not parent:
        delete_ref(path, "refs/ao/new")
    return git(path, "fast-import", "--quiet", "--force", input_text="\n".join([*lines, "", "get-mark :1", ""])).strip()


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}"


def commit_tree(path: Path, tree: str, parents: list[str], message: str, env: Mapping[str, str] | None = None) -> str:
    flags = [flag for parent in parents for flag in ("-p", parent)]
    return git(path, "commit-tree", tree, *flags, "-F", "-", input_text=message + "\n", env=env).strip()


@functools.lru_cache(maxsize=4096)
def merge_tree(path: Path, base: str, head: str) -> str | None:
    """Return the tree of the merge, or None if there are conflicts."""
    lines = git(path, "merge-tree", "--write-tree", "--name-only", base, head, check=False).splitlines()
    return lines[0] if len(lines) == 1 else None


def merge_commit(
    path: Path, base: str, head: str, method: str, message: str, author: str, at: int | None = None
) -> str:
    """Create the commit that merges `head` into `base` by this method and return its id; `at` is its author date.

    Raises `BareGitFailed` on a conflict.
    """
    env = {"GIT_AUTHOR_NAME": author, "GIT_AUTHOR_EMAIL": f"{author}@users.noreply.github.com"}
    if at is not None:
        env["GIT_AUTHOR_DATE"] = f"@{at} +0000"
    if method == "rebase":
        with tempfile.TemporaryDirectory() as folder:
            git(path, "worktree", "add", "--quiet", "--detach", f"{folder}/tree", head)
            try:
                git(Path(folder, "tree"), "rebase", "--quiet", "--force-rebase", "--onto", base, base)
                return git(Path(folder, "tree"), "rev-parse", "HEAD").strip()
            finally:
                git(path, "worktree", "remove", "--force", f"{folder}/tree")
    tree = merge_tree(path, base, head)
    if tree is None:
        raise BareGitFailed("conflict")
    return commit_tree(path, tree, [base] if method == "squash" else [base, head], message, env)


@functools.lru_cache(maxsize=4096)
def merge_base(path: Path, base: str, head: str) -> str:
    return git(path, "merge-base", base, head, check=False).strip()


def is_ancestor(path: Path, ancestor: str, commit: str) -> bool:
    return bool(ancestor) and merge_base(path, ancestor, commit) == ancestor


@functools.lru_cache(maxsize=4096)
def commit(path: Path, sha: str) -> BareCommit:
    form = "%H%x00%T%x00%P%x00%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%B"
    out = git(path, "log", "-1", "--no-show-signature", f"--format={form}", sha)
    sha, tree, parents, author, email, date, committer, committer_email, committed, message = out.split("\0")
    return BareCommit(
        sha, tree, tuple(parents.split()), author, email, date, committer, committer_email, committed, message.strip()
    )


@functools.lru_cache(maxsize=4096)
def commits(path: Path, base: str, head: str) -> tuple[str, ...]:
    """Return the commits of `head` that `base` does not have, oldest first."""
    return tuple(git(path, "rev-list", "--reverse", f"{base}..{head}", check=False).split())


@functools.lru_cache(maxsize=1024)
def changes(path: Path, base: str, head: str) -> tuple[FileChange, ...]:
    """Return the changed files of `head` since its merge base with `base`."""
    start = merge_base(path, base, head) or base
    parts = git(
        path, "diff", "--raw", "--numstat", "--no-renames", "--no-abbrev", "-z", start, head, check=False
    ).split("\0")
    file_count = sum(part.startswith(":") for part in parts)
    raw_entries = [part.split() for part in parts[: 2 * file_count : 2]]
    patches = re.split(
        r"^diff --git .*\n", git(path, "diff", "--no-renames", start, head, check=False), flags=re.MULTILINE
    )[1:]
    changes = []
    for raw_entry, numstat, patch_text in zip(
        raw_entries, parts[2 * file_count : 3 * file_count], patches, strict=True
    ):
        plus, minus, name = numstat.split("\t")
        hunk_start = patch_text.find("@@") if plus != "-" else -1
        patch = None if plus == "-" else patch_text[hunk_start:].rstrip("\n") if hunk_start >= 0 else ""
        status = {"A": "added", "D": "removed"}.get(raw_entry[4], "modified")
        sha = raw_entry[3] if status != "removed" else raw_entry[2]
        changes.append(
            FileChange(name, status, int(plus) if plus != "-" else 0, int(minus) if minus != "-" else 0, patch, sha)
        )
    return tuple(changes)


def has_line_changed(path: Path, old: str, new: str, name: str, line: int | None) -> bool:
    """Return whether a line of a file was changed or removed between two commits; without a line, whether the file was removed."""
    before, after = (git(path, "show", f"{sha}:{name}", check=False).splitlines() for sha in (old, new))
    if line is None:
        return before != after and not after
    old_line = before[line - 1] if line <= len(before) else None
    return old_line is None or old_line not in after


def run_http_backend(
    root: Path, *, path_info: str, method: str, query: str, user: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Answer a request of a Git client with `git http-backend`; return status, headers and body."""
    env = {
        **os.environ,
        **_IDENTITY,
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path_info,
        "REQUEST_METHOD": method,
        "QUERY_STRING": query,
        "REMOTE_USER": user,
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
    }
    completed = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=env, check=False)
    head, _, content = completed.stdout.partition(b"\r\n\r\n")
    lines = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if ": " in line]
    status = next((int(value.split()[0]) for name, value in lines if name == "Status"), 200 if lines else 500)
    return status, [(name, value) for name, value in lines if name != "Status"], content


def log_lines(text: str, stamp: str) -> Iterator[bytes]:
    """Yield the lines of a job's log, each with a timestamp."""
    for line in text.splitlines():
        yield f"{stamp.removesuffix('Z')}.0000000Z {line}\n".encode()
