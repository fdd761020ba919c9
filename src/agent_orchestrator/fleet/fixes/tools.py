"""Recognize which tool a command runs, and change the command so that the tool writes a report, without changing its exit code.

Look here to add a tool.

A command belongs to a known tool if it is simple (no shell operators except an activation at the beginning) and starts with the tool's
name, possibly after a runner (`uv run pytest -q`, `python -m mypy src`, `npx eslint .`, `npm test`). Any other command is run unchanged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent_orchestrator.fleet.fixes.model import CheckTool
from agent_orchestrator.fleet.fixes.parsers import compiled, node, python, unknown_command
from agent_orchestrator.fleet.fixes.parsers.common import ParseResult, ToolOutput

_PLAIN_WORD = r"[^\s;&|<>`()$*?]+"
_SHELL_SETUP = re.compile(
    rf"\s*(?:(?:(?:\.|source)\s+{_PLAIN_WORD}/activate|export(?:\s+[A-Za-z_]\w*={_PLAIN_WORD})+|set\s+-\w+)\s*(?:&&|;)\s*)+"
)
"""Commands that only prepare the shell: they activate an environment, export variables or set options."""
_OPERATORS = re.compile(r"[;&|<>`\n()]|\$\(|\$\{")
_SHELL_EXPANSION = re.compile(r"""^~|^(?!["']).*[*?]|^(?!').*\$""")
"""Matches a word that the shell replaces."""
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
_RUNNER_OPTIONS_WITH_VALUE = frozenset({"--extra", "--group", "--with", "--python", "--package"})
"""Options of `uv run` and similar runners that take a value."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_KINDS_BY_PROGRAM = {
    "pytest": "pytest",
    "py.test": "pytest",
    "ruff": "ruff",
    "mypy": "mypy",
    "eslint": "eslint",
    "tsc": "tsc",
} | {
    "jest": "jest",
    "vitest": "vitest",
    "go": "go",
    "cargo": "cargo",
}
_SUBCOMMANDS = {"ruff": ("check",), "go": ("test",), "cargo": ("test", "t")}
_VERDICT_CHANGING_OPTIONS = frozenset(
    {"--fix", "--unsafe-fixes", "--fix-only", "--exit-zero", "--exit-non-zero-on-fix", "--fix-dry-run"}
)
"""Options that make a linter's exit code disagree with its report."""
_SCRIPT_RUNNERS = ("npm", "pnpm", "yarn", "bun")


@dataclass(frozen=True, slots=True)
class ToolCommand:
    """One way to run a tool."""

    command: str
    """The command for the shell."""
    report: str = ""
    """The file that the tool writes its report to; "" if it prints all results."""
    plain: bool = False
    """The command is unchanged, and its output is read like that of an unknown command."""


@dataclass(frozen=True, slots=True)
class _ToolPosition:
    """Where in a command a known tool is."""

    kind: str
    before: str
    words: list[str]
    number: int
    """The index of the tool's name in `words`."""


Parser = Callable[[ToolOutput], ParseResult]
PARSERS: Mapping[str, Parser] = {
    "pytest": python.parse_pytest,
    "ruff": python.parse_ruff,
    "mypy": python.parse_mypy,
    "eslint": node.parse_eslint,
    "tsc": node.parse_tsc,
    "jest": node.parse_jest,
    "vitest": node.parse_jest,
    "go": compiled.parse_go,
    "cargo": compiled.parse_cargo,
    "command": unknown_command.parse_command,
}
TEST_TOOLS = frozenset({"pytest", "jest", "vitest", "go", "cargo"})


def tool_kind_of(command: str, scripts: Mapping[str, str] | None = None) -> str:
    """Return the kind of tool that a command runs; `command` if it is not known."""
    position = _find_tool(command) or _find_tool(script_text(command, scripts or {}))
    return position.kind if position else "command"


def script_text(command: str, scripts: Mapping[str, str]) -> str:
    """Return the script of package.json that a command runs (`npm test`, `npm run lint`), or "".

    A script with a `pre` or `post` script is not returned: npm runs these too, but its text alone does not.
    """
    words = command.split()
    if len(words) < 2 or words[0] not in _SCRIPT_RUNNERS:
        return ""
    has_run_word = words[1] in ("run", "run-script")
    name = words[2] if has_run_word and len(words) > 2 else words[1]
    if len(words) != (3 if has_run_word else 2) or f"pre{name}" in scripts or f"post{name}" in scripts:
        return ""
    return scripts.get(name, "")


def _find_tool(command: str) -> _ToolPosition | None:
    """Return the known tool that a command starts with, or None if there is none."""
    setup = _SHELL_SETUP.match(command)
    before = setup[0] if setup else ""
    rest = command[len(before) :]
    if not rest.strip() or _OPERATORS.search(rest):
        return None
    try:
        words = shlex.split(rest)
        expanded = any(_SHELL_EXPANSION.match(word) for word in shlex.split(rest, posix=False))
    except ValueError:
        return None
    is_value = False
    for index, word in enumerate(words) if not expanded else ():
        name = word.rpartition("/")[2]
        if is_value:
            is_value = False
        elif name in _KINDS_BY_PROGRAM:
            kind = _KINDS_BY_PROGRAM[name]
            subcommands = _SUBCOMMANDS.get(kind)
            has_subcommand = subcommands is None or (len(words) > index + 1 and words[index + 1] in subcommands)
            return _ToolPosition(kind, before, words, index) if has_subcommand else None
        elif word in _RUNNER_OPTIONS_WITH_VALUE:
            is_value = True
        elif name not in _RUNNERS and not _ASSIGNMENT.fullmatch(word) and not re.fullmatch(r"python3?\.\d+", name):
            return None
    return None


def tool_commands(tool: CheckTool, report: str, scripts: Mapping[str, str] | None = None) -> list[ToolCommand]:
    """Return how to run a tool, the best way first and the unchanged command last, for versions that support none of the others."""
    plain = ToolCommand(tool.command, plain=True)
    if tool.kind == "command":
        return [plain]
    position = _find_tool(tool.command)
    if position is None:
        script_options = _SCRIPT_OPTIONS.get(tool.kind)
        script = script_text(tool.command, scripts or {})
        if script_options is None or not script or not _VERDICT_CHANGING_OPTIONS.isdisjoint(script.split()):
            return [plain]
        options, report_file = script_options(report)
        words = tool.command.split()
        separators = ["--silent", "--"] if words[0] == "npm" else []
        return [ToolCommand(_join_words([*words, *separators, *options]), report_file), plain]
    if not _VERDICT_CHANGING_OPTIONS.isdisjoint(position.words):
        return [plain]
    older_commands = _OLDER_VERSIONS.get(position.kind)
    attempts = [
        _REPORT_COMMANDS[position.kind](position.words, position.number, report),
        *(older_commands(position.words, position.number) if older_commands else []),
    ]
    return [*(ToolCommand(f"{position.before}{attempt.command}", attempt.report) for attempt in attempts), plain]


def _join_words(words: list[str]) -> str:
    """Return a shell command of these words."""
    return shlex.join(words)


def _remove_options(words: list[str], *flags: str) -> list[str]:
    """Return the words without these options; one that ends in `=` takes a value."""
    remaining: list[str] = []
    is_value = False
    for word in words:
        if is_value:
            is_value = False
            continue
        name = word.partition("=")[0]
        if f"{name}=" in flags:
            is_value = "=" not in word
        elif word not in flags:
            remaining.append(word)
    return remaining


def _pytest(words: list[str], _number: int, report: str) -> ToolCommand:
    """Return the pytest command that writes a JUnit report."""
    return ToolCommand(
        _join_words([*_remove_options(words, "--junitxml=", "--junit-xml=", "--tb="), *pytest_options(report)]), report
    )


def pytest_options(report: str) -> list[str]:
    """Return the options for a JUnit report with short tracebacks, in which a file that cannot be imported hides no other."""
    return ["-o", "junit_family=xunit1", f"--junitxml={report}", "--continue-on-collection-errors", "--tb=short"]


def _ruff(words: list[str], index: int, _report: str) -> ToolCommand:
    """Return the ruff command that prints JSON."""
    head, rest = words[: index + 2], words[index + 2 :]
    rest = _remove_options(rest, "--output-format=", "--quiet", "-q", "--statistics")
    return ToolCommand(_join_words([*head, "--output-format", "json", *rest]))


def _mypy(words: list[str], index: int, _report: str) -> ToolCommand:
    """Return the mypy command that prints JSON."""
    head, rest = words[: index + 1], words[index + 1 :]
    return ToolCommand(_join_words([*head, "--output", "json", *_remove_options(rest, "--output=", "-O=")]))


def _mypy_text(words: list[str], index: int) -> list[ToolCommand]:
    """Return the mypy command that prints text, for versions without JSON output."""
    return [ToolCommand(_join_words([*words[: index + 1], "--no-pretty", "--show-error-codes", *words[index + 1 :]]))]


def _eslint(words: list[str], _number: int, _report: str) -> ToolCommand:
    """Return the eslint command that prints JSON."""
    return ToolCommand(_join_words([*_remove_options(words, "-f=", "--format="), "-f", "json"]))


def _tsc(words: list[str], _number: int, _report: str) -> ToolCommand:
    """Return the tsc command that prints text without colors."""
    return ToolCommand(_join_words([*_remove_options(words, "--pretty="), "--pretty", "false"]))


def _jest(words: list[str], _number: int, report: str) -> ToolCommand:
    """Return the jest command that writes a JSON report."""
    words = _remove_options(words, "--watch", "--watchAll", "--outputFile=")
    return ToolCommand(_join_words([*words, "--json", f"--outputFile={report}"]), report)


def _vitest(words: list[str], index: int, report: str) -> ToolCommand:
    """Return the vitest command that runs once and writes a JSON report."""
    head, rest = words[: index + 1], [word for word in words[index + 1 :] if word not in ("run", "watch", "dev")]
    rest = _remove_options(rest, "--watch", "-w", "--reporter=", "--outputFile=")
    return ToolCommand(_join_words([*head, "run", *rest, "--reporter=json", f"--outputFile={report}"]), report)


def _go(words: list[str], index: int, _report: str) -> ToolCommand:
    """Return the `go test` command that prints JSON."""
    return ToolCommand(
        _join_words([*words[: index + 2], "-json", *_remove_options(words[index + 2 :], "-json", "-v", "-failfast")])
    )


def _cargo(words: list[str], index: int, _report: str) -> ToolCommand:
    """Return the `cargo test` command that prints JSON and continues after a failure."""
    rest = _remove_options(words[index + 2 :], "--no-fail-fast", "--message-format=", "-q", "--quiet")
    return ToolCommand(_join_words([*words[: index + 2], "--no-fail-fast", "--message-format", "json", *rest]))


_REPORT_COMMANDS: Mapping[str, Callable[[list[str], int, str], ToolCommand]] = {
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
_OLDER_VERSIONS: Mapping[str, Callable[[list[str], int], list[ToolCommand]]] = {"mypy": _mypy_text}
_SCRIPT_OPTIONS: Mapping[str, Callable[[str], tuple[list[str], str]]] = {
    "eslint": lambda _: (["-f", "json"], ""),
    "tsc": lambda _: (["--pretty", "false"], ""),
    "jest": lambda report: (["--json", f"--outputFile={report}"], report),
    "vitest": lambda report: (["--reporter=json", f"--outputFile={report}"], report),
}
"""Options to add to a script of package.json, and the report file that is written then."""
