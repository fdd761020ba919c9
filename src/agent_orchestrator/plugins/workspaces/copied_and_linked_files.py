"""Puts things into a new workspace and its surroundings: the symlink in the checkout, copied and shared files, and the set-up commands.

The patterns that hide these from `git status`: `git_exclude.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import Layout, find_layout
from agent_orchestrator.errors import AoError, Conflict, UsageError
from agent_orchestrator.plugins.workspaces.copy_on_write import Copier, CopyStopped, make_folder
from agent_orchestrator.plugins.workspaces.git_exclude import COPIED_HEADER, as_pattern, exclude, visible_patterns
from agent_orchestrator.protocols import LineCallback, WorkspaceSpec
from agent_orchestrator.protocols.host import Host

SETUP_TIMEOUT = 1800.0
"""Seconds that one set-up command may take."""
_WITHOUT_PROMPTS = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "GCM_INTERACTIVE": "never"}
_MAX_PATH_PARTS = 50
"""Most parts of a path in `copy` or `symlinks`."""


def check_link(spec: WorkspaceSpec) -> None:
    """Raise `Conflict` if something else is at the path of the workspace's symlink."""
    link = spec.link
    if link is None or not _is_in_real_folder(link) or not os.path.lexists(link) or _is_link_to(link, spec.path):
        return
    if not (link.is_symlink() and not link.exists()):
        raise Conflict(
            f"{link} is in the way of the workspace's symlink", "move it away, or choose another name with --name"
        )


def make_link(spec: WorkspaceSpec, layout: Layout, notes: list[str]) -> None:
    """Make the symlink from the checkout to the workspace, hidden from `git status`."""
    link = spec.link
    if link is None or layout.top is None:
        return
    if not _is_in_real_folder(link):
        notes.append(f"{link.parent} leads out of {layout.top}: no symlink was made there")
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(spec.path)
    with contextlib.suppress(ValueError):
        folder = link.parent.resolve().relative_to(layout.top.resolve())
        exclude(layout, [f"/{folder}/" if folder.parts else f"/{link.name}"])


def remove_link(spec: WorkspaceSpec) -> None:
    """Remove the symlink if it leads to this workspace, and its folder if that is then empty."""
    if spec.link is not None and _is_link_to(spec.link, spec.path):
        spec.link.unlink()
        with contextlib.suppress(OSError):
            spec.link.parent.rmdir()


def _is_in_real_folder(link: Path) -> bool:
    """Return whether the symlink's folder is not a symlink itself; the repository may contain one that leads elsewhere."""
    return not link.parent.is_symlink()


def _is_link_to(link: Path, path: Path) -> bool:
    """Return whether this is a symlink to the path."""
    return link.is_symlink() and Path(os.path.normpath(link.parent / link.readlink())) == path


async def share_files(git: Git, spec: WorkspaceSpec, layout: Layout, notes: list[str]) -> None:
    """Copy and link the project's `copy` and `symlinks` from the main checkout, and exclude what Git would show of them."""
    if not spec.copy and not spec.symlinks:
        return
    if layout.top is None:
        notes.append(f"{spec.repo} is a bare repository: there is nothing to copy or link from")
        return
    stop = threading.Event()
    placement = asyncio.ensure_future(asyncio.to_thread(_place_files, spec, layout.top, notes, stop))
    try:
        placed_paths = await asyncio.shield(placement)
    except asyncio.CancelledError:  # files made after the cancellation would outlive the workspace
        stop.set()
        with contextlib.suppress(CopyStopped, OSError, AoError):
            await placement
        raise
    if placed_paths:
        patterns = await visible_patterns(git, placed_paths)
        folder_patterns = await _folder_exceptions(Git(git.host, layout.top), spec.symlinks)
        links = {as_pattern(str(PurePosixPath(name))) for name in spec.symlinks}
        inside = find_layout(spec.path) or layout
        exclude(inside, [*(pattern for pattern in patterns if pattern in links), *folder_patterns])
        exclude(inside, [pattern for pattern in patterns if pattern not in links], COPIED_HEADER)


async def _folder_exceptions(git: Git, symlinks: Sequence[str]) -> list[str]:
    """Return patterns that let Git show a folder which an agent puts in a symlink's place, unless the user ignores it.

    Such a folder counts as the agent's work.
    """
    patterns = {as_pattern(name): name for name in symlinks if (git.repo / name).is_dir()}
    listing = b"".join(os.fsencode(name) + b"\0" for name in patterns.values())
    output = (await git.run("check-ignore", "-v", "-z", "--stdin", input=listing, ok=(0, 1))).out if patterns else b""
    words = [os.fsdecode(word) for word in output.split(b"\0")]
    ignored = {name for pattern, name in zip(words[2::4], words[3::4], strict=False) if pattern not in patterns}
    return [f"!{pattern}/" for pattern, name in patterns.items() if name not in ignored]


