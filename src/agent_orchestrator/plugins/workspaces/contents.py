"""What is put into a new workspace and around it: the symlink that leads to it, copies and shared folders, its set-up commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from agent_orchestrator.base.files.safe import NotPlain, parts_of, read_plain
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import Layout, find_layout
from agent_orchestrator.errors import AoError, Conflict, UsageError, machine_short
from agent_orchestrator.plugins.workspaces.file_copy import Copier, Stopped, make_folder
from agent_orchestrator.protocols import Report, WorkspaceSpec
from agent_orchestrator.protocols.host import Host

SETUP_LIMIT = 1800.0
"""Seconds that one set-up command may take."""
_WITHOUT_PROMPTS = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "GCM_INTERACTIVE": "never"}
_LONGEST = 50
"""Parts of a path that `copy` or `symlinks` names."""
_MANY = 100
"""Files of a folder that are excluded one by one."""
COPIED = b"# Agent Orchestrator: copied into workspaces\n"
"""Stands in `info/exclude` before such files: what an agent puts in their place later is work like any other."""

MADE = b"# Agent Orchestrator: made by set-ups and tests\n"
"""Stands in `info/exclude` before the folders that set-ups and tests make: these go with a workspace, like what the project ignores."""
_MADE_NAME = re.compile(
    r"\.venv|venv|node_modules|__pycache__|\.(?:pytest|mypy|ruff)_cache|\.[tn]ox|\.eggs|\.hypothesis|\.pnpm-store|(?P<egg>.+\.egg-info)"
)
"""Folders that only tools make."""
_MADE_LOCK = re.compile(
    r"(?:.*/)?(?:(?:package-lock|npm-shrinkwrap)\.json|pnpm-lock\.yaml|bun\.lockb|(?:yarn|bun|deno|uv|poetry|pdm|Cargo|Pipfile)\.lock)"
)
"""Lock files that installers write where a project keeps none."""


def check_link(spec: WorkspaceSpec) -> None:
    """Raise if something that is not ours stands where the symlink is to be."""
    link = spec.link
    if link is None or not _stays(link) or not os.path.lexists(link) or _leads_to(link, spec.path):
        return
    if not (link.is_symlink() and not link.exists()):
        raise Conflict(
            f"{link} is in the way of the workspace's symlink", "move it away, or choose another name with --name"
        )


def make_link(spec: WorkspaceSpec, layout: Layout, notes: list[str]) -> None:
    """Lead to the workspace from within the checkout, unseen by `git status`."""
    link = spec.link
    if link is None or layout.top is None:
        return
    if not _stays(link):
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
    """Take the symlink away if it is ours, and its folder if nothing else is in it."""
    if spec.link is not None and _leads_to(spec.link, spec.path):
        spec.link.unlink()
        with contextlib.suppress(OSError):
            spec.link.parent.rmdir()


def _stays(link: Path) -> bool:
    """Is the folder of the symlink where it seems to be? The repository may have come with one that leads elsewhere."""
    return not link.parent.is_symlink()


def _leads_to(link: Path, path: Path) -> bool:
    return link.is_symlink() and Path(os.path.normpath(link.parent / link.readlink())) == path


def exclude(layout: Layout, patterns: list[str], about: bytes = b"") -> None:
    """Add patterns to the repository's `info/exclude`, once, keeping what the user has there; `about` is a line before them."""
    file = (layout.common / "info" / "exclude").resolve()
    try:
        content = read_plain(file)
    except FileNotFoundError:
        content = b""
    except NotPlain as error:
        raise Conflict(str(error), "find out what it is: Git keeps a short list of patterns there") from None
    present = set(content.splitlines())
    missing = [os.fsencode(pattern) for pattern in patterns if os.fsencode(pattern) not in present]
    if not missing:
        return
    if content and not content.endswith(b"\n"):
        content += b"\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    descriptor, fresh = tempfile.mkstemp(dir=file.parent, prefix=".exclude-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content + about + b"".join(pattern + b"\n" for pattern in missing))
        Path(fresh).chmod(mode)
        Path(fresh).replace(file)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


async def exclude_made(git: Git, layout: Layout, left: Sequence[str]) -> None:
    """Exclude from `git status` what a set-up or a test run left, as far as it is a folder or lock file that only a tool makes."""
    if patterns := await made_patterns(git, left):
        exclude(layout, patterns, MADE)


