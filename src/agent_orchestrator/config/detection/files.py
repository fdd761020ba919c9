"""The files of a repository, read with bounds: their size, their number, and never through a link."""

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

from agent_orchestrator.base.files.safe import NotPlain, opened

MAX_SIZE = 256 << 10
MAX_INI = 64 << 10
MAX_NAMES = 6000
MAX_DEPTH = 5
_SKIPPED = frozenset(
    {"node_modules", "venv", "env", "dist", "build", "target", "site-packages", "vendor", "third_party", "__pycache__"}
)


class Repository:
    """A repository's folder, as far as detection reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._texts: dict[str, str] = {}
        self._inis: dict[str, dict[str, dict[str, str]]] = {}

    @cached_property
    def names(self) -> frozenset[str]:
        """The names in the top folder."""
        try:
            with os.scandir(self.root) as entries:
                return frozenset(entry.name for entry, _ in zip(entries, range(MAX_NAMES), strict=False))
        except OSError:
            return frozenset()

    @cached_property
    def tree(self) -> tuple[str, ...]:
        """The files below, those of the upper folders first; hidden, built and fetched ones left out."""
        return tuple(self._walk())

    def _walk(self) -> Iterator[str]:
        waiting: list[tuple[str, int]] = [("", 0)]
        seen = 0
        for folder, depth in waiting:
            try:
                with os.scandir(self.root / folder) as entries:
                    listed = sorted(
                        (
                            (e.name, e.is_dir(follow_symlinks=False))
                            for e, _ in zip(entries, range(MAX_NAMES), strict=False)
                        )
                    )
            except OSError:
                continue
            for name, is_folder in listed:
                seen += 1
                if seen > MAX_NAMES:
                    return
                path = f"{folder}/{name}" if folder else name
                if not is_folder:
                    yield path
                elif depth < MAX_DEPTH and not name.startswith(".") and name not in _SKIPPED:
                    waiting.append((path, depth + 1))

    def has(self, *names: str) -> str | None:
        """Return the first of these names that the top folder has."""
        return next((name for name in names if name in self.names), None)

    def listed(self, folder: str, most: int = 40) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        try:
            if (self.root / folder).is_symlink():
                return []
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry, _ in zip(entries, range(most), strict=False))
        except OSError:
            return []

    def text(self, name: str, most: int = MAX_SIZE) -> str:
        """Return a file's text; an empty one if it is not there, or no plain file."""
        if name not in self._texts:
            try:
                with opened(self.root, name) as file:
                    self._texts[name] = file.read(most).decode("utf-8-sig", errors="replace")
            except (OSError, NotPlain, ValueError):
                self._texts[name] = ""
        return self._texts[name]

    def toml(self, name: str) -> dict[str, Any]:
        """Return a TOML file's tables; none if it is no such file."""
        try:
            return tomllib.loads(self.text(name))
        except (ValueError, RecursionError):
            return {}

    def json(self, name: str) -> dict[str, Any]:
        """Return a JSON file's object; none if it is no such file."""
        try:
            found = json.loads(self.text(name) or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def ini(self, name: str) -> dict[str, dict[str, str]]:
        """Return the sections of an INI file; none if it is no such file."""
        if name not in self._inis:
            self._inis[name] = parse_ini(self.text(name))
        return self._inis[name]

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """`pyproject.toml`."""
        return self.toml("pyproject.toml")

    @cached_property
    def package(self) -> dict[str, Any]:
        """`package.json`."""
        return self.json("package.json")


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Return the sections of an INI text; none if it is no such text, or a long one."""
    if len(text) > MAX_INI:
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
    """Return a table within tables; an empty one if anything on the way is something else."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def texts(value: Any) -> list[str]:
    """Return the texts of a list; none if it is no list."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def requirement_name(requirement: str) -> str:
    """Return the name of a requirement such as `Django>=5.2`, normalized."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""
