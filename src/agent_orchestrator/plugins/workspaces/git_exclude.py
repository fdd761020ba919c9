"""Git's `info/exclude`: which patterns are added to it, for what is put into a workspace and for what only tools make."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from agent_orchestrator.base.files.safe import UnsafePath, parts_of, read_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import Layout
from agent_orchestrator.errors import Conflict, resource_shortage

_MAX_SINGLE_FILES = 100
"""Most files of a folder that are excluded one by one."""

COPIED_HEADER = b"# Agent Orchestrator: copied into workspaces\n"
"""The line before copied files in `info/exclude`: what an agent later writes in their place counts as its work."""

TOOL_OUTPUT_HEADER = b"# Agent Orchestrator: made by set-ups and tests\n"
"""The line before folders made by set-ups and tests in `info/exclude`.

Such folders are removed with a workspace, like what the project ignores.
"""

_TOOL_FOLDER_NAME = re.compile(
    r"\.venv|venv|node_modules|__pycache__|\.(?:pytest|mypy|ruff)_cache|\.[tn]ox|\.eggs|\.hypothesis|\.pnpm-store|(?P<egg>.+\.egg-info)"
)
"""Matches names of folders that only tools make."""

_TOOL_LOCK_FILE = re.compile(
    r"(?:.*/)?(?:(?:package-lock|npm-shrinkwrap)\.json|pnpm-lock\.yaml|bun\.lockb|(?:yarn|bun|deno|uv|poetry|pdm|Cargo|Pipfile)\.lock)"
)
"""Matches lock files that installers write if a project keeps none."""


def exclude(layout: Layout, patterns: list[str], about: bytes = b"") -> None:
    """Add the missing patterns to the repository's `info/exclude`, keeping the user's lines; `about` is a line before them."""
    file = (layout.common / "info" / "exclude").resolve()
    try:
        content = read_regular_file(file)
    except FileNotFoundError:
        content = b""
    except UnsafePath as error:
        raise Conflict(str(error), "find out what it is: Git keeps a short list of patterns there") from None
    present = set(content.splitlines())
    missing = [os.fsencode(pattern) for pattern in patterns if os.fsencode(pattern) not in present]
    if not missing:
        return
    if content and not content.endswith(b"\n"):
        content += b"\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".exclude-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content + about + b"".join(pattern + b"\n" for pattern in missing))
        Path(temporary).chmod(mode)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


async def exclude_tool_output(git: Git, layout: Layout, left: Sequence[str]) -> None:
    """Exclude from `git status` the folders and lock files that a set-up or a test run left and only a tool makes."""
    if patterns := await tool_output_patterns(git, left):
        exclude(layout, patterns, TOOL_OUTPUT_HEADER)


async def tool_output_patterns(git: Git, left: Sequence[str]) -> list[str]:
    """Return the patterns that exclude those folders and lock files among untracked paths that only tools make.

    A folder's name is excluded anywhere, unless people use that name for folders of their own, or Git tracks files in a folder of that
    name: then only that path is excluded. A lock file is excluded by its path.
    """
    locks = [as_pattern(path) for path in left if _TOOL_LOCK_FILE.fullmatch(path)]
    matches = {path: _TOOL_FOLDER_NAME.fullmatch(PurePosixPath(path).name) for path in left if path.endswith("/")}
    names = {path: "*.egg-info" if match["egg"] else match[0] for path, match in matches.items() if match}
    tracked = {"venv": True}
    for name in set(names.values()) - tracked.keys():
        tracked[name] = bool((await git.run("ls-files", "-z", "--", f":(glob)**/{name}/**")).out)
    folders = {f"{as_pattern(path.rstrip('/')) if tracked[name] else name}/" for path, name in names.items()}
    return sorted({*folders, *locks})


def previously_copied_paths(layout: Layout, top: Path) -> list[str]:
    """Return the paths in a workspace that Git hides because they were once copied into one, by the lines of `info/exclude`."""
    try:
        lines = read_regular_file((layout.common / "info" / "exclude").resolve()).splitlines()
    except OSError as error:
        if short := resource_shortage(error):
            raise short from None
        return []
    paths, is_copied = [], False
    for line in lines:
        is_copied = line == COPIED_HEADER.rstrip() or (is_copied and line.startswith(b"/"))
        if is_copied and line.startswith(b"/"):
            with contextlib.suppress(UnsafePath):  # an agent may have written the line
                parts = parts_of(re.sub(r"\\(.)", r"\1", os.fsdecode(line[1:])))
                paths += ["/".join(parts)] if os.path.lexists(top.joinpath(*parts)) else []
    return paths


async def visible_patterns(git: Git, placed: Sequence[str]) -> list[str]:
    """Return patterns that exclude those paths put into a workspace which Git would show.

    A folder that the branch does not have is one pattern if many files were put into it: Git compares each file with each pattern.
    """
    listing = b"".join(os.fsencode(name) + b"\0" for name in placed)
    ignored = set((await git.run("check-ignore", "-z", "--stdin", input=listing, ok=(0, 1))).out.split(b"\0"))
    visible = [name for name in placed if os.fsencode(name) not in ignored]
    if not visible:
        return []
    tops = sorted({name.partition("/")[0] for name in visible})
    listing = (await git.run("ls-files", "-z", "--", *tops, env={"GIT_LITERAL_PATHSPECS": "1"})).out
    return await asyncio.to_thread(_patterns, visible, [os.fsdecode(name) for name in listing.split(b"\0") if name])


def _patterns(names: Sequence[str], tracked: Sequence[str]) -> list[str]:
    """Return patterns for the untracked names, one for a whole untracked folder that has more than `_MAX_SINGLE_FILES` of them."""
    tracked_names, folders = set(tracked), {folder for name in tracked for folder in _parent_folders(name)}
    groups: dict[str, list[str]] = {}
    for name in names:
        if name not in tracked_names:
            outermost = next((folder for folder in _parent_folders(name) if folder not in folders), name)
            groups.setdefault(outermost, []).append(name)
    is_excluded_whole = {folder: len(group) > _MAX_SINGLE_FILES for folder, group in groups.items()}
    return [
        as_pattern(name)
        for folder, group in groups.items()
        for name in ([folder] if is_excluded_whole[folder] else group)
    ]


def _parent_folders(name: str) -> Iterator[str]:
    """Yield the folders that contain a path, the outermost first."""
    end = name.find("/")
    while end >= 0:
        yield name[:end]
        end = name.find("/", end + 1)


def as_pattern(name: str) -> str:
    """Return the `info/exclude` pattern that matches exactly this path."""
    escaped = "".join(f"\\{character}" if character in "\\*?[" else character for character in name)
    return "/" + (escaped[:-1] + "\\ " if escaped.endswith(" ") else escaped)
