"""What Git's files tell without starting a process: where a repository is, what HEAD names, which names are names."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

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
            pointer = dot.read_bytes().decode(errors="surrogateescape").strip()
        except FileNotFoundError:  # removed this very moment
            return None
        if not pointer.startswith("gitdir: "):
            return None
        git_dir = Path(os.path.normpath(path / pointer.removeprefix("gitdir: ")))
        return Layout(path, git_dir, _common(git_dir)) if git_dir.is_dir() else None
    if (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir():
        return Layout(None, path, path)
    return None


def _common(git_dir: Path) -> Path:
    try:
        pointer = (git_dir / "commondir").read_bytes().decode(errors="surrogateescape").strip()
    except OSError:
        return git_dir
    return Path(os.path.normpath(git_dir / pointer))


def read_symbolic_head(git_dir: Path) -> str | None:
    """The ref that HEAD names (`refs/heads/main`); none when it is detached or cannot be read from files."""
    try:
        text = (git_dir / "HEAD").read_bytes().decode(errors="surrogateescape").strip()
    except OSError:
        return None
    return text[5:] if text.startswith("ref: ") and text != "ref: refs/heads/.invalid" else None


def read_head(git_dir: Path) -> str | None:
    """The commit that HEAD names, read from Git's files without a process; none when there is none yet."""
    ref = read_symbolic_head(git_dir)
    if ref is not None:
        return read_ref(git_dir, ref)
    try:
        text = (git_dir / "HEAD").read_text().strip()
    except (OSError, ValueError):
        return None
    return text if re.fullmatch(r"[0-9a-f]{40,64}", text) else None


def read_ref(git_dir: Path, ref: str) -> str | None:
    """The object that a ref names, read from loose and packed refs without a process."""
    common = _common(git_dir)
    for folder in (git_dir, common):
        try:
            text = (folder / ref).read_text().strip()
        except (OSError, ValueError):
            continue
        return read_ref(git_dir, text[5:]) if text.startswith("ref: ") else text
    wanted = b" " + os.fsencode(ref)
    try:
        packed = (common / "packed-refs").read_bytes()
    except OSError:
        return None
    return next((line[: -len(wanted)].decode() for line in packed.splitlines() if line.endswith(wanted)), None)
