"""Read a repository's files with limits on size and number, and never through a link."""

from __future__ import annotations

import configparser
import json
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import UnsafePath, open_below

MAX_FILE_BYTES = 256 << 10
MAX_INI_BYTES = 64 << 10
MAX_LISTED_FILES = 6000
MAX_DEPTH = 5
_SKIPPED_FOLDERS = frozenset(
    {"node_modules", "venv", "env", "dist", "build", "target", "site-packages", "vendor", "third_party", "__pycache__"}
)


class RepositoryFiles:
    """A repository's folder, as far as detection reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._texts: dict[str, str] = {}
        self._inis: dict[str, dict[str, dict[str, str]]] = {}

    @cached_property
    def top_level_names(self) -> frozenset[str]:
        """The names in the top folder."""
        try:
            with os.scandir(self.root) as entries:
                return frozenset(entry.name for entry, _ in zip(entries, range(MAX_LISTED_FILES), strict=False))
        except OSError:
            return frozenset()

    @cached_property
    def tree(self) -> tuple[str, ...]:
        """The paths of the files, those in upper folders first. Hidden, built and downloaded folders are left out."""
        return tuple(self._list_files())

    def _list_files(self) -> Iterator[str]:
        """Yield the paths of files breadth first, within the limits on depth and number."""
        queue: list[tuple[str, int]] = [("", 0)]
        count = 0
        for folder, depth in queue:
            try:
                with os.scandir(self.root / folder) as entries:
                    names = sorted(
                        (
                            (entry.name, entry.is_dir(follow_symlinks=False))
                            for entry, _ in zip(entries, range(MAX_LISTED_FILES), strict=False)
                        )
                    )
            except OSError:
                continue
            for name, is_folder in names:
                count += 1
                if count > MAX_LISTED_FILES:
                    return
                path = f"{folder}/{name}" if folder else name
                if not is_folder:
                    yield path
                elif depth < MAX_DEPTH and not name.startswith(".") and name not in _SKIPPED_FOLDERS:
                    queue.append((path, depth + 1))

    def first_existing(self, *names: str) -> str | None:
        """Return the first of these names that the top folder has, or None."""
        return next((name for name in names if name in self.top_level_names), None)

    def list_folder(self, folder: str, most: int = 40) -> list[str]:
        """Return the names in a folder, sorted, or none if there is no such folder."""
        try:
            if (self.root / folder).is_symlink():
                return []
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry, _ in zip(entries, range(most), strict=False))
        except OSError:
            return []

    def text(self, name: str, most: int = MAX_FILE_BYTES) -> str:
        """Return a file's text, or "" if it does not exist or is not a regular file."""
        if name not in self._texts:
            try:
                with open_below(self.root, name) as file:
                    self._texts[name] = file.read(most).decode("utf-8-sig", errors="replace")
            except (OSError, UnsafePath, ValueError):
                self._texts[name] = ""
        return self._texts[name]

    def toml(self, name: str) -> dict[str, Any]:
        """Return a TOML file's tables, or none if it cannot be parsed."""
        try:
            return tomllib.loads(self.text(name))
        except (ValueError, RecursionError):
            return {}

    def json(self, name: str) -> dict[str, Any]:
        """Return a JSON file's object, or an empty one if it has none."""
        try:
            data = json.loads(self.text(name) or "{}")
        except (ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def ini(self, name: str) -> dict[str, dict[str, str]]:
        """Return the sections of an INI file, or none if it cannot be parsed."""
        if name not in self._inis:
            self._inis[name] = parse_ini(self.text(name))
        return self._inis[name]

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """The content of `pyproject.toml`."""
        return self.toml("pyproject.toml")

    @cached_property
    def package_json(self) -> dict[str, Any]:
        """The content of `package.json`."""
        return self.json("package.json")


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Return the sections of an INI text, or none if it cannot be parsed or is too long."""
    if len(text) > MAX_INI_BYTES:
        return {}
    parser = configparser.RawConfigParser(
        strict=False, allow_no_value=True, delimiters=("=", ":"), inline_comment_prefixes=None
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except (configparser.Error, RecursionError):
        return {}
    return {section: {key: value or "" for key, value in parser.items(section)} for section in parser.sections()}


def table(value: Any, *keys: str) -> dict[str, Any]:
    """Return a table within tables, or an empty one if any key is missing or not a table."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def strings_in(value: Any) -> list[str]:
    """Return the strings in a list, or none if the value is not a list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def requirement_name(requirement: str) -> str:
    """Return the normalized name of a requirement such as `Django>=5.2`."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""
