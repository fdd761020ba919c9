"""What a change comes to, for people to read: within bounds, however large the files are that an agent made.

Files above a size are not even opened: their names are told instead. A patch that gets too long all the same ends with a whole file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.protocols.host import Completed

FILE_MOST = 8 << 20
"""Bytes of a file, before or after, that is still compared."""
PATCH_MOST = 10 << 20
"""Bytes of a patch."""
_NAMED = 500
"""Files that are left out one by one; with more of them there is no patch at all."""
_AT_ONCE = 500
_SUBMODULE = "160000"
_FILE = b"diff --git "
_BINARY = b"\nGIT binary patch\n"


@dataclass(frozen=True, slots=True)
class Shown:
    """A change as it is shown."""

    patch: str
    stat: str
    files: tuple[str, ...]
    omitted: tuple[str, ...]
    """Those of the files that are not in the patch, or not whole."""


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    blobs: tuple[str, ...]
    """What Git has of it, before and after."""
    loose: bool
    """It is a file of the workspace."""


async def show(git: Git, base: str, head: str | None) -> Shown:
    """What changed since `head` left `base`; without `head`: up to the files as they are now."""
    async with git.comparing(base, head) as compare:
        entries = list(_entries((await compare("--raw", "-z", "--no-abbrev", "--no-renames")).out))
        large = await _large(git, entries)
        if len(large) > _NAMED:
            every = tuple(_shown(entry.path) for entry in entries)
            return Shown("", f" {len(every)} files changed, too large to be compared\n", every, every)
        paths = [f":(top,exclude,literal){path}" for path in large]
        names = (await compare("-M", "--name-status", paths=paths)).text
        stat = (await compare("-M", "--stat=120", paths=paths)).text
        patch, cut = await _patch(partial(compare, "-M", "--patch", "--binary", paths=paths, most=PATCH_MOST + 1))
    files = [line.rpartition("\t")[2] for line in names.splitlines()]
    left = files[_files_in(patch) :] if cut else []
    omitted = [_shown(path) for path in large]
    stat += "".join(f" {path} | too large to be compared\n" for path in omitted)
    return Shown(patch.decode(errors="replace"), stat, (*files, *omitted), (*left, *omitted))


def _entries(raw: bytes) -> Iterator[_Entry]:
    """Git's raw form: `:modes blobs status`, path, and so on."""
    fields = iter(raw.split(b"\0"))
    for told in fields:
        if not told.startswith(b":"):
            continue
        before, after, old, new, _ = told[1:].decode().split(" ")
        kept = ((before, old), (after, new))
        blobs = tuple(blob for mode, blob in kept if mode != _SUBMODULE and blob.strip("0"))
        loose = after not in ("000000", _SUBMODULE) and not new.strip("0")
        yield _Entry(os.fsdecode(next(fields, b"")), blobs, loose)


async def _large(git: Git, entries: Sequence[_Entry]) -> list[str]:
    """The files that are too large to be compared."""
    asked = "".join(f"{blob}\n" for entry in entries for blob in entry.blobs).encode()
    words = ("cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer")
    told = (await git.run(*words, input=asked, env={"GIT_NO_LAZY_FETCH": "1"})).text if asked else ""
    sizes = {blob: int(size) for blob, _, size in (line.partition(" ") for line in told.splitlines()) if size.isdigit()}
    found = {entry.path for entry in entries if any(sizes.get(blob, 0) > FILE_MOST for blob in entry.blobs)}
    loose = [f"./{entry.path}" for entry in entries if entry.loose]
    for start in range(0, len(loose), _AT_ONCE):
        tests = ("-maxdepth", "0", "-type", "f", "-size", f"+{FILE_MOST}c", "-print0")
        done = await git.host.run(["find", *loose[start : start + _AT_ONCE], *tests], cwd=git.repo)
        found |= {os.fsdecode(path).removeprefix("./") for path in done.out.split(b"\0") if path}
    return sorted(found)


async def _patch(compare: Callable[..., Awaitable[Completed]]) -> tuple[bytes, bool]:
    """A change in whole files, and whether there would be more. What is text is shown as text, whatever its attributes call it."""
    whole = (await compare()).out
    patch = _whole_files(whole)
    if _BINARY not in patch:
        return patch, patch != whole
    text = (await compare("--text")).out
    pairs = zip(_by_file(patch), _by_file(_whole_files(text)), strict=False)
    shown = b"".join(_readable(*pair) for pair in pairs)
    cut = patch != whole or len(text) > PATCH_MOST or len(shown) > PATCH_MOST
    return _whole_files(shown), cut


def _whole_files(patch: bytes) -> bytes:
    """A patch within bounds: without what there is of the last file in it, where it is too long."""
    if len(patch) <= PATCH_MOST:
        return patch
    end = patch.rfind(b"\n" + _FILE, 0, PATCH_MOST)
    return patch[: end + 1]


def _by_file(patch: bytes) -> list[bytes]:
    return re.split(rb"^(?=diff --git )", patch, flags=re.MULTILINE)


def _readable(part: bytes, text: bytes) -> bytes:
    """One file's part of a patch, as text if it has no byte that no text has; its attributes are the agent's word."""
    same = part.partition(b"\n")[0] == text.partition(b"\n")[0]
    return text if same and _BINARY in part and b"\0" not in text else part


def _files_in(patch: bytes) -> int:
    return patch.count(b"\n" + _FILE) + patch.startswith(_FILE)


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")
