"""Find what prevented a check from a verdict on the content: `missing_environment(output, outcome, exit_code=…)`. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from agent_orchestrator.changes.checks.outcome import WHOLE_OUTPUT, Outcome
from agent_orchestrator.changes.checks.summary import group_by_package, strip_escapes

_MAX_NAME_LENGTH = 80
_NAME = r"[@\w][\w@./+-]*"
_BUILTINS = r"(?:test|cd|export|read|set|shift|unset|local|return|source|kill|wait|trap|printf|echo|umask|ulimit|eval)"
"""Shell builtins: an error message about one of them does not mean a missing command."""
_BUILD_FOLDER = re.compile(r"(?:^|/)(?:dist|build|lib|out|target|esm|cjs|pkg|release|debug)(?:/|$)", re.IGNORECASE)
"""Folders that a build creates: a file missing there was not built."""

_PATTERNS: tuple[tuple[str, str], ...] = (
    # Python
    ("module {} not found", r"\b(?:ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]+)"),
    ("module {} not found", r"^\S*python[\d.]*(?:\.exe)?: No module named (?P<name>[\w.]+)"),
    (
        "module {} not found",
        r"python[\d.]*: Error while finding module specification for '(?P<name>[\w.]+)'",
    ),
    (
        "module {} not found",
        r"\bPackageNotFoundError: (?:No package metadata was found for )?(?P<name>[\w.-]+)$",
    ),
    ("module {} not found", r"\bDistributionNotFound: The '(?P<name>[\w.-]+)"),
    ("module {} not found", r"\bImproperlyConfigured: Error loading (?P<name>[\w.-]+)"),
    ("module django not found", r"\bImportError: Couldn't import Django\b"),
    (
        "pytest plugin for {} not found",
        r"^(?:\S*pytest|__main__\.py|\S+\.py): error: unrecognized arguments: (?P<name>\S+)",
    ),
    ("pytest plugin {} not found", r"^ERROR: Missing required plugins: (?P<name>[\w.-]+)"),
    (
        "pytest plugin for fixture {} not found",
        r"^E\s+fixture '(?P<name>mocker|benchmark|httpx_mock|requests_mock|snapshot|freezer|faker|aiohttp_client|httpserver|qtbot"
        r"|live_server|admin_client|django_db_setup|data_regression|file_regression|subtests)' not found",
    ),
    ("pytest plugin for async tests not found", r"\basync def functions are not natively supported\b"),
    ("interpreter {} not found", r"\bInterpreterNotFound: (?P<name>\S+)"),
    (
        "interpreter {} not found",
        r"\bcould not find python interpreter (?:with spec\(s\): |matching )?(?P<name>[\w.]+)",
    ),
    ("interpreter {} not found", r"\bNo interpreter found for (?P<name>Python \S+)"),
    ("interpreter {} not found", r"^nox > .*Python interpreter (?P<name>\S+) not found"),
    # Node
    ("module {} not found", r"\bCannot find (?:module|package) '(?P<name>[^'.][^']*)'"),
    ("module {} not found", r"\bCannot find (?:module|package) '(?P<built>\.[^']*)'"),
    ("module {} not found", r"\bFailed to (?:resolve import|load url) \"?(?P<name>[@\w][^\s\"]*)\"? "),
    ("module {} not found", r"\bModule not found: Error: Can't resolve '(?P<name>[@\w][^']*)'"),
    ("module {} not found", r"\bESLint couldn't find (?:the (?:plugin|config) \"|an? )(?P<name>[^\"]+?)\""),
    ("module {} not found", r"\bFailed to load (?:plugin|config) [\"'](?P<name>[^\"']+)[\"']"),
    ("module {} not found", r"\bPreset (?P<name>\S+) not found\b"),
    ("command of npm not found", r"\bcould not determine executable to run\b"),
    (
        "command {} not found",
        r"\bnpx canceled due to missing packages and no YES option: \[\"?(?P<name>[^\"\]]+?)\"?\]",
    ),
    (
        "command {} not found",
        r"\bnpm (?:ERR!|error) 404 .*'(?P<name>[^']+?)(?:@[^'@]*)?' is not in this registry",
    ),
    ("script {} not found", r"\b[Mm]issing script: \"?(?P<name>[\w:.-]+)"),
    (
        "command {} not found",
        r"\bERR_PNPM_RECURSIVE_EXEC_FIRST_FAIL.*Command \"(?P<name>[^\"]+)\" not found",
    ),
    ("command {} not found", r"\berror Command \"(?P<name>[^\"]+)\" not found"),
    ("command {} not found", r"\b[Cc]ommand not found: (?P<name>[\w.@/-]+)$"),
    (
        "node_modules not found",
        r"\bnode_modules state file\b.*(?:run|try)"
        r"|Local package\.json exists, but node_modules missing",
    ),
    # Go, Rust, C
    ("package {} not found", r"\bno required module provides package (?P<name>[^\s;:]+)"),
    ("package {} not found", r"\bcannot find (?:package|module providing package) \"?(?P<name>[^\s\":]+)"),
    (
        "module {} not found",
        r"^go: (?P<name>\S+?@\S+): (?:Get |module lookup disabled|reading |unrecognized import|dial )",
    ),
    (
        "module {} not found",
        r"\bmissing go\.sum entry for (?:module providing package |go\.mod file.*)?(?P<name>[^\s;]*)",
    ),
    ("crate {} not found", r"\bcan't find crate for `(?P<name>[^`]+)`"),
    ("crate {} not found", r"\bno matching package named `(?P<name>[^`]+)` found"),
    ("crate {} not found", r"\bfailed to (?:get|download|load source for dependency) `(?P<name>[^`\s]+)"),
    ("library for crate {} not found", r"\bfailed to run custom build command for `(?P<name>[^`\s]+)"),
    ("command {} not found", r"^error: linker `(?P<name>[^`]+)` not found"),
    ("command cargo-{} not found", r"^error: no such (?:sub)?command: `(?P<name>[^`]+)`"),
    ("library {} not found", r"\bcannot find -l(?P<name>[\w.+-]+)"),
    ("library {} not found", r"\berror while loading shared libraries: (?P<name>[^\s:]+)"),
    (
        "package {} not found",
        r"^\s*Could not find a package configuration file provided by \"(?P<name>[^\"]+)\"",
    ),
    ("package {} not found", r"^\s*Could NOT find (?P<name>\w+)"),
    ("package {} not found", r"\bDependency \"?(?P<name>[\w.+-]+)\"? not found\b"),
    ("compiler not found", r"\bNo CMAKE_(?:C|CXX)_COMPILER could be found\b|\bUnknown compiler\(s\):"),
    ("executable {} not found", r"^(?:Could not find|Unable to find) executable:? (?P<name>\S+)?"),
    # environments and commands
    (
        "{} not found",
        r"^(?:\S*/)?(?:ba|da|z|k|a)?sh: (?:line )?(?:\d+: )?(?:\.: )?(?:cannot open |can't open )?'?"
        r"(?P<name>\S*\b(?:bin|Scripts)/activate[\w.]*)'?: (?:No such file|not found)",
    ),
    (
        "command {} not found",
        rf"^[^\s:]+: (?:line )?\d+: (?P<name>{_NAME}): (?:command )?not found$",
    ),
    (
        "command {} not found",
        rf"^(?:\S*/)?(?:ba|da|z|k)?sh: (?:line )?\d+: (?:exec: )?(?!{_BUILTINS}: )(?P<name>{_NAME}): .*$",
    ),
    (
        "command {} not found",
        rf"^(?:\S*/)?(?:ba|z|k|a)?sh: (?:\d+: )?(?P<name>{_NAME}): (?:command )?not found$",
    ),
    (
        "command {} not found",
        rf"^g?make(?:\[\d+\])?: (?P<name>{_NAME}): (?:No such file or directory|Command not found)$",
    ),
    ("command {} not found", r"^(?:/usr/bin/)?env: [‘'\"]?(?P<name>[\w.+-]+)[’'\"]?: "),
    ("command {} not found", r"\bspawn (?P<name>[\w.@/-]+) ENOENT\b"),
    (
        "command {} not found",
        r"\bFileNotFoundError: \[Errno 2\] No such file or directory: '(?P<name>[\w.+-]+)'$",
    ),
    ("command {} not found", r"^error: Failed to spawn: `(?P<name>[^`]+)`"),
    ("command {} not found", r"^(?:Command not found|Command '?(?P<name>[\w.-]+)'? not found)"),
    ("command {} not found", r"^pyenv: (?P<name>[\w.-]+): command not found"),
    ("interpreter not found", r": bad interpreter: "),
)
"""Message and the pattern that it is read from; the group `built` counts only below a folder that a build creates."""
_NO_TESTS = re.compile(
    r"^(?:=* ?no tests ran in [\d.]+s|collected 0 items$|NO TESTS RAN|Ran 0 tests in|No tests found, exiting with code|No test files found"
    r"|Error: No test files found|\s*[✖✘×] (?:No tests found|Couldn[’']t find any)|no packages to test|go: warning: .* matched no packages"
    r"|No tests were found!!!|Result: NOTESTS|No tests defined\.|.*No test suite found in file|Could not find '[^']*'$"
    r"|ImportError: Start directory is not importable"
    r"|ERROR: (?:file or directory not found|not found): |Files=0, Tests=0,|Found 0 test\(s\)|Error: no test specified)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"fatal error: (?P<name>[^\s:]+\.h\w*): |(?P<other>[^\s:]+\.h\w*): No such file or directory")
_INCLUDED = re.compile(r"#\s*include\s*(?P<bracket>[<\"])")
_FILE = re.compile(r"^\S+\.\w{1,4}(?:$|: )")
_CONNECTION_REFUSED = re.compile(
    r"\bconnection refused\b|\bECONNREFUSED\b|\bcould not connect\b|\bcan't connect\b|\bname or service not known\b",
    re.IGNORECASE,
)
_SYNTAX = re.compile(r"\b(?:SyntaxError|IndentationError|TabError)\b")
_CANDIDATE_LINE = re.compile(
    r"not |no |No |miss|Miss|[Cc]ould|[Cc]annot|[Cc]an't|[Ff]ail|ENOENT|[Ee]rror|Interp|sh: |env: |bad inter|Unknown"
)


def missing_environment(output: str, outcome: Outcome, *, exit_code: int | None) -> str:
    """Return what the environment lacks, in a few words, or "" if the output contains a verdict on the content."""
    if exit_code == 0:
        return ""
    lines = group_by_package([line[:1000].rstrip() for line in strip_escapes(output).split("\n")])
    passed_count = outcome.executed_count and outcome.counts and outcome.counts.passed
    for message in _missing_items(_failure_texts(outcome) if passed_count and not _has_files(outcome) else lines):
        return message
    if header := _missing_header(lines):
        return header
    if exit_code == 127:
        return "a command was not found"
    if exit_code == 126:
        return "a command cannot be executed"
    if not outcome.executed_count and any(_NO_TESTS.match(line) for line in lines):
        return "no tests were found"
    if (
        not passed_count
        and outcome.executed_count
        and all(_CONNECTION_REFUSED.search(message) for message in outcome.failures.values())
    ):
        return "no test passed: a service does not answer"
    unloaded_count = len(outcome.not_loaded)
    if not outcome.executed_count and unloaded_count > 1 and not any(_SYNTAX.search(line) for line in lines):
        return f"all {unloaded_count} test files failed to load"
    return ""


def _has_files(outcome: Outcome) -> bool:
    """Return whether a failure is a file or has no name, so that its message may be anywhere in the output."""
    return bool(outcome.not_loaded) or any(
        name.startswith(WHOLE_OUTPUT) or _FILE.search(name) for name in outcome.failures
    )


def _failure_texts(outcome: Outcome) -> Sequence[str]:
    """Return the names and messages of the failures.

    Only these are searched when some tests pass, because a passing test may print on purpose that something was not found.
    """
    return [*outcome.failures, *outcome.failures.values()]


def _missing_items(lines: Sequence[str]) -> Iterator[str]:
    """Yield what the lines report as missing, in their order."""
    for line in lines:
        if not _CANDIDATE_LINE.search(line):
            continue
        text = line.removeprefix("# ") if line.startswith("# ") else line
        for message, pattern in _patterns():
            match = pattern.search(text)
            if not match:
                continue
            groups = match.groupdict()
            name = groups.get("name") or groups.get("built") or ""
            if groups.get("built") and not _BUILD_FOLDER.search(name):
                continue
            if name.startswith("/") and not _BUILD_FOLDER.search(name):
                continue
            name = name.strip()[:_MAX_NAME_LENGTH]
            yield message.format(name).replace("  ", " ")


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the compiled patterns; compiled on first use because most checks pass."""
    return tuple((message, re.compile(pattern)) for message, pattern in _PATTERNS)


def _missing_header(lines: Sequence[str]) -> str:
    """Return the missing system header, or "". A header of the project, included in quotes, belongs to the content and does not count."""
    for number, line in enumerate(lines):
        if ".h" not in line or not (header := _HEADER.search(line)):
            continue
        directive = next(
            (include for text in lines[number + 1 : number + 3] if (include := _INCLUDED.search(text))), None
        )
        if directive is None or directive["bracket"] == "<":
            return f"header {header['name'] or header['other']} not found"[:_MAX_NAME_LENGTH]
    return ""
