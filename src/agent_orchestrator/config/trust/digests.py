"""Digests of powers and of files with code: what a person's trust is recorded for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import MAX_FILE_BYTES, read_regular_file
from agent_orchestrator.config.load import LoadedConfig
from agent_orchestrator.config.trust.power import TrustContext, resolve_path


def digest(powers: Mapping[str, Any], file: Path | None = None) -> str:
    """Return a stable digest of powers, or "" if there are none.

    With `file`, the digest is for that path only: `make test` does something else in another repository.
    """
    if not powers:
        return ""
    powers = powers if file is None else {"file": str(file.absolute()), "powers": powers}
    text = json.dumps(powers, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def code_files(loaded: LoadedConfig, around: TrustContext) -> list[Path]:
    """Return the files of code that a file names. Trust in the file includes trust in their content."""
    config = loaded.config
    paths = [resolve_path(around.folder, entry.path, around) for entry in config.plugins]
    projects = [*config.projects.values(), *([config.project] if config.project else [])]
    paths += [
        resolve_path(around.folder, entry.path or ".", around) / entry.docker.dockerfile
        for entry in projects
        if entry.docker.dockerfile
    ]
    return list(dict.fromkeys(paths))


def code_digest(path: Path) -> str:
    """Return a digest of a code file with its path; a file that cannot be read has one too."""
    return file_digest(path, _read(path))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as other programs print it."""
    return hashlib.sha256(_read(path)).hexdigest()


def _read(path: Path) -> bytes:
    """Return the content of a file, or the error's name. A file too long for code gets random bytes: its digest is never trusted."""
    try:
        real = path.resolve()
        return os.urandom(16) if real.is_file() and real.stat().st_size > MAX_FILE_BYTES else read_regular_file(real)
    except (OSError, ValueError, RuntimeError) as error:
        return type(error).__name__.encode()


def file_digest(path: Path, data: bytes) -> str:
    """Return a digest of a file with this path and content."""
    return hashlib.sha256(f"{path}\0".encode(errors="surrogatepass") + hashlib.sha256(data).digest()).hexdigest()
