"""A Python project's own lint command: its Makefile's, its environments' or its CI's, never more than they check."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_orchestrator.config.detection import requirements
from agent_orchestrator.config.detection.ci_files import Job
from agent_orchestrator.config.detection.commands import Words, as_lint, split, write
from agent_orchestrator.config.detection.environments import Environment
from agent_orchestrator.config.detection.files import Repository, requirement_name, table
from agent_orchestrator.config.detection.makefile import recipe

MAX_TOOLS = 10
_LINT_NAMES = re.compile(
    r"(?:^|[-_. ])(?:lint(?:ing|er|ers)?|style|flake8|ruff|qa|quality|codestyle|code-quality|pep8|isort|black|checks?)(?:$|[-_. ])"
)


@dataclass(frozen=True, slots=True)
class Linting:
    """What a project lints with."""

    commands: tuple[Words, ...]
    source: str
    tools: tuple[str, ...] = ()
    """What its own environment for it installs."""
    needs_groups: tuple[str, ...] = ()
    target: str = ""
    """The target of the Makefile that runs the commands."""

    def written(self, installed: set[str], prefix: str) -> str | None:
        """Return the command with what runs it, of the parts whose tools are installed; none if none is."""
        ready = [words for words in self.commands if _program(words) in installed]
        if not ready:
            return None
        if self.target:
            if len(ready) < len(self.commands):
                return None
            return f"make {self.target}" if not prefix.startswith(".") else f"{prefix}make {self.target}"
        if prefix.startswith("."):
            return prefix + " && ".join(write(_without_venv(words)) for words in ready)
        return " && ".join(prefix + write(words) for words in ready)

    def to_install(self, installed: set[str]) -> list[str]:
        """Return the tools that are still to be installed, if that makes the commands work."""
        new = [one for one in self.tools if requirement_name(one) not in installed]
        programs = {_program(words) for words in self.commands}
        return new if programs & requirements.names(new) and len(new) <= MAX_TOOLS else []


def _without_venv(words: Words) -> Words:
    """Return flake8's command so that it does not check the `.venv` below it; the other linters leave that out."""
    targets = [word for word in words[1:] if not word.startswith("-") and not word.isdecimal() and word != "."]
    if words[0] != "flake8" or targets:
        return words
    return (*words, "--extend-exclude=.venv")


def _program(words: Words) -> str:
    return "mypy" if words[0] == "dmypy" else words[0]


def find(repo: Repository, envs: Sequence[Environment], jobs: Sequence[Job]) -> Linting | None:
    """Return the project's own lint command; none if it has none."""
    return _of_makefile(repo, envs) or _of_environments(repo, envs) or _of_jobs(repo, jobs)


def _checked(repo: Repository, commands: Iterable[Words]) -> tuple[Words, ...]:
    """Return those that lint; `mypy` without a target only where its configuration names one."""
    found = [lint for words in commands if (lint := as_lint(words))]
    return tuple(dict.fromkeys(words for words in found if words[0] != "mypy" or _has_target(repo, words)))


def _has_target(repo: Repository, words: Words) -> bool:
    if any(not word.startswith("-") for word in words[1:]) or any(word in ("-p", "-m", "-c") for word in words):
        return True
    own = table(repo.pyproject, "tool", "mypy")
    ini = {
        **repo.ini("setup.cfg").get("mypy", {}),
        **repo.ini("mypy.ini").get("mypy", {}),
        **repo.ini(".mypy.ini").get("mypy", {}),
    }
    return bool({"files", "packages", "modules"} & ({*own} | {*ini}))


def _of_makefile(repo: Repository, envs: Sequence[Environment]) -> Linting | None:
    for target in ("lint", "flake8", "check-lint", "style"):
        lines = recipe(repo, target)
        commands = [words for line in lines for words in split(line)]
        if lines and len(commands) == len(_checked(repo, commands)) > 0:
            env = _lint_environment(repo, envs)
            tools = env.packages if env else ()
            return Linting(_checked(repo, commands), "Makefile", tools, env.groups if env else (), target)
    return None


def _lint_environment(repo: Repository, envs: Sequence[Environment]) -> Environment | None:
    named = [env for env in envs if _LINT_NAMES.search(env.name.lower()) and _checked(repo, env.commands)]
    return min(named, key=lambda env: "lint" not in env.name.lower(), default=None)


def _of_environments(repo: Repository, envs: Sequence[Environment]) -> Linting | None:
    env = _lint_environment(repo, envs)
    if env is None:
        return None
    tools = [*env.packages]
    for name in env.files:
        tools += sorted(requirements.names_in_file(repo, name))
    return Linting(_checked(repo, env.commands), env.source, tuple(tools), env.groups)


def _of_jobs(repo: Repository, jobs: Sequence[Job]) -> Linting | None:
    named = [job for job in jobs if _LINT_NAMES.search(job.name.lower()) or "lint" in job.file.lower()]
    for job in [*named, *jobs]:
        if commands := _checked(repo, job.commands):
            return Linting(commands, job.file)
    return None
