"""What a repository tells about itself, by reading a few files of it: for `ao init`."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.safe_files import plain

LOCK_FILES = (
    *("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"),
    *("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "requirements.txt"),
    *("Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock"),
)
_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Detected:
    """What was found."""

    default_branch: str | None = None
    remote: str | None = None
    """owner/name at the forge; none without a remote at one."""
    forge: str | None = None
    """The forge's host."""
    test_command: str | None = None
    commands: tuple[str, ...] = ()
    """What lints, formats and builds."""
    lock_files: tuple[str, ...] = ()


def detect(root: Path) -> Detected:
    """Look at a repository; nothing is run and nothing is asked."""
    git = git_folder(root)
    name, forge = _remote(git) if git else (None, None)
    return Detected(
        default_branch=_default_branch(git) if git else None,
        remote=name,
        forge=forge,
        test_command=test_command(root),
        commands=commands(root),
        lock_files=tuple(name for name in LOCK_FILES if (root / name).is_file()),
    )


def default_branch(root: Path) -> str | None:
    """The branch that a repository's work goes into."""
    git = git_folder(root)
    return _default_branch(git) if git else None


def remote(root: Path) -> tuple[str | None, str | None]:
    """owner/name at the forge, and the forge's host; none without a remote at one."""
    git = git_folder(root)
    return _remote(git) if git else (None, None)


def git_folder(root: Path) -> Path | None:
    """The folder with the repository's shared files: `.git`, or what a worktree's `.git` file leads to."""
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
    """owner/name and host of a remote's URL; nothing for a path on this machine."""
    match = re.fullmatch(r"[a-z+]+://(?:[^/@]*@)?([^/:@]+)(?::\d+)?/(.+)", url.strip(), re.IGNORECASE) or re.fullmatch(
        r"(?:[^@/\s]+@)?([^:/\s\\]{2,}):(?!/)([^\\]+)", url.strip()
    )
    if not match or url.startswith("file:"):
        return None, None
    path = match[2].strip("/").removesuffix(".git")
    return (path, match[1].lower()) if "/" in path else (None, None)


def test_command(root: Path) -> str | None:
    """The command that runs the tests, as far as the usual files tell."""
    if re.search(r"^test\s*:(?!=)", _read(root / "Makefile") or _read(root / "makefile"), re.MULTILINE):
        return "make test"
    if script := _npm_test(root):
        return script
    if (root / "Cargo.toml").is_file():
        return "cargo test"
    if (root / "go.mod").is_file():
        return "go test ./..."
    return _python_test(root)


def commands(root: Path) -> tuple[str, ...]:
    """The commands that lint, format, check types and build, as far as the usual files tell."""
    makefile = _read(root / "Makefile") or _read(root / "makefile")
    found = [f"make {name}" for name in _CHORES if re.search(rf"^{name}\s*:(?!=)", makefile, re.MULTILINE)]
    scripts = _npm_scripts(root)
    found += [f"{_npm(root)} run {name}" for name in _CHORES if isinstance(scripts.get(name), str)]
    if (root / "Cargo.toml").is_file():
        found += ["cargo build", "cargo clippy", "cargo fmt"]
    if (root / "go.mod").is_file():
        found += ["go build ./...", "go vet ./..."]
    tools = _python_tools(root)
    run = "uv run " if (root / "uv.lock").is_file() else ""
    found += [f"{run}{command}" for tool, command in _PYTHON_CHORES if tool in tools]
    return tuple(dict.fromkeys(found))


_CHORES = ("lint", "format", "fmt", "typecheck", "types", "check", "build")
_PYTHON_CHORES = (("ruff", "ruff check ."), ("ruff", "ruff format ."), ("mypy", "mypy"), ("black", "black ."))


def _npm_test(root: Path) -> str | None:
    script = _npm_scripts(root).get("test")
    if not isinstance(script, str) or "no test specified" in script:
        return None
    tool = _npm(root)
    return "bun run test" if tool == "bun" else f"{tool} test"


def _npm(root: Path) -> str:
    for lock, tool in (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"), ("bun.lockb", "bun")):
        if (root / lock).is_file():
            return tool
    return "npm"


def _npm_scripts(root: Path) -> dict[str, object]:
    try:
        package = json.loads(_read(root / "package.json") or "{}")
    except (ValueError, RecursionError):
        return {}
    scripts = package.get("scripts") if isinstance(package, dict) else None
    return scripts if isinstance(scripts, dict) else {}


def _python_tools(root: Path) -> dict[str, object]:
    try:
        tools = tomllib.loads(_read(root / "pyproject.toml")).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    return tools if isinstance(tools, dict) else {}


def _python_test(root: Path) -> str | None:
    text = _read(root / "pyproject.toml")
    configured = "pytest" in _python_tools(root)
    mentioned = "pytest" in text or "[tool:pytest]" in _read(root / "setup.cfg")
    if not (configured or mentioned or (root / "pytest.ini").is_file() or (root / "tests" / "conftest.py").is_file()):
        return None
    return "uv run pytest" if (root / "uv.lock").is_file() else "python -m pytest"


def _default_branch(git: Path) -> str | None:
    """What the remote calls its head, else main or master, else the branch that is checked out."""
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
    """A file's text; nothing if it is not there or not to be read."""
    try:
        with plain(path.resolve()) as file:
            return file.read(_MAX).decode(errors="replace")
    except (OSError, RuntimeError):
        return ""