async def made_patterns(git: Git, left: Sequence[str]) -> list[str]:
    """Return the patterns that exclude the folders and lock files among untracked paths that only tools make.

    A folder's name is excluded anywhere, unless people name folders of their own so, or Git tracks files in a folder of that name:
    then that path alone is. A lock file is excluded by its path.
    """
    locks = [_as_pattern(path) for path in left if _MADE_LOCK.fullmatch(path)]
    made = {path: _MADE_NAME.fullmatch(PurePosixPath(path).name) for path in left if path.endswith("/")}
    names = {path: "*.egg-info" if found["egg"] else found[0] for path, found in made.items() if found}
    tracked = {"venv": True}
    for name in set(names.values()) - tracked.keys():
        tracked[name] = bool((await git.run("ls-files", "-z", "--", f":(glob)**/{name}/**")).out)
    folders = {f"{_as_pattern(path.rstrip('/')) if tracked[name] else name}/" for path, name in names.items()}
    return sorted({*folders, *locks})


async def share(git: Git, spec: WorkspaceSpec, layout: Layout, notes: list[str]) -> None:
    """Copy and link what the project names from the main checkout; what Git would show of it is excluded."""
    if not spec.copy and not spec.symlinks:
        return
    if layout.top is None:
        notes.append(f"{spec.repo} is a bare repository: there is nothing to copy or link from")
        return
    stop = threading.Event()
    placing = asyncio.ensure_future(asyncio.to_thread(_place, spec, layout.top, notes, stop))
    try:
        placed = await asyncio.shield(placing)
    except asyncio.CancelledError:  # what is made meanwhile would outlive the workspace
        stop.set()
        with contextlib.suppress(Stopped, OSError, AoError):
            await placing
        raise
    if placed:
        patterns = await shown(git, placed)
        own = await _not_for_folders(Git(git.host, layout.top), spec.symlinks)
        links = {_as_pattern(str(PurePosixPath(name))) for name in spec.symlinks}
        inside = find_layout(spec.path) or layout
        exclude(inside, [*(pattern for pattern in patterns if pattern in links), *own])
        exclude(inside, [pattern for pattern in patterns if pattern not in links], COPIED)


def copied_before(layout: Layout, top: Path) -> list[str]:
    """What is in a workspace, and Git does not show because it was copied into some at some time: by the lines of `info/exclude`."""
    try:
        lines = read_plain((layout.common / "info" / "exclude").resolve()).splitlines()
    except OSError as error:
        if short := machine_short(error):
            raise short from None
        return []
    found, ours = [], False
    for line in lines:
        ours = line == COPIED.rstrip() or (ours and line.startswith(b"/"))
        if ours and line.startswith(b"/"):
            with contextlib.suppress(NotPlain):  # an agent may have written it
                parts = parts_of(re.sub(r"\\(.)", r"\1", os.fsdecode(line[1:])))
                found += ["/".join(parts)] if os.path.lexists(top.joinpath(*parts)) else []
    return found


async def _not_for_folders(git: Git, symlinks: Sequence[str]) -> list[str]:
    """Let Git show a folder that an agent puts in a symlink's place, unless the user has it ignored: it is work like any other."""
    mine = {_as_pattern(name): name for name in symlinks if (git.repo / name).is_dir()}
    listing = b"".join(os.fsencode(name) + b"\0" for name in mine.values())
    told = (await git.run("check-ignore", "-v", "-z", "--stdin", input=listing, ok=(0, 1))).out if mine else b""
    words = [os.fsdecode(word) for word in told.split(b"\0")]
    ignored = {name for pattern, name in zip(words[2::4], words[3::4], strict=False) if pattern not in mine}
    return [f"!{pattern}/" for pattern, name in mine.items() if name not in ignored]


async def shown(git: Git, placed: Sequence[str]) -> list[str]:
    """Of what was put into a workspace, what Git would show: as patterns that exclude it.

    A folder that the branch does not have is one pattern if many files were put into it: Git holds each file against each pattern.
    """
    listing = b"".join(os.fsencode(name) + b"\0" for name in placed)
    ignored = set((await git.run("check-ignore", "-z", "--stdin", input=listing, ok=(0, 1))).out.split(b"\0"))
    rest = [name for name in placed if os.fsencode(name) not in ignored]
    if not rest:
        return []
    tops = sorted({name.partition("/")[0] for name in rest})
    listing = (await git.run("ls-files", "-z", "--", *tops, env={"GIT_LITERAL_PATHSPECS": "1"})).out
    return await asyncio.to_thread(_patterns, rest, [os.fsdecode(name) for name in listing.split(b"\0") if name])


def _patterns(names: Sequence[str], tracked: Sequence[str]) -> list[str]:
    known, folders = set(tracked), {folder for name in tracked for folder in _above(name)}
    groups: dict[str, list[str]] = {}
    for name in names:
        if name not in known:
            own = next((folder for folder in _above(name) if folder not in folders), name)
            groups.setdefault(own, []).append(name)
    whole = {folder: len(group) > _MANY for folder, group in groups.items()}
    return [_as_pattern(name) for folder, group in groups.items() for name in ([folder] if whole[folder] else group)]


