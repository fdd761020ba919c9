"""Find failures that are silenced instead of fixed: by comments and marks that make a tool skip code, or by the tools' own settings.

Both are compared between the base and the fix: more marks or other settings are no fix. Look here to add a mark or a settings file.
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

from agent_orchestrator.base.files.safe import read_regular_file

SUPPRESSION_MARKS = {
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
"""Name → pattern of each mark that silences a tool."""

_MARK_PATTERNS = [(name, re.compile(pattern)) for name, pattern in SUPPRESSION_MARKS.items()]
_CODE_FILE = re.compile(r"\.(?:py|pyi|js|mjs|cjs|jsx|ts|tsx|mts|cts|vue|svelte|go|rs)$")
_SETTINGS_FILE = re.compile(
    r"(?:^|/)(?:\.?ruff\.toml|\.?mypy\.ini|\.?pytest\.ini|tox\.ini|setup\.cfg|\.flake8|\.coveragerc|eslint\.config\.\w+|\.eslintrc(?:\.\w+)?"
    r"|\.eslintignore|tsconfig[\w.-]*\.json|(?:jest|vitest)\.config\.\w+|clippy\.toml|\.golangci\.ya?ml)$"
)
_TOML_TABLES = {"pyproject.toml": ("ruff", "mypy", "pytest", "coverage"), "Cargo.toml": ("lints",)}
_PACKAGE_KEYS = ("jest", "eslintConfig", "scripts")
MAX_FILE_BYTES = 2 << 20


def count_marks(top: Path, files: Iterable[str]) -> dict[str, int]:
    """Return how often each mark occurs in the project's code."""
    counts: Counter[str] = Counter()
    for name in files:
        if not _CODE_FILE.search(name):
            continue
        text = _read_text(top / name)
        for mark, pattern in _MARK_PATTERNS:
            if occurrences := len(pattern.findall(text)):
                counts[mark] += occurrences
    return dict(counts)


def settings_digests(top: Path, files: Iterable[str]) -> dict[str, str]:
    """Return a digest of the tool settings in each file; of files with other content too, only the tools' part counts."""
    digests: dict[str, str] = {}
    for name in files:
        file_name = name.rpartition("/")[2]
        text = (
            _read_text(top / name)
            if _SETTINGS_FILE.search(name) or file_name in _TOML_TABLES or file_name == "package.json"
            else ""
        )
        if not text:
            continue
        if file_name in _TOML_TABLES:
            tool_settings = _toml_settings(
                text, _TOML_TABLES[file_name], "tool" if file_name == "pyproject.toml" else ""
            )
        elif file_name == "package.json":
            tool_settings = _package_settings(text)
        else:
            tool_settings = text
        if tool_settings:
            digests[name] = hashlib.sha256(tool_settings.encode()).hexdigest()[:16]
    return digests


def _toml_settings(text: str, names: tuple[str, ...], table: str) -> str:
    """Return the settings of these tools in a TOML file as JSON, or "" if the file is malformed."""
    try:
        data: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ""  # the tools themselves report this error
    data = (data.get(table) or {}) if table else data
    return json.dumps({name: data[name] for name in names if name in data}, sort_keys=True, default=str)


def _package_settings(text: str) -> str:
    """Return the settings of tools in a package.json as JSON, or "" if it is malformed."""
    try:
        data = json.loads(text)
    except ValueError:
        return ""
    if not isinstance(data, dict):
        return ""
    return json.dumps({name: data[name] for name in _PACKAGE_KEYS if name in data}, sort_keys=True)


def _read_text(file: Path) -> str:
    """Return the text of a file, or "" if it cannot be read."""
    try:
        return read_regular_file(file, MAX_FILE_BYTES).decode(errors="replace")
    except OSError:
        return ""
