"""Renders what a change contains, for people to read, within limits, however large the files are that an agent has
written.

Files above a size are not read at all: they are listed by name. A patch that is still too long ends after a whole
file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.protocols.host import ProgramResult

MAX_FILE_BYTES = 8 << 20
"""Maximum bytes of a file, before or after the change, that is compared."""
MAX_PATCH_BYTES = 10 << 20
"""Maximum bytes of a patch."""
_MAX_EXCLUDED_FILES = 500
"""Maximum number of large files that are excluded one by one; with more of them there is no patch at all."""
_BATCH_SIZE = 500
"""Maximum number of files per call of `find`."""
_SUBMODULE = "160000"
_FILE_HEADER = b"diff --git "
_BINARY_HEADER = b"\nGIT binary patch\n"


@dataclass(frozen=True, slots=True)
class RenderedChange:
    """A change as it is shown."""

    patch: str
    stat: str
    files: tuple[str, ...]
    omitted: tuple[str, ...]
    """Those of the files that are missing from the patch, or incomplete in it."""


@dataclass(frozen=True, slots=True)
class _ChangedFile:
    """One changed file."""

    path: str
    blobs: tuple[str, ...]
    """Its blobs in the object store, before and after the change."""
    is_only_in_workspace: bool
    """Whether its new content is only in the workspace, not in the object store."""


async def render_change(git: Git, base: str, head: str | None) -> RenderedChange:
    """Return what changed since `head` left `base`; without `head`, up to the current files."""
    async with git.comparison(base, head) as compare:
        entries = list(_parse_raw((await compare("--raw", "-z", "--no-abbrev", "--no-renames")).out))
        large = await _find_large_files(git, entries)
        if len(large) > _MAX_EXCLUDED_FILES:
            all_files = tuple(_displayable(entry.path) for entry in entries)
            return RenderedChange(
                "", f" {len(all_files)} files changed, too large to be compared\n", all_files, all_files
            )
        paths = [f":(top,exclude,literal){path}" for path in large]
        names = (await compare("-M", "--name-status", paths=paths)).text
        stat = (await compare("-M", "--stat=120", paths=paths)).text
        patch, cut = await _make_patch(
            partial(compare, "-M", "--patch", "--binary", paths=paths, most=MAX_PATCH_BYTES + 1)
        )
    files = [line.rpartition("\t")[2] for line in names.splitlines()]
    files_cut_off = files[_count_files(patch) :] if cut else []
    omitted = [_displayable(path) for path in large]
    stat += "".join(f" {path} | too large to be compared\n" for path in omitted)
    return RenderedChange(patch.decode(errors="replace"), stat, (*files, *omitted), (*files_cut_off, *omitted))


def _parse_raw(raw: bytes) -> Iterator[_ChangedFile]:
    """Yield the entries of Git's raw output: `:modes blobs status`, path, and so on."""
    fields = iter(raw.split(b"\0"))
    for field in fields:
        if not field.startswith(b":"):
            continue
        old_mode, new_mode, old_blob, new_blob, _ = field[1:].decode().split(" ")
        versions = ((old_mode, old_blob), (new_mode, new_blob))
        blobs = tuple(blob for mode, blob in versions if mode != _SUBMODULE and blob.strip("0"))
        is_loose = new_mode not in ("000000", _SUBMODULE) and not new_blob.strip("0")
        yield _ChangedFile(os.fsdecode(next(fields, b"")), blobs, is_loose)


async def _find_large_files(git: Git, entries: Sequence[_ChangedFile]) -> list[str]:
    """Return the paths of the files that are too large to be compared."""
    blob_list = "".join(f"{blob}\n" for entry in entries for blob in entry.blobs).encode()
    argv = ("cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer")
    listing = (await git.run(*argv, input=blob_list, env={"GIT_NO_LAZY_FETCH": "1"})).text if blob_list else ""
    sizes = {
        blob: int(size) for blob, _, size in (line.partition(" ") for line in listing.splitlines()) if size.isdigit()
    }
    large_paths = {entry.path for entry in entries if any(sizes.get(blob, 0) > MAX_FILE_BYTES for blob in entry.blobs)}
    loose_paths = [f"./{entry.path}" for entry in entries if entry.is_only_in_workspace]
    for start in range(0, len(loose_paths), _BATCH_SIZE):
        conditions = ("-maxdepth", "0", "-type", "f", "-size", f"+{MAX_FILE_BYTES}c", "-print0")
        result = await git.host.run(["find", *loose_paths[start : start + _BATCH_SIZE], *conditions], cwd=git.repo)
        large_paths |= {os.fsdecode(path).removeprefix("./") for path in result.out.split(b"\0") if path}
    return sorted(large_paths)


async def _make_patch(compare: Callable[..., Awaitable[ProgramResult]]) -> tuple[bytes, bool]:
    """Return a change as a patch of whole files, and whether it was cut. Text is shown as text, even where attributes
    mark it as binary.
    """
    full_patch = (await compare()).out
    patch = _cut_to_whole_files(full_patch)
    if _BINARY_HEADER not in patch:
        return patch, patch != full_patch
    text = (await compare("--text")).out
    pairs = zip(_split_by_file(patch), _split_by_file(_cut_to_whole_files(text)), strict=False)
    readable = b"".join(_as_text_if_possible(*pair) for pair in pairs)
    is_cut = patch != full_patch or len(text) > MAX_PATCH_BYTES or len(readable) > MAX_PATCH_BYTES
    return _cut_to_whole_files(readable), is_cut


def _cut_to_whole_files(patch: bytes) -> bytes:
    """Return a patch within the limit: if it is too long, without the last file, which may be incomplete."""
    if len(patch) <= MAX_PATCH_BYTES:
        return patch
    end = patch.rfind(b"\n" + _FILE_HEADER, 0, MAX_PATCH_BYTES)
    return patch[: end + 1]


def _split_by_file(patch: bytes) -> list[bytes]:
    """Return the parts of a patch, one per file."""
    return re.split(rb"^(?=diff --git )", patch, flags=re.MULTILINE)


def _as_text_if_possible(part: bytes, text: bytes) -> bytes:
    """Return one file's part of a patch as text if it contains no null byte: attributes, which the agent may set, do not count."""
    is_same_file = part.partition(b"\n")[0] == text.partition(b"\n")[0]
    return text if is_same_file and _BINARY_HEADER in part and b"\0" not in text else part


def _count_files(patch: bytes) -> int:
    """Return the number of files in a patch."""
    return patch.count(b"\n" + _FILE_HEADER) + patch.startswith(_FILE_HEADER)


def _displayable(path: str) -> str:
    """Return a path as text that can be displayed, with undecodable bytes replaced."""
    return os.fsencode(path).decode(errors="replace")
