"""Fills the submodules of a new workspace, from the main checkout's objects if they are there, so that it works offline."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection
from pathlib import Path

from agent_orchestrator.base.files.safe import is_git_path
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import Layout, find_layout
from agent_orchestrator.base.git.settings import GitConfig, noninteractive_ssh
from agent_orchestrator.errors import AoError

_UNSAFE_NAME = re.compile(r"[=\x00-\x1f\x7f]|^[-/]|(?:^|/)\.\.(?:/|$)")
"""Matches unsafe submodule names: characters that end a Git configuration key, or paths that lead to another folder."""
_SUBMODULE_ENTRY = re.compile(rb"(?<![^\0])H 160000 [0-9a-f]+ 0\t([^\0]+)")
TIME_LIMIT = 300.0
"""Seconds that one submodule may take."""


async def fill_submodules(
    git: Git, source: Layout, config: GitConfig, notes: list[str], only: Collection[str] | None = None
) -> None:
    """Check out every submodule below `git`'s checkout, or only those in `only`, also if a sparse checkout leaves `.gitmodules` out.

    `source` is the repository that may have their objects already. A submodule that cannot be filled is added to `notes`.
    """
    if only is None and not (git.repo / ".gitmodules").is_file():
        return
    for name, path, url in await _checked_out_submodules(git):
        if only is not None and path not in only:
            continue
        own_url = config.effective_value(f"submodule.{name}.url") or _absolute_url(url, config, source)
        local = _local_copy(source, name, path)
        problem = ""
        for url_to_try in ([str(local.common)] if local else []) + [own_url]:
            problem = await _fill_submodule(git, name, path, url_to_try, config, local=url_to_try != own_url)
            if not problem:
                break
        submodule_git = Git(git.host, git.repo / path)
        if problem:
            notes.append(f"submodule {path} is not filled: {problem}")
            continue
        await submodule_git.run("config", "remote.origin.url", own_url)
        await fill_submodules(submodule_git, local or source, await submodule_git.config(), notes)


async def _checked_out_submodules(git: Git) -> list[tuple[str, str, str]]:
    """Return (name, path, URL) of each submodule that is in the index and not left out by a sparse checkout."""
    options = ("--file", ".gitmodules") if (git.repo / ".gitmodules").is_file() else ("--blob", ":.gitmodules")
    text = (await git.run("config", *options, "--list", "-z", ok=(0, 1, 128))).out.decode(errors="surrogateescape")
    keys: dict[str, dict[str, str]] = {}
    for entry in text.split("\0"):
        key, _, value = entry.partition("\n")
        match = re.fullmatch(r"submodule\.(.+)\.(path|url)", key, re.DOTALL)
        if match:
            keys.setdefault(match[1], {})[match[2]] = value
    listing = (await git.run("ls-files", "-t", "--stage", "-z")).out
    submodule_paths = {name for path in _SUBMODULE_ENTRY.findall(listing) if is_git_path(name := os.fsdecode(path))}
    names = [name for name in keys if keys[name].get("path") in submodule_paths and not _UNSAFE_NAME.search(name)]
    return [(name, keys[name]["path"], keys[name].get("url", "")) for name in names]


def _local_copy(source: Layout, name: str, path: str) -> Layout | None:
    """Return the layout of the main checkout's own copy of a submodule, or None."""
    if ".." in Path(name).parts or ".." in Path(path).parts:
        return None
    checkout = find_layout(source.top / path) if source.top else None
    return checkout or find_layout(source.common / "modules" / name)


def _absolute_url(url: str, config: GitConfig, source: Layout) -> str:
    """Return the URL, made absolute if it is relative to the repository's own."""
    if not url.startswith(("./", "../")):
        return url
    base = config.effective_value("remote.origin.url") or str(source.top or source.common)
    scheme, slash, remainder = base.partition("://")
    root, path = (scheme + slash, remainder) if slash else ("", base)
    host, colon, base_path = path.partition(":") if not slash and not path.startswith("/") else ("", "", path)
    return root + host + colon + posixpath.normpath(posixpath.join(base_path, url))


async def _fill_submodule(git: Git, name: str, path: str, url: str, config: GitConfig, *, local: bool) -> str:
    """Fill one submodule; return the reason if that failed, or "". Its URL is passed in the command, so no shared file is written."""
    settings = [f"submodule.{name}.url={url}", f"submodule.{name}.active=true", *git.missing_lfs_config()]
    if local:
        settings.append("protocol.file.allow=always")
    submodule_git = Git(git.host, git.repo / path)
    try:
        if find_layout(git.repo / path) is not None:
            await submodule_git.run("config", "remote.origin.url", url)
        command = ("submodule", "--quiet", "update", "--checkout", "--", path)
        await git.run(*command, config=settings, env=noninteractive_ssh(config), timeout=TIME_LIMIT)
    except AoError as error:
        return error.text
    return ""
