"""The folder that a person names for a project, and the clone of a repository that a person names by its URL."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.config.config_set import repository_of
from agent_orchestrator.errors import Conflict, NotFound, Temporary, UsageError, resource_shortage
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import one_line


def resolve_folder(path: str, cwd: Path | None) -> Path:
    """Return the folder that a person named, relative to the caller's; raise `UsageError` if it cannot be a path."""
    try:
        return check_path((cwd or Path("/")) / Path(path).expanduser())
    except RuntimeError:
        raise UsageError(f"{one_line(path)} names nobody's folder", "write the whole path") from None


def check_path(path: Path) -> Path:
    """Return the path, whether or not it exists; raise if the system rejects it as a path."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise resource_shortage(error) or UsageError(f"{one_line(str(path))}: {why}", "name another folder") from None
    return path


async def clone_repository(host: Host, url: str, into: Path) -> Path:
    """Clone a repository into a folder, and return the folder of the clone; an existing clone is used again."""
    name = url.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
    if not name or name.startswith((".", "-")) or "\0" in url:
        raise UsageError(f"{one_line(url)} names no repository", "give its full URL")
    target = check_path(into / name)
    if repository_of(target) == target:
        return target
    if target.exists():
        raise Conflict(
            f"{target} is in the way of the clone", "go to another folder, or register that one: ao start PATH"
        )
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        await Git(host, target.parent).run("clone", "--", url, str(target), timeout=600.0)
    except GitFailed as error:
        if error.retryable:
            raise Temporary(error.text, error.remedy) from None
        raise NotFound(error.text, "see whether the address is right, and whether you may read it") from None
    return target
