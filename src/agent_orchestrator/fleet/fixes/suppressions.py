"""Failures that are silenced instead of mended: comments and marks that tell a tool to look away, and the tools' own settings.

Both are counted at the base and at the fix: more of the former, or another of the latter, is no fix.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import read_plain

MARKS = {
    "# type: ignore": r"#\s*type:\s*ignore",
    "# noqa": r"#\s*(?:ruff:\s*|flake8:\s*)?noqa",
    "# mypy: ignore-errors": r"#\s*mypy:\s*(?:ignore-errors|disable-error-code)",
    "# pyright: ignore": r"#\s*pyright:\s*(?:ignore|basic)",
    "@no_type_check": r"@(?:typing\.)?no_type_check\b",
    "pytest skip or xfail": r"pytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip)\b|unittest\.(?:skip|expectedFailure)",
    "eslint-disable": r"eslint-disable",
    "@ts-ignore": r"@ts-(?:ignore|expect-error|nocheck)",
    "skipped or exclusive test": r"\b(?:it|test|describe)\.(?:skip|todo|only|fails)\b|\bx(?:it|describe|test)\s*\(",
    "t.Skip": r"\bt\.Skip(?:f|Now)?\(",
    "nolint": r"//\s*nolint",
    "#[ignore]": r"#\[ignore\b",
    "#[allow]": r"#!?\[(?:allow|expect)\(",
}
"""What silences a tool, by what it is called."""

_MARKS = [(name, re.compile(pattern)) for name, pattern in MARKS.items()]
_CODE = re.compile(r"\.(?:py|pyi|js|mjs|cjs|jsx|ts|tsx|mts|cts|vue|svelte|go|rs)$")
_SETTINGS = re.compile(
    r"(?:^|/)(?:\.?ruff\.toml|\.?mypy\.ini|\.?pytest\.ini|tox\.ini|setup\.cfg|\.flake8|\.coveragerc|eslint\.config\.\w+|\.eslintrc(?:\.\w+)?"
    r"|\.eslintignore|tsconfig[\w.-]*\.json|(?:jest|vitest)\.config\.\w+|clippy\.toml|\.golangci\.ya?ml)$"
)
_PARTS = {"pyproject.toml": ("ruff", "mypy", "pytest", "coverage"), "Cargo.toml": ("lints",)}
_OF_PACKAGE = ("jest", "eslintConfig", "scripts")
LARGEST = 2 << 20


def silenced(top: Path, files: Iterable[str]) -> dict[str, int]:
    """How often each mark stands in the project's code."""
    counts: Counter[str] = Counter()
    for name in files:
        if not _CODE.search(name):
            continue
        text = _text(top / name)
        for mark, pattern in _MARKS:
            if found := len(pattern.findall(text)):
                counts[mark] += found
    return dict(counts)


def settings(top: Path, files: Iterable[str]) -> dict[str, str]:
    """What the files say to the tools, as digests; of shared files only the part that is the tools'."""
    found: dict[str, str] = {}
    for name in files:
        base = name.rpartition("/")[2]
        text = _text(top / name) if _SETTINGS.search(name) or base in _PARTS or base == "package.json" else ""
        if not text:
            continue
        if base in _PARTS:
            part = _part_of_toml(text, _PARTS[base], "tool" if base == "pyproject.toml" else "")
        elif base == "package.json":
            part = _part_of_package(text)
        else:
            part = text
        if part:
            found[name] = hashlib.sha256(part.encode()).hexdigest()[:16]
    return found


def _part_of_toml(text: str, names: tuple[str, ...], table: str) -> str:
    try:
        data: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ""  # the tools themselves will complain
    data = (data.get(table) or {}) if table else data
    return json.dumps({name: data[name] for name in names if name in data}, sort_keys=True, default=str)


def _part_of_package(text: str) -> str:
    try:
        data = json.loads(text)
    except ValueError:
        return ""
    if not isinstance(data, dict):
        return ""
    return json.dumps({name: data[name] for name in _OF_PACKAGE if name in data}, sort_keys=True)


def _text(file: Path) -> str:
    try:
        return read_plain(file, LARGEST).decode(errors="replace")
    except OSError:
        return ""
