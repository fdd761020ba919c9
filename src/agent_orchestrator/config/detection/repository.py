"""Read what a repository's own files say about it, for `ao init`: default branch, remote, commands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import open_regular_file
from agent_orchestrator.config.detection import DetectedCommands, detect_commands

_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RepositoryInfo:
    """What was detected in a repository."""

    default_branch: str | None = None
    remote: str | None = None
    """owner/name at the forge; None without a remote at one."""
    forge: str | None = None
    """The forge's host."""
    set_up: tuple[str, ...] = ()
    """What is run in a new workspace before the tests."""
    test_command: str | None = None
    lint: str | None = None
    commands: tuple[str, ...] = ()
    """Commands that agents may run: linting, formatting and building."""


def detect_repository(root: Path) -> RepositoryInfo:
    """Read a repository's files without running anything."""
    git = git_folder(root)
    name, forge = _remote(git) if git else (None, None)
    candidates = detect_commands(root)
    best = candidates[0] if candidates else DetectedCommands("")
    return RepositoryInfo(
        default_branch=_default_branch(git) if git else None,
        remote=name,
        forge=forge,
        set_up=best.set_up,
        test_command=best.test,
        lint=best.lint,
        commands=_chore_commands(root),
    )


def default_branch(root: Path) -> str | None:
    """Return the branch that a repository's changes are merged into, or None if it is unclear."""
    git = git_folder(root)
    return _default_branch(git) if git else None


def remote(root: Path) -> tuple[str | None, str | None]:
    """Return owner/name at the forge and the forge's host, or (None, None) without a remote at one."""
    git = git_folder(root)
    return _remote(git) if git else (None, None)


def git_folder(root: Path) -> Path | None:
    """Return the folder with the repository's shared files: `.git`, or what a worktree's `.git` file leads to; None if missing."""
    dot_git = root / ".git"
    if dot_git.is_file():
        target = _read(dot_git).removeprefix("gitdir:").strip()
        dot_git = root / target if target else dot_git
        common = _read(dot_git / "commondir").strip()
        dot_git = dot_git / common if common else dot_git
    elif not dot_git.is_dir() and (root / "HEAD").is_file() and (root / "objects").is_dir():
        dot_git = root
    return dot_git if dot_git.is_dir() else None


def parse_remote(url: str) -> tuple[str | None, str | None]:
    """Return owner/name and host of a remote's URL, or (None, None) for a path on this machine."""
    match = re.fullmatch(r"[a-z+]+://(?:[^/@]*@)?([^/:@]+)(?::\d+)?/(.+)", url.strip(), re.IGNORECASE) or re.fullmatch(
        r"(?:[^@/\s]+@)?([^:/\s\\]{2,}):(?!/)([^\\]+)", url.strip()
    )
    if not match or url.startswith("file:"):
        return None, None
    path = match[2].strip("/").removesuffix(".git")
    return (path, match[1].lower()) if "/" in path else (None, None)


def _chore_commands(root: Path) -> tuple[str, ...]:
    """Return the commands that lint, format, check types and build, from the usual files."""
    from agent_orchestrator.config.detection import makefile, node
    from agent_orchestrator.config.detection.files import RepositoryFiles, table

    repo = RepositoryFiles(root)
    targets = makefile.targets(repo)
    commands = [f"make {name}" for name in node.CHORES if name in targets]
    commands += node.chore_commands(repo)
    if "Cargo.toml" in repo.top_level_names:
        commands += ["cargo build", "cargo clippy", "cargo fmt"]
    if "go.mod" in repo.top_level_names:
        commands += ["go build ./...", "go vet ./..."]
    tools = table(repo.pyproject, "tool")
    run = "uv run " if "uv.lock" in repo.top_level_names else ""
    commands += [f"{run}{command}" for tool, command in _PYTHON_CHORES if tool in tools]
    return tuple(dict.fromkeys(commands))


_PYTHON_CHORES = (("ruff", "ruff check ."), ("ruff", "ruff format ."), ("mypy", "mypy"), ("black", "black ."))


def _default_branch(git: Path) -> str | None:
    """Return the remote's head branch, else main or master, else the branch that is checked out."""
    head = _read(git / "refs" / "remotes" / "origin" / "HEAD").strip()
    if head.startswith("ref: refs/remotes/origin/"):
        return head.removeprefix("ref: refs/remotes/origin/")
    packed = _read(git / "packed-refs")
    for name in ("main", "master"):
        ref = f"refs/heads/{name}"
        if (git / ref).is_file() or re.search(rf"^[0-9a-f]+ {ref}$", packed, re.MULTILINE):
            return name
    head = _read(git / "HEAD").strip()
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None


def _remote(git: Path) -> tuple[str | None, str | None]:
    section = ""
    urls: dict[str, str] = {}
    for line in _read(git / "config").splitlines():
        if match := re.match(r'\s*\[\s*remote\s+"([^"]+)"\s*\]', line):
            section = match[1]
        elif line.lstrip().startswith("["):
            section = ""
        elif section and (match := re.match(r"\s*url\s*=\s*(\S+)", line, re.IGNORECASE)):
            urls.setdefault(section, match[1])
    url = urls.get("origin") or next(iter(urls.values()), "")
    return parse_remote(url)


def _read(path: Path) -> str:
    """Return a file's text, or "" if it cannot be read."""
    try:
        with open_regular_file(path.resolve()) as file:
            return file.read(_MAX_FILE_BYTES).decode(errors="replace")
    except (OSError, RuntimeError):
        return ""
