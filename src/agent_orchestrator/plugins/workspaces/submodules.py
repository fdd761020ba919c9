"""Submodules of a new workspace: filled from the main checkout's own objects where it has them, so that it works offline."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection
from pathlib import Path

from agent_orchestrator.base.files.safe import is_in_git
from agent_orchestrator.base.git.commands import Config, Git, ssh_without_questions
from agent_orchestrator.base.git.refs import Layout, find_layout
from agent_orchestrator.errors import AoError

_ODD = re.compile(r"[=\x00-\x1f\x7f]|^[-/]|(?:^|/)\.\.(?:/|$)")
"""In a submodule's name: what would end it where it is put into Git's configuration, or lead to another folder."""
_LINK = re.compile(rb"(?<![^\0])H 160000 [0-9a-f]+ 0\t([^\0]+)")
TIME_LIMIT = 300.0
"""Seconds that one submodule may take."""


async def fill_submodules(
    git: Git, source: Layout, config: Config, notes: list[str], only: Collection[str] | None = None
) -> None:
    """Check out every submodule below `git`'s checkout, or `only` some (also where a sparse checkout leaves `.gitmodules` out); `source` is
    the repository that may have their objects already.
    """
    if only is None and not (git.repo / ".gitmodules").is_file():
        return
    for name, path, url in await _declared(git):
        if only is not None and path not in only:
            continue
        real = config.last(f"submodule.{name}.url") or _absolute(url, config, source)
        local = _local(source, name, path)
        failure = ""
        for origin in ([str(local.common)] if local else []) + [real]:
            failure = await _update(git, name, path, origin, config, local=origin != real)
            if not failure:
                break
        below = Git(git.host, git.repo / path)
        if failure:
            notes.append(f"submodule {path} is not filled: {failure}")
            continue
        await below.run("config", "remote.origin.url", real)
        await fill_submodules(below, local or source, await below.config(), notes)


async def _declared(git: Git) -> list[tuple[str, str, str]]:
    """(name, path, URL) of each submodule that the commit really has, and a sparse checkout not left out."""
    where = ("--file", ".gitmodules") if (git.repo / ".gitmodules").is_file() else ("--blob", ":.gitmodules")
    text = (await git.run("config", *where, "--list", "-z", ok=(0, 1, 128))).out.decode(errors="surrogateescape")
    keys: dict[str, dict[str, str]] = {}
    for entry in text.split("\0"):
        key, _, value = entry.partition("\n")
        found = re.fullmatch(r"submodule\.(.+)\.(path|url)", key, re.DOTALL)
        if found:
            keys.setdefault(found[1], {})[found[2]] = value
    listing = (await git.run("ls-files", "-t", "--stage", "-z")).out
    links = {name for path in _LINK.findall(listing) if is_in_git(name := os.fsdecode(path))}
    names = [name for name in keys if keys[name].get("path") in links and not _ODD.search(name)]
    return [(name, keys[name]["path"], keys[name].get("url", "")) for name in names]


def _local(source: Layout, name: str, path: str) -> Layout | None:
    """The main checkout's own copy of a submodule."""
    if ".." in Path(name).parts or ".." in Path(path).parts:
        return None
    checkout = find_layout(source.top / path) if source.top else None
    return checkout or find_layout(source.common / "modules" / name)


def _absolute(url: str, config: Config, source: Layout) -> str:
    """A URL relative to the repository's own, made whole."""
    if not url.startswith(("./", "../")):
        return url
    base = config.last("remote.origin.url") or str(source.top or source.common)
    head, slash, tail = base.partition("://")
    root, path = (head + slash, tail) if slash else ("", base)
    host, colon, rest = path.partition(":") if not slash and not path.startswith("/") else ("", "", path)
    return root + host + colon + posixpath.normpath(posixpath.join(rest, url))


async def _update(git: Git, name: str, path: str, url: str, config: Config, *, local: bool) -> str:
    """Fill one; returns why that failed, or nothing. Its URL is given by the command, so that no shared file is written."""
    settings = [f"submodule.{name}.url={url}", f"submodule.{name}.active=true", *git.filters()]
    if local:
        settings.append("protocol.file.allow=always")
    below = Git(git.host, git.repo / path)
    try:
        if find_layout(git.repo / path) is not None:
            await below.run("config", "remote.origin.url", url)
        command = ("submodule", "--quiet", "update", "--checkout", "--", path)
        await git.run(*command, config=settings, env=ssh_without_questions(config), timeout=TIME_LIMIT)
    except AoError as error:
        return error.text
    return ""
