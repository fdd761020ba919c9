"""Which tool a command runs, and how that tool is asked for a report without changing its verdict.

A command is a known tool's if it is simple (no shell operators but an activation in front) and starts with the tool's name, perhaps
behind something that runs it (`uv run pytest -q`, `python -m mypy src`, `npx eslint .`, `npm test`). Anything else is run as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent_orchestrator.fleet.fixes.model import Tool
from agent_orchestrator.fleet.fixes.parsers import compiled, node, python, text
from agent_orchestrator.fleet.fixes.parsers.common import Found, Said

_PLAIN_WORD = r"[^\s;&|<>`()$*?]+"
_BEFORE = re.compile(
    rf"\s*(?:(?:(?:\.|source)\s+{_PLAIN_WORD}/activate|export(?:\s+[A-Za-z_]\w*={_PLAIN_WORD})+|set\s+-\w+)\s*(?:&&|;)\s*)+"
)
"""What only prepares the shell: an activated environment, exported variables."""
_OPERATORS = re.compile(r"[;&|<>`\n()]|\$\(|\$\{")
_EXPANDED = re.compile(r"""^~|^(?!["']).*[*?]|^(?!').*\$""")
"""A word that the shell replaces by others."""
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
    | {"--no-install", "--", "env", "--frozen", "--no-sync", "--locked", "--all-extras", "--all-groups"}
)
_WITH_VALUE = frozenset({"--extra", "--group", "--with", "--python", "--package"})
"""Options of `uv run` and the like that take a value."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_NAMES = {"pytest": "pytest", "py.test": "pytest", "ruff": "ruff", "mypy": "mypy", "eslint": "eslint", "tsc": "tsc"} | {
    "jest": "jest",
    "vitest": "vitest",
    "go": "go",
    "cargo": "cargo",
}
_SUBCOMMANDS = {"ruff": ("check",), "go": ("test",), "cargo": ("test", "t")}
_OTHER_VERDICT = frozenset(
    {"--fix", "--unsafe-fixes", "--fix-only", "--exit-zero", "--exit-non-zero-on-fix", "--fix-dry-run"}
)
"""Options by which a linter's exit code says something else than its report."""
_NPM = ("npm", "pnpm", "yarn", "bun")


@dataclass(frozen=True, slots=True)
class Asking:
    """One way to run a tool."""

    command: str
    """For the shell."""
    report: str = ""
    """The file that it is to write its report to, beside what it prints."""
    plain: bool = False
    """It is the command itself; what it prints is read as that of any command."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a command a known tool is."""

    kind: str
    before: str
    words: list[str]
    number: int
    """Of the tool's name among the words."""


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
    """Return the kind of tool that a command runs; `command` where that is not known."""
    at = _place(command) or _place(script_text(command, scripts or {}))
    return at.kind if at else "command"


def script_text(command: str, scripts: Mapping[str, str]) -> str:
    """Return the script of package.json that a command runs (`npm test`, `npm run lint`), or an empty string.

    A script that others run before or after is none: npm runs them, its text alone does not.
    """
    words = command.split()
    if len(words) < 2 or words[0] not in _NPM:
        return ""
    runs = words[1] in ("run", "run-script")
    name = words[2] if runs and len(words) > 2 else words[1]
    if len(words) != (3 if runs else 2) or f"pre{name}" in scripts or f"post{name}" in scripts:
        return ""
    return scripts.get(name, "")


def _place(command: str) -> _Place | None:
    """Find the tool in a command that starts with it."""
    prepared = _BEFORE.match(command)
    before = prepared[0] if prepared else ""
    rest = command[len(before) :]
    if not rest.strip() or _OPERATORS.search(rest):
        return None
    try:
        words = shlex.split(rest)
        expanded = any(_EXPANDED.match(word) for word in shlex.split(rest, posix=False))
    except ValueError:
        return None
    skipped = False
    for number, word in enumerate(words) if not expanded else ():
        name = word.rpartition("/")[2]
        if skipped:
            skipped = False
        elif name in _NAMES:
            kind = _NAMES[name]
            wanted = _SUBCOMMANDS.get(kind)
            fits = wanted is None or (len(words) > number + 1 and words[number + 1] in wanted)
            return _Place(kind, before, words, number) if fits else None
        elif word in _WITH_VALUE:
            skipped = True
        elif name not in _RUNNERS and not _ASSIGNMENT.fullmatch(word) and not re.fullmatch(r"python3?\.\d+", name):
            return None
    return None


def asking(tool: Tool, report: str, scripts: Mapping[str, str] | None = None) -> list[Asking]:
    """Return how to run a tool, the best way first, the command itself last: the next is for one that does not know this way."""
    plain = Asking(tool.command, plain=True)
    if tool.kind == "command":
        return [plain]
    at = _place(tool.command)
    if at is None:
        more = _MORE.get(tool.kind)
        script = script_text(tool.command, scripts or {})
        if more is None or not script or not _OTHER_VERDICT.isdisjoint(script.split()):
            return [plain]
        options, written = more(report)
        words = tool.command.split()
        between = ["--silent", "--"] if words[0] == "npm" else []
        return [Asking(_joined([*words, *between, *options]), written), plain]
    if not _OTHER_VERDICT.isdisjoint(at.words):
        return [plain]
    older = _OLDER.get(at.kind)
    ways = [_ASKING[at.kind](at.words, at.number, report), *(older(at.words, at.number) if older else [])]
    return [*(Asking(f"{at.before}{way.command}", way.report) for way in ways), plain]


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
    return Asking(_joined([*_without(words, "--junitxml=", "--junit-xml=", "--tb="), *pytest_options(report)]), report)


def pytest_options(report: str) -> list[str]:
    """Return the options that have pytest write a report: a file that cannot be imported hides no other, tracebacks are short."""
    return ["-o", "junit_family=xunit1", f"--junitxml={report}", "--continue-on-collection-errors", "--tb=short"]


def _ruff(words: list[str], number: int, _report: str) -> Asking:
    head, rest = words[: number + 2], words[number + 2 :]
    rest = _without(rest, "--output-format=", "--quiet", "-q", "--statistics")
    return Asking(_joined([*head, "--output-format", "json", *rest]))


def _mypy(words: list[str], number: int, _report: str) -> Asking:
    head, rest = words[: number + 1], words[number + 1 :]
    return Asking(_joined([*head, "--output", "json", *_without(rest, "--output=", "-O=")]))


def _mypy_text(words: list[str], number: int) -> list[Asking]:
    return [Asking(_joined([*words[: number + 1], "--no-pretty", "--show-error-codes", *words[number + 1 :]]))]


def _eslint(words: list[str], _number: int, _report: str) -> Asking:
    return Asking(_joined([*_without(words, "-f=", "--format="), "-f", "json"]))


def _tsc(words: list[str], _number: int, _report: str) -> Asking:
    return Asking(_joined([*_without(words, "--pretty="), "--pretty", "false"]))


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
_MORE: Mapping[str, Callable[[str], tuple[list[str], str]]] = {
    "eslint": lambda _: (["-f", "json"], ""),
    "tsc": lambda _: (["--pretty", "false"], ""),
    "jest": lambda report: (["--json", f"--outputFile={report}"], report),
    "vitest": lambda report: (["--reporter=json", f"--outputFile={report}"], report),
}
"""Options at the end of a script of package.json, and the file that is written then."""
