"""Return what a command runs according to files of the repository: scripts of package.json, recipes of a Makefile, tox.ini, shell scripts.

Used only to decide which tools need not be run a second time; nothing is run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent_orchestrator.base.files.safe import read_regular_file

_WORDS = re.compile(r"[^\s;&|<>()'\"`=]+")
_SEPARATORS = re.compile(r"&&|\|\||[;|\n]")
_NPM = frozenset({"npm", "pnpm", "yarn", "bun"})
_TASK_FILES = {
    "tox": ("tox.ini", "pyproject.toml"),
    "nox": ("noxfile.py",),
    "pre-commit": (".pre-commit-config.yaml",),
} | {
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "hatch": ("pyproject.toml", "hatch.toml"),
    "invoke": ("tasks.py",),
    "pdm": ("pyproject.toml",),
    "poe": ("pyproject.toml",),
}
"""Programs whose tasks are in a file; the whole file counts."""
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_TARGET = re.compile(r"^(?P<names>[\w./ -]+?)\s*::?(?!=)(?P<needs>[^#;]*)(?:;(?P<recipe>.*))?")
_MAX_DEPTH = 6
_MAX_FILE_SIZE = 200_000


def mentioned_programs(text: str, names: Iterable[str]) -> set[str]:
    """Return which of these program names occur in a text."""
    words = {word.rpartition("/")[2] for word in _WORDS.findall(text)}
    return {name for name in names if name in words}


def expand_command(top: Path, command: str, scripts: Mapping[str, str], depth: int = 0) -> str:
    """Return a command with the text of everything that it runs from the repository's files."""
    parts = [command]
    for part in _SEPARATORS.split(command) if depth < _MAX_DEPTH else ():
        words = _WORDS.findall(part)
        for index, word in enumerate(words):
            name = word.rpartition("/")[2]
            rest = words[index + 1 :]
            if name in _NPM and rest:
                script = rest[1] if rest[0] in ("run", "run-script") and len(rest) > 1 else rest[0]
                texts = [scripts.get(f"{hook}{script}", "") for hook in ("pre", "", "post")]
                parts += [expand_command(top, text, scripts, depth + 1) for text in texts if text]
            elif name in ("make", "gmake"):
                parts += [expand_command(top, text, scripts, depth + 1) for text in _recipes_of(top, rest)]
            elif name in _TASK_FILES:
                parts += [_read_text(top / file) for file in _TASK_FILES[name]]
            elif "/" in word or word.endswith((".sh", ".py")):
                parts += [_read_text(top / word)] if not word.startswith(("/", "-", "..")) else []
    return "\n".join(parts)


def _recipes_of(top: Path, words: list[str]) -> list[str]:
    """Return the recipes of these targets and of the targets that they need; without a target, those of the first one."""
    recipes, needs, first = _read_makefile(top)
    pending = [word for word in words if not word.startswith("-") and "=" not in word] or ([first] if first else [])
    visited: dict[str, None] = {}
    while pending:
        target = pending.pop()
        if target not in visited:
            visited[target] = None
            pending += needs.get(target, [])
    return ["\n".join(recipes[target]) for target in visited if target in recipes]


def _read_makefile(top: Path) -> tuple[dict[str, list[str]], dict[str, list[str]], str]:
    """Return the recipes and the needed targets of each target of the Makefile, and its first target."""
    recipes: dict[str, list[str]] = {}
    needs: dict[str, list[str]] = {}
    current: list[str] = []
    first = ""
    text = next((text for name in _MAKEFILES if (text := _read_text(top / name))), "")
    for line in text.replace("\\\n", " ").split("\n"):
        if line.startswith("\t"):
            for name in current:
                recipes[name].append(line.strip().lstrip("@-+"))
        elif match := _TARGET.match(line):
            current = match["names"].split()
            for name in current:
                recipes.setdefault(name, []).extend([match["recipe"]] if match["recipe"] else [])
                needs.setdefault(name, []).extend(match["needs"].split())
            first = first or next((name for name in current if not name.startswith(".")), "")
    return recipes, needs, first


def _read_text(file: Path) -> str:
    """Return the text of a file, or "" if it cannot be read."""
    try:
        return read_regular_file(file, _MAX_FILE_SIZE).decode(errors="replace") if file.is_file() else ""
    except OSError:
        return ""
