"""What a command runs, as far as files of the repository say so: scripts of package.json, recipes of a Makefile, tox.ini, shell scripts.

Only tells which tools need not be run a second time; nothing is run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent_orchestrator.base.files.safe import read_plain

_WORDS = re.compile(r"[^\s;&|<>()'\"`=]+")
_SPLIT = re.compile(r"&&|\|\||[;|\n]")
_NPM = frozenset({"npm", "pnpm", "yarn", "bun"})
_FILES = {"tox": ("tox.ini", "pyproject.toml"), "nox": ("noxfile.py",), "pre-commit": (".pre-commit-config.yaml",)} | {
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "hatch": ("pyproject.toml", "hatch.toml"),
    "invoke": ("tasks.py",),
    "pdm": ("pyproject.toml",),
    "poe": ("pyproject.toml",),
}
"""Programs whose tasks are in a file: all of it counts."""
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_TARGET = re.compile(r"^(?P<names>[\w./ -]+?)\s*::?(?!=)(?P<needs>[^#;]*)(?:;(?P<recipe>.*))?")
_DEEPEST = 6
_LARGEST = 200_000


def mentioned(text: str, names: Iterable[str]) -> set[str]:
    """Return which of these programs stand in a text."""
    words = {word.rpartition("/")[2] for word in _WORDS.findall(text)}
    return {name for name in names if name in words}


def full_text(top: Path, command: str, scripts: Mapping[str, str], depth: int = 0) -> str:
    """Return a command with the text of everything that it runs from the repository's files."""
    parts = [command]
    for part in _SPLIT.split(command) if depth < _DEEPEST else ():
        words = _WORDS.findall(part)
        for number, word in enumerate(words):
            name = word.rpartition("/")[2]
            rest = words[number + 1 :]
            if name in _NPM and rest:
                script = rest[1] if rest[0] in ("run", "run-script") and len(rest) > 1 else rest[0]
                texts = [scripts.get(f"{hook}{script}", "") for hook in ("pre", "", "post")]
                parts += [full_text(top, text, scripts, depth + 1) for text in texts if text]
            elif name in ("make", "gmake"):
                parts += [full_text(top, text, scripts, depth + 1) for text in _recipes(top, rest)]
            elif name in _FILES:
                parts += [_text(top / file) for file in _FILES[name]]
            elif "/" in word or word.endswith((".sh", ".py")):
                parts += [_text(top / word)] if not word.startswith(("/", "-", "..")) else []
    return "\n".join(parts)


def _recipes(top: Path, words: list[str]) -> list[str]:
    """The recipes of these targets and of what they need; the first target's where none is named."""
    recipes, needs, first = _read_makefile(top)
    wanted = [word for word in words if not word.startswith("-") and "=" not in word] or ([first] if first else [])
    seen: dict[str, None] = {}
    while wanted:
        target = wanted.pop()
        if target not in seen:
            seen[target] = None
            wanted += needs.get(target, [])
    return ["\n".join(recipes[target]) for target in seen if target in recipes]


def _read_makefile(top: Path) -> tuple[dict[str, list[str]], dict[str, list[str]], str]:
    recipes: dict[str, list[str]] = {}
    needs: dict[str, list[str]] = {}
    current: list[str] = []
    first = ""
    text = next((text for name in _MAKEFILES if (text := _text(top / name))), "")
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


def _text(file: Path) -> str:
    try:
        return read_plain(file, _LARGEST).decode(errors="replace") if file.is_file() else ""
    except OSError:
        return ""
