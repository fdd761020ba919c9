"""Shell commands found in a repository's files: which of them test or lint, and how to write them for a check."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ACTIVATE_VENV = ". .venv/bin/activate && "
"""Prefix of a command that runs in the workspace's virtual environment."""
Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DetectedCommands:
    """One way to set up a repository and to test it."""

    ecosystem: str
    """`npm`, `uv`, `tox`, `make` …"""
    set_up: tuple[str, ...] = ()
    """Shell commands for `postCreate`."""
    test: str | None = None
    """The test command."""
    lint: str | None = None
    """The project's own lint command, with its own scope."""
    evidence: tuple[str, ...] = ()
    """The files that it was detected from."""


def split_commands(line: str) -> list[Words]:
    """Return the simple commands of a shell line joined by `&&` or `;`, or none if it has other shell syntax."""
    if "`" in line or "$(" in line or len(line) > 4096:
        return []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in (";", "&&"):
                commands.append([])
            elif word and set(word) <= set("();<>|&"):
                return []
            else:
                commands[-1].append(word)
    except ValueError:
        return []
    return [tuple(words) for words in commands if words]


def plain_words(text: str) -> Words:
    """Return the words of a command that no shell reads, or none if its quotes do not match."""
    try:
        return tuple(shlex.split(text[:4096], comments=False))
    except ValueError:
        return ()