def files_to_copy(top: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files of a checkout that `copy` names, without Git's own."""
    paths = [path for pattern in patterns for path in _matching_paths(top, _checked_path(pattern, "copy"))]
    files = [file for path in paths for file in (sorted(_all_below(path)) if path.is_dir() else [path])]
    return [file for file in dict.fromkeys(files) if file.is_file() and ".git" not in file.relative_to(top).parts]


def _place_files(spec: WorkspaceSpec, top: Path, notes: list[str], stop: threading.Event) -> list[str]:
    """Make the symlinks and copies of a workspace; return the paths that were made."""
    placed_paths: list[str] = []
    for name in spec.symlinks:
        source = top / _checked_path(name, "symlinks")
        target = spec.path / name
        if not os.path.lexists(source):
            notes.append(f"{name} is not in {top}: no symlink was made")
        elif os.path.lexists(target):
            notes.append(f"{name} is in the branch itself: no symlink was made")
        else:
            make_folder(target.parent, spec.path.resolve())
            target.symlink_to(source)
            placed_paths.append(str(PurePosixPath(name)))
    copier = Copier(top, spec.path, notes, stop)
    for pattern in spec.copy:
        sources = [
            path
            for path in _matching_paths(top, _checked_path(pattern, "copy"))
            if ".git" not in path.relative_to(top).parts
        ]
        if not sources:
            notes.append(f"nothing in {top} matches {pattern!r}: nothing was copied")
        for source in sources:
            placed_paths += copier.copy(source)
    return placed_paths


def _checked_path(name: str, key: str) -> str:
    """Return the path in normal form. Raises `UsageError` if it is not a path inside the repository."""
    parts = PurePosixPath(name).parts
    is_invalid = not parts or len(parts) > _MAX_PATH_PARTS or PurePosixPath(name).is_absolute()
    if is_invalid or ".." in parts or ".git" in parts or "\0" in name:
        raise UsageError(
            f"{key}: {name!r} is not a path inside the repository", "give a path relative to its top folder"
        )
    return str(PurePosixPath(name))


def _matching_paths(top: Path, pattern: str) -> list[Path]:
    """Return the paths of a checkout that match a pattern, without those outside it that symlinks lead to."""
    literal = top / pattern
    paths = [literal] if os.path.lexists(literal) else sorted(_expand_glob(top, pattern.split("/")))
    real = top.resolve()
    return [path for path in paths if path.parent.resolve().is_relative_to(real)]


def _expand_glob(top: Path, parts: Sequence[str]) -> set[Path]:
    """Return the paths that a pattern matches; for each part of the pattern every folder is read once, however many ways lead to it."""
    paths = {top}
    for part in parts:
        if part == "**":
            paths = _walk(paths)[0]
        else:
            paths = {path for folder in paths for path in _folder_entries(folder) if fnmatchcase(path.name, part)}
    return paths


def _all_below(folder: Path) -> set[Path]:
    """Return everything below a folder."""
    folders, files = _walk({folder})
    return folders | files


def _walk(tops: set[Path]) -> tuple[set[Path], set[Path]]:
    """Return these folders with all folders below them, and all other files in them; `.git` and symlinks are not entered."""
    folders, files = {top for top in tops if top.is_dir()}, set[Path]()
    pending = list(folders)
    while pending:
        for path in _folder_entries(pending.pop()):
            if path.is_symlink() or not path.is_dir():
                files.add(path)
            elif path.name != ".git" and path not in folders:
                folders.add(path)
                pending.append(path)
    return folders, files


def _folder_entries(folder: Path) -> list[Path]:
    """Return a folder's entries; none if it cannot be read."""
    try:
        return list(folder.iterdir())
    except OSError:  # not a folder, removed meanwhile, or not readable
        return []


async def set_up(host: Host, spec: WorkspaceSpec, git_env: Mapping[str, str], report: LineCallback) -> None:
    """Run the project's set-up commands in order, with live output. Raises `AoError` at the first that fails."""
    for command in spec.post_create:
        last_lines: deque[str] = deque(maxlen=10)

        def handle_line(line: str, last_lines: deque[str] = last_lines) -> None:
            last_lines.append(line)
            report(line)

        report(f"$ {command}")
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_WITHOUT_PROMPTS, **spec.env, **git_env}
        code = await host.stream(
            ["/bin/sh", "-c", command], handle_line, cwd=spec.path, env=environment, timeout=SETUP_TIMEOUT
        )
        if code:
            output = " | ".join(line for line in last_lines if line.strip())
            raise AoError(
                f"postCreate {command!r} ended with {code}: {output or 'no output'}", "mend the command, then try again"
            )
