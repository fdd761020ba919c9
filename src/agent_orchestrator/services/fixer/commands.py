"""How each tool is asked for a report that a program can read, and which tool a command is.

A command is a known tool's if it is simple (no shell operators) and starts with the tool's name, perhaps behind something that runs
it (`uv run pytest -q`, `python -m mypy src`, `npx eslint .`). Anything else is run as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent_orchestrator.services.fixer.model import Tool
from agent_orchestrator.services.fixer.parsing import compiled, node, python, text
from agent_orchestrator.services.fixer.parsing.common import Found, Said

_OPERATORS = re.compile(r"[;&|<>`\n()]|\$\(|\$\{")
_RUNNERS = frozenset(
    {
        "uv",
        "run",
        "poetry",
        "pdm",
        "hatch",
        "rye",
        "pipenv",
        "python",
        "python3",
        "-m",
        "npx",
        "pnpm",
        "yarn",
        "bunx",
        "exec",
    }
    | {"--no-install", "--", "env", "--frozen", "--no-sync", "--locked"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_NAMES = {"pytest": "pytest", "py.test": "pytest", "ruff": "ruff", "mypy": "mypy", "eslint": "eslint", "tsc": "tsc"} | {
    "jest": "jest",
    "vitest": "vitest",
    "go": "go",
    "cargo": "cargo",
}
_SUBCOMMANDS = {"ruff": ("check",), "go": ("test",), "cargo": ("test", "t")}


@dataclass(frozen=True, slots=True)
class Asking:
    """One way to run a tool."""

    command: str
    """For the shell."""
    report: str = ""
    """The file that it is to write its report to, beside what it prints."""


Parser = Callable[[Said], Found]
PARSERS: Mapping[str, Parser] = {
    "pytest": python.pytest,
    "ruff": python.ruff,
    "mypy": python.mypy,
    "eslint": node.eslint,
    "tsc": node.tsc,
    "jest": node.jest,
    "vitest": node.jest,
    "go": compiled.go,
    "cargo": compiled.cargo,
    "command": text.command,
}
TEST_TOOLS = frozenset({"pytest", "jest", "vitest", "go", "cargo"})


def recognised(command: str, scripts: Mapping[str, str] | None = None) -> str:
    """The kind of tool that a command runs; `command` where that is not known."""
    at = _place(command, scripts or {})
    return at[0] if at else "command"


def resolved(command: str, scripts: Mapping[str, str]) -> str:
    """The command that a script of package.json stands for (`npm test`, `npm run lint`); any other stays as it is."""
    words = command.split()
    if len(words) >= 2 and words[0] in ("npm", "pnpm", "yarn", "bun"):
        name = words[2] if words[1] == "run" and len(words) > 2 else words[1]
        if name in scripts and len(words) == (3 if words[1] == "run" else 2):
            return scripts[name]
    return command


def _place(command: str, scripts: Mapping[str, str]) -> tuple[str, list[str], int] | None:
    """Kind, words, and where among them the tool's name is."""
    command = resolved(command, scripts)
    if _OPERATORS.search(command):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name in _NAMES:
            kind = _NAMES[name]
            wanted = _SUBCOMMANDS.get(kind)
            return (
                (kind, words, number)
                if wanted is None or words[number + 1 : number + 2] in [[w] for w in wanted]
                else None
            )
        if name not in _RUNNERS and not _ASSIGNMENT.fullmatch(word) and not re.fullmatch(r"python3?\.\d+", name):
            return None
    return None


def asking(tool: Tool, report: str, scripts: Mapping[str, str] | None = None) -> list[Asking]:
    """How to run it, the best way first; the next one is for a version that does not know it."""
    at = _place(tool.command, scripts or {}) if tool.kind != "command" else None
    if at is None:
        return [Asking(tool.command)]
    kind, words, number = at
    older = _OLDER.get(kind)
    return [_ASKING[kind](words, number, report), *(older(words, number) if older else [])]


def _joined(words: list[str]) -> str:
    return shlex.join(words)


def _without(words: list[str], *flags: str) -> list[str]:
    """The words without these options; one that ends in `=` takes a value."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        name = word.partition("=")[0]
        if f"{name}=" in flags:
            skip = "=" not in word
        elif word not in flags:
            kept.append(word)
    return kept


def _pytest(words: list[str], _number: int, report: str) -> Asking:
    # A file that cannot be imported hides no other, and tracebacks are short enough to be read by a program.
    more = ["-o", "junit_family=xunit1", f"--junitxml={report}", "--continue-on-collection-errors", "--tb=short"]
    return Asking(_joined([*_without(words, "--junitxml=", "--junit-xml=", "--tb="), *more]), report)


def _ruff(words: list[str], number: int, _report: str) -> Asking:
    head, rest = words[: number + 2], words[number + 2 :]
    rest = _without(rest, "--output-format=", "--fix", "--unsafe-fixes", "--exit-zero", "--quiet", "-q", "--statistics")
    return Asking(_joined([*head, "--output-format", "json", "--no-fix", *rest]))


def _mypy(words: list[str], number: int, _report: str) -> Asking:
    head, rest = words[: number + 1], words[number + 1 :]
    return Asking(_joined([*head, "--output", "json", *_without(rest, "--output=", "-O=")]))


def _mypy_text(words: list[str], number: int) -> list[Asking]:
    return [Asking(_joined([*words[: number + 1], "--no-pretty", "--show-error-codes", *words[number + 1 :]]))]


def _eslint(words: list[str], _number: int, _report: str) -> Asking:
    return Asking(_joined([*_without(words, "-f=", "--format=", "--fix", "--quiet"), "-f", "json"]))


def _tsc(words: list[str], _number: int, _report: str) -> Asking:
    build = any(word in ("-b", "--build") for word in words)
    return Asking(
        _joined([*_without(words, "--watch", "-w", "--pretty="), *([] if build else ["--noEmit"]), "--pretty", "false"])
    )


def _jest(words: list[str], _number: int, report: str) -> Asking:
    words = _without(words, "--watch", "--watchAll", "--outputFile=")
    return Asking(_joined([*words, "--json", f"--outputFile={report}"]), report)


def _vitest(words: list[str], number: int, report: str) -> Asking:
    head, rest = words[: number + 1], [word for word in words[number + 1 :] if word not in ("run", "watch", "dev")]
    rest = _without(rest, "--watch", "-w", "--reporter=", "--outputFile=")
    return Asking(_joined([*head, "run", *rest, "--reporter=json", f"--outputFile={report}"]), report)


def _go(words: list[str], number: int, _report: str) -> Asking:
    return Asking(_joined([*words[: number + 2], "-json", *_without(words[number + 2 :], "-json", "-v", "-failfast")]))


def _cargo(words: list[str], number: int, _report: str) -> Asking:
    rest = _without(words[number + 2 :], "--no-fail-fast", "--message-format=", "-q", "--quiet")
    return Asking(_joined([*words[: number + 2], "--no-fail-fast", "--message-format", "json", *rest]))


_ASKING: Mapping[str, Callable[[list[str], int, str], Asking]] = {
    "pytest": _pytest,
    "ruff": _ruff,
    "mypy": _mypy,
    "eslint": _eslint,
    "tsc": _tsc,
    "jest": _jest,
    "vitest": _vitest,
    "go": _go,
    "cargo": _cargo,
}
_OLDER: Mapping[str, Callable[[list[str], int], list[Asking]]] = {"mypy": _mypy_text}
