"""Environments of a Python project as tox, hatch, nox or CI describe them: what is installed, and what is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.config.detection.commands import Words
from agent_orchestrator.config.detection.files import strings_in


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment of a project: what is installed in it, and what it runs."""

    source: str
    name: str
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    commands: tuple[Words, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    installs_project: bool = True


_IRRELEVANT = re.compile(
    r"COVERAGE\w*|COV_\w*|PIP_\w*|TOX\w*|PYTHONWARN\w*|PYTHONDONTWRITEBYTECODE|PYTHONUNBUFFERED|PYTHONHASHSEED|VIRTUAL\w*|PATH|HOME|CI|\w*TOKEN\w*|COVERALLS\w*|UV_\w*"
)


def test_variables(env: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the environment variables that matter for tests, with paths resolved; unresolved or irrelevant ones are left out."""
    for key, value in env:
        text = re.sub(r"\{(?:tox_?ini_?dir|tox_?root)\}", ".", value).replace("{/}", "/").replace("{:}", ":")
        text = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
        if (
            re.fullmatch(r"[A-Za-z_]\w*", key)
            and not _IRRELEVANT.fullmatch(key)
            and "{" not in text
            and len(text) < 300
        ):
            yield key, text


def flat_texts(value: Any) -> list[str]:
    """Return the non-empty lines of a text or of a list of texts."""
    return [
        line.strip()
        for text in ([value] if isinstance(value, str) else strings_in(value))
        for line in text.splitlines()
        if line.strip()
    ]


def requirements_of(deps: Iterable[str]) -> Iterator[str]:
    """Yield the requirements among the lines of a list of dependencies."""
    for line in deps:
        text = line.partition(" #")[0].strip()
        if (
            re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:\[[\w.,\s-]*\])?\s*(?:(?:[<>=!~(]|;|@\s).*)?", text)
            and "{" not in text
        ):
            yield text


@dataclass(frozen=True, slots=True)
class InstallArguments:
    """What a `pip install` or `uv sync` command installs."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    installs_project: bool = False

    @staticmethod
    def parse(words: list[str] | Words) -> InstallArguments:
        """Return what a `pip install` with these arguments installs."""
        extras, groups, files, packages = list[str](), list[str](), list[str](), list[str]()
        installs_project = False
        rest = list(words)
        while rest:
            word = rest.pop(0)
            option, _, value = word.partition("=")
            if option in ("-r", "--requirement", "--requirements") or (word.startswith("-r") and len(word) > 2):
                files.append(
                    value or (word[2:] if word.startswith("-r") and len(word) > 2 else rest.pop(0) if rest else "")
                )
            elif option in ("--group", "-G"):
                groups.append(value or (rest.pop(0) if rest else ""))
            elif option in ("--extra", "-E", "--extras"):
                extras += re.split(r"[\s,]+", value or (rest.pop(0) if rest else ""))
            elif match := re.fullmatch(r"(?:-e|--editable=?)?(?:\./?|\.\[([\w.,\s-]*)\]|\./\[([\w.,\s-]*)\])", word):
                installs_project = True
                extras += [item.strip() for item in (match[1] or match[2] or "").split(",") if item.strip()]
            elif (
                not word.startswith("-")
                and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[\w.,-]+\])?(?:[<>=!~].*)?", word)
                and not word.endswith((".whl", ".gz"))
            ):
                packages.append(word)
            elif (
                option
                in (
                    "-c",
                    "--constraint",
                    "-i",
                    "--index-url",
                    "--extra-index-url",
                    "--only-binary",
                    "--no-binary",
                    "--python",
                    "-p",
                    "-f",
                )
                and not value
                and rest
            ):
                rest.pop(0)
        readable_files = [name for name in files if name and "{" not in name and "$" not in name]
        return InstallArguments(
            tuple(item for item in extras if item),
            tuple(item for item in groups if item),
            tuple(readable_files),
            tuple(packages),
            installs_project,
        )


def parse_install(words: Words) -> InstallArguments | None:
    """Return what a shell command installs with pip or uv, or None if it is no such command."""
    rest = list(words)
    if rest[:1] and re.fullmatch(r"(?:.*/)?(?:python|pypy)[\d.]*", rest[0]) and rest[1:2] == ["-m"]:
        rest = rest[2:]
    if rest[:2] == ["uv", "pip"]:
        rest = rest[1:]
    if rest[:1] and re.fullmatch(r"(?:.*/)?pip[\d.]*", rest[0]) and rest[1:2] == ["install"]:
        return InstallArguments.parse(rest[2:])
    if rest[:2] in (["uv", "sync"], ["pdm", "install"], ["pdm", "sync"], ["poetry", "install"], ["uv", "run"]):
        return InstallArguments.parse([word for word in rest[2:] if word.startswith("-") or rest[1] != "run"])
    return None