def join_words(words: Iterable[str]) -> str:
    """Return words as a shell command."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    """Return a word quoted for the shell: in double quotes if it has single quotes and nothing that a shell expands."""
    return f'"{word}"' if "'" in word and not re.search(r'["$`\\]', word) else shlex.quote(word)


_RUNNERS = (("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("hatch", "run"), ("pipenv", "run"), ("rye", "run"))
_RUNNER_VALUES = frozenset(
    {
        "--group",
        "--extra",
        "--python",
        "-p",
        "--with",
        "--with-requirements",
        "--only-group",
        "--no-group",
        "--env-file",
    }
)


def without_runner(words: Words) -> Words:
    """Return a command without what runs it in an environment: `uv run`, `poetry run`, assignments, `time`."""
    rest = list(words)
    while rest and (re.fullmatch(r"[A-Za-z_]\w*=.*", rest[0]) or rest[0] in ("env", "time", "exec", "command", "@")):
        rest.pop(0)
    if rest and rest[0].startswith(("@", "-")):
        rest[0] = rest[0].lstrip("@-")
    if tuple(rest[:2]) in _RUNNERS:
        rest = rest[2:]
        while rest and rest[0].startswith("-"):
            has_value = rest[0] in _RUNNER_VALUES
            is_separator = rest[0] == "--"
            rest = rest[2 if has_value else 1 :]
            if is_separator:
                break
    if rest:
        rest[0] = re.sub(
            r"^(?:\$?\{?(?:envpython|envbindir|env_python|PYTHON)\}?|\$\(PYTHON\)|python[\d.]*|\.?/?\.?venv/bin/python3?)$",
            "python",
            rest[0],
        )
        rest[0] = re.sub(r"^(?:\./)?\.?venv/bin/", "", rest[0])
    return tuple(rest)


def without_coverage(words: Words) -> Words:
    """Return the command that `coverage run` would run."""
    rest = list(words)
    position = rest.index("coverage") if rest[:1] == ["python"] and "coverage" in rest else 0
    if position and rest[position - 1] == "-m":
        rest = rest[position:]
    if rest[:2] != ["coverage", "run"]:
        return words
    rest = rest[2:]
    is_module = False
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-m", "--module"):
            is_module = True
            break
        if (
            option
            in (
                "--source",
                "--omit",
                "--include",
                "--rcfile",
                "--concurrency",
                "--data-file",
                "--context",
                "--source-pkgs",
            )
            and rest
        ):
            rest.pop(0)
    if not rest:
        return words
    return ("python", "-m", *rest) if is_module else ("python", *rest)


_TEST_SCRIPT = re.compile(r"(?:\./)?(?:[\w.-]+/){0,3}(?:run_?|all_?)?tests?(?:_?run(?:ner)?|_?suite|_?all)?\.py")


def test_command(words: Words) -> Words | None:
    """Return how a command runs tests, without coverage and without report files, or None if it runs no tests."""
    words = without_runner(without_coverage(without_runner(words)))
    if not words:
        return None
    if words[0] in ("pytest", "py.test"):
        words = ("python", "-m", "pytest", *words[1:])
    if words[:3] == ("python", "-m", "pytest"):
        return (*words[:3], *_pytest_options(words[3:]))
    if words[0].endswith(".py") and _TEST_SCRIPT.fullmatch(words[0]):
        words = ("python", words[0].removeprefix("./"), *words[1:])
    if words[0] != "python" or len(words) < 2:
        return words if words[0] == "trial" and len(words) > 1 and not _has_placeholders(words[1:]) else None
    rest = list(words[1:])
    options = list[str]()
    while rest and re.fullmatch(r"-[bBEIsSuvdO]+|-[WX].*", rest[0]):
        option = rest.pop(0)
        value = [rest.pop(0)] if option in ("-W", "-X") and rest else []
        options += [] if option.startswith("-W") else [option, *value]
    is_test = (
        rest[:2] == ["-m", "unittest"]
        or rest[:2] == ["manage.py", "test"]
        or (rest[:2] == ["-m", "django"] and rest[2:3] == ["test"])
        or (rest[:1] != [] and bool(_TEST_SCRIPT.fullmatch(rest[0])))
    )
    return ("python", *options, *_without_reports(rest)) if is_test else None


def _has_placeholders(words: Iterable[str]) -> bool:
    return any("{" in word or "$" in word for word in words)


_DROPPED_OPTIONS = re.compile(
    r"--(?:no-)?cov(?:-[\w-]+)?=.*|--no-cov(?:-[\w-]+)?|--cov-append|--cov-branch|--junit-?xml=.*|--basetemp=.*|--html=.*|--self-contained-html"
    r"|--codspeed|-x|--exitfirst|--maxfail=.*|--report-log=.*|--benchmark-json=.*|--result-log=.*|--cache-clear|--pastebin=.*|--pdb"
    r"|--randomly-seed=.*|--color=.*|-s|--capture=no|--(?:mypy|flake8|black|isort|pylint|ruff|ruff-format|pycodestyle|codestyle)"
)
_DROPPED_OPTIONS_WITH_VALUE = re.compile(
    r"--cov|--cov-[\w-]+|--junit-?xml|--basetemp|--html|--maxfail|--report-log|--benchmark-json"
)


def _pytest_options(words: Sequence[str]) -> Words:
    options: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if _DROPPED_OPTIONS.fullmatch(word):
            continue
        if _DROPPED_OPTIONS_WITH_VALUE.fullmatch(word):
            if rest and not rest[0].startswith("-"):
                rest.pop(0)
            continue
        options.append(word)
    return () if _has_placeholders(options) else tuple(options)


def _without_reports(words: Sequence[str]) -> Words:
    """Return words without test runners that write a results file, and without words that only tox resolves."""
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--testrunner" and rest and "xml" in rest[0].lower():
            rest.pop(0)
        elif not (word.startswith("--testrunner=") and "xml" in word.lower()):
            others.append(word)
    return tuple(word for word in others if not _has_placeholders([word]))


_CHECK_ONLY_OPTIONS = {
    "black": ("--check", "--diff"),
    "isort": ("--check", "--check-only", "-c", "--diff"),
    "autopep8": ("--exit-code",),
    "docformatter": ("--check", "-c"),
}
_LINTERS = frozenset(
    {
        "flake8",
        "pylint",
        "pycodestyle",
        "pydocstyle",
        "pyflakes",
        "pyright",
        "basedpyright",
        "codespell",
        "bandit",
        "djlint",
    }
)


def lint_command(words: Words) -> Words | None:
    """Return how a command lints without changing a file, or None. The caller decides about `mypy` without a target."""
    words = without_runner(words)
    if words[:2] == ("python", "-m"):
        words = words[2:]
    if not words or _has_placeholders(words):
        return None
    name = words[0]
    if "--fix" in words or "--version" in words or "--help" in words or "--exit-zero" in words:
        return None
    if name == "ruff":
        if words[1:2] == ("format",):
            return words if "--check" in words or "--diff" in words else None
        return words if words[1:2] == ("check",) else None
    if name in _CHECK_ONLY_OPTIONS:
        return words if set(words) & set(_CHECK_ONLY_OPTIONS[name]) else None
    return words if name in _LINTERS or name in ("mypy", "dmypy") else None