def _above(name: str) -> Iterator[str]:
    """The folders that a name is in, the uppermost first."""
    end = name.find("/")
    while end >= 0:
        yield name[:end]
        end = name.find("/", end + 1)


def named(top: Path, patterns: Sequence[str]) -> list[Path]:
    """The files of a checkout that `copy` names, Git's own left out."""
    found = [path for pattern in patterns for path in _matches(top, _inside(pattern, "copy"))]
    files = [one for path in found for one in (sorted(_below(path)) if path.is_dir() else [path])]
    return [one for one in dict.fromkeys(files) if one.is_file() and ".git" not in one.relative_to(top).parts]


def _as_pattern(name: str) -> str:
    escaped = "".join(f"\\{char}" if char in "\\*?[" else char for char in name)
    return "/" + (escaped[:-1] + "\\ " if escaped.endswith(" ") else escaped)


def _place(spec: WorkspaceSpec, top: Path, notes: list[str], stop: threading.Event) -> list[str]:
    placed: list[str] = []
    for name in spec.symlinks:
        source = top / _inside(name, "symlinks")
        target = spec.path / name
        if not os.path.lexists(source):
            notes.append(f"{name} is not in {top}: no symlink was made")
        elif os.path.lexists(target):
            notes.append(f"{name} is in the branch itself: no symlink was made")
        else:
            make_folder(target.parent, spec.path.resolve())
            target.symlink_to(source)
            placed.append(str(PurePosixPath(name)))
    copier = Copier(top, spec.path, notes, stop)
    for pattern in spec.copy:
        found = [path for path in _matches(top, _inside(pattern, "copy")) if ".git" not in path.relative_to(top).parts]
        if not found:
            notes.append(f"nothing in {top} matches {pattern!r}: nothing was copied")
        for source in found:
            placed += copier.copy(source)
    return placed


def _inside(name: str, key: str) -> str:
    parts = PurePosixPath(name).parts
    odd = not parts or len(parts) > _LONGEST or PurePosixPath(name).is_absolute()
    if odd or ".." in parts or ".git" in parts or "\0" in name:
        raise UsageError(
            f"{key}: {name!r} is not a path inside the repository", "give a path relative to its top folder"
        )
    return str(PurePosixPath(name))


def _matches(top: Path, pattern: str) -> list[Path]:
    literal = top / pattern
    found = [literal] if os.path.lexists(literal) else sorted(_globbed(top, pattern.split("/")))
    real = top.resolve()
    return [path for path in found if path.parent.resolve().is_relative_to(real)]


def _globbed(top: Path, parts: Sequence[str]) -> set[Path]:
    """What a pattern means; for each part of it every folder is looked at once, however many ways of fitting it lead there."""
    found = {top}
    for part in parts:
        if part == "**":
            found = _walked(found)[0]
        else:
            found = {path for folder in found for path in _entries(folder) if fnmatchcase(path.name, part)}
    return found


def _below(folder: Path) -> set[Path]:
    folders, files = _walked({folder})
    return folders | files


def _walked(tops: set[Path]) -> tuple[set[Path], set[Path]]:
    """Some folders and those below them, and whatever else is in these; Git's own and symlinks are not entered."""
    folders, files = {top for top in tops if top.is_dir()}, set[Path]()
    waiting = list(folders)
    while waiting:
        for path in _entries(waiting.pop()):
            if path.is_symlink() or not path.is_dir():
                files.add(path)
            elif path.name != ".git" and path not in folders:
                folders.add(path)
                waiting.append(path)
    return folders, files


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # no folder, none any more, or none of ours
        return []


async def set_up(host: Host, spec: WorkspaceSpec, git_env: Mapping[str, str], report: Report) -> None:
    """Run the project's set-up commands in order, with live output; the first that fails ends it."""
    for command in spec.post_create:
        last: deque[str] = deque(maxlen=10)

        def live(line: str, last: deque[str] = last) -> None:
            last.append(line)
            report(line)

        report(f"$ {command}")
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_WITHOUT_PROMPTS, **spec.env, **git_env}
        code = await host.stream(["/bin/sh", "-c", command], live, cwd=spec.path, env=environment, timeout=SETUP_LIMIT)
        if code:
            said = " | ".join(line for line in last if line.strip())
            raise AoError(
                f"postCreate {command!r} ended with {code}: {said or 'no output'}", "mend the command, then try again"
            )
