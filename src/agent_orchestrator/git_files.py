"""What Git's files tell without starting a process: where a repository is, what HEAD names, which names are names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.errors import machine_short
from agent_orchestrator.safe_files import read_plain

LONGEST = 1 << 20
"""Bytes that a file of Git's may have for us, but for the list of packed refs."""
LONGEST_LIST = 256 << 20
_DEEPEST = 5
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a repository's parts are, as far as its files tell."""

    top: Path | None
    """The checkout; none for a bare repository."""
    git_dir: Path
    common: Path


def valid_branch(name: str) -> bool:
    """Would `git check-ref-format --branch` take this name? (`@` alone, which means HEAD, is refused too.)"""
    if (
        not name
        or name in ("@", "HEAD")
        or name.startswith("-")
        or name.endswith((".", "/"))
        or _BAD_IN_REF.search(name)
    ):
        return False
    return not any(part == "" or part.startswith(".") or part.endswith(".lock") for part in name.split("/"))


def ref_safe(name: str) -> str:
    """The name itself where it may be part of a ref's name, otherwise a spelling of it that may."""
    if valid_branch(name) and "%" not in name:
        return name
    return "".join(c if c.isalnum() or c in "-_" else "".join(f"%{b:02X}" for b in os.fsencode(c)) for c in name) or "%"


def find_layout(path: Path) -> Layout | None:
    """Find a repository by its files, without a process; `path` is its checkout's top folder or the bare repository."""
    dot = path / ".git"
    if dot.is_dir():
        return Layout(path, dot, _common(dot))
    if dot.is_file():
        try:
            pointer = _text(dot)
        except OSError:  # removed this very moment, or not what it was
            return None
        if not pointer.startswith("gitdir: "):
            return None
        git_dir = Path(os.path.normpath(path / pointer.removeprefix("gitdir: ")))
        return Layout(path, git_dir, _common(git_dir)) if git_dir.is_dir() else None
    if (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir():
        return Layout(None, path, path)
    return None


def _common(git_dir: Path) -> Path:
    if not os.path.lexists(git_dir / "commondir"):
        return git_dir
    try:
        pointer = _text(git_dir / "commondir")
    except OSError:
        return git_dir
    return Path(os.path.normpath(git_dir / pointer))


def _text(path: Path, longest: int = LONGEST) -> str:
    """One of Git's files. An agent may write there: a pipe, a device or a symlink in its place is not read."""
    return _bytes(path, longest).decode(errors="surrogateescape").strip()


def _bytes(path: Path, longest: int) -> bytes:
    """A file that cannot be looked at for want of descriptors or memory is not taken for one that is not there."""
    try:
        return read_plain(path, longest)
    except OSError as error:
        raise machine_short(error) or error from None


def _is_ref(name: str) -> bool:
    """Is it the name of a ref, and not of any other file?"""
    return name.startswith("refs/") and valid_branch(name)


def read_symbolic_head(git_dir: Path) -> str | None:
    """The ref that HEAD names (`refs/heads/main`); none when it is detached or cannot be read from files."""
    try:
        text = _text(git_dir / "HEAD")
    except OSError:
        return None
    ref = text.removeprefix("ref:").strip()
    return ref if text.startswith("ref:") and _is_ref(ref) else None


def read_head(git_dir: Path) -> str | None:
    """The commit that HEAD names, read from Git's files without a process; none when there is none yet."""
    ref = read_symbolic_head(git_dir)
    if ref is not None:
        return read_ref(git_dir, ref)
    try:
        text = _text(git_dir / "HEAD")
    except OSError:
        return None
    return text if _OBJECT.fullmatch(text) else None


def read_ref(git_dir: Path, ref: str) -> str | None:
    """The object that a ref names, read from loose and packed refs without a process."""
    return _loose(git_dir, ref) or _among(_packed(git_dir), ref)


def read_refs(git_dir: Path, names: Iterable[str], below: str) -> dict[str, str] | None:
    """Those of these refs that there are, and all below one more; none where Git keeps refs in no files of this kind."""
    common = _common(git_dir)
    if (common / "reftable").exists():
        return None
    under = {f"{below}/{path.relative_to(common / below)}" for path in (common / below).rglob("*") if path.is_file()}
    found = {name: _loose(git_dir, name) for name in (*names, *under)}
    packed = _packed(git_dir)  # after the others: Git packs a ref before it removes its file
    listed = {os.fsdecode(name) for name in re.findall(rb" (%b/.+)" % re.escape(os.fsencode(below)), packed)}
    return {name: commit for name in found.keys() | listed if (commit := found.get(name) or _among(packed, name))}


def _loose(git_dir: Path, ref: str, deep: int = 0) -> str | None:
    """What a ref's own file names; of one that names another ref, what that has."""
    if not _is_ref(ref) or deep > _DEEPEST:
        return None
    for folder in (git_dir, _common(git_dir)):
        try:
            text = _text(folder / ref)
        except OSError:
            continue
        if text.startswith("ref:"):
            other = text.removeprefix("ref:").strip()
            return _loose(git_dir, other, deep + 1) or _among(_packed(git_dir), other)
        if _OBJECT.fullmatch(text):
            return text
    return None


def _packed(git_dir: Path) -> bytes:
    try:
        return _bytes(_common(git_dir) / "packed-refs", LONGEST_LIST)
    except OSError:
        return b""


def _among(packed: bytes, ref: str) -> str | None:
    """What a ref names in the list of packed ones."""
    end = packed.find(b" %b\n" % os.fsencode(ref)) if _is_ref(ref) else -1
    found = packed[packed.rfind(b"\n", 0, max(end, 0)) + 1 : max(end, 0)].decode(errors="replace")
    return found if _OBJECT.fullmatch(found) else None
