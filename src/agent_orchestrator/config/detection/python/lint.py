"""Find a Python project's own lint command in its Makefile, environments or CI. It never checks more than they do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_orchestrator.config.detection.ci_files import CiJob
from agent_orchestrator.config.detection.commands import Words, join_words, lint_command, split_commands
from agent_orchestrator.config.detection.files import RepositoryFiles, requirement_name, table
from agent_orchestrator.config.detection.makefile import recipe
from agent_orchestrator.config.detection.python import requirements
from agent_orchestrator.config.detection.python.environments import Environment

MAX_TOOLS = 10
_LINT_NAMES = re.compile(
    r"(?:^|[-_. ])(?:lint(?:ing|er|ers)?|style|flake8|ruff|qa|quality|codestyle|code-quality|pep8|isort|black|checks?)(?:$|[-_. ])"
)


@dataclass(frozen=True, slots=True)
class Linting:
    """How a project lints."""

    commands: tuple[Words, ...]
    source: str
    tools: tuple[str, ...] = ()
    """What the lint environment of the project installs."""
    needs_groups: tuple[str, ...] = ()
    target: str = ""
    """The target of the Makefile that runs the commands."""

    def command_for(self, installed: set[str], prefix: str) -> str | None:
        """Return the lint command for this environment, limited to commands whose tools are installed, or None if there are none."""
        available = [words for words in self.commands if _program(words) in installed]
        if not available:
            return None
        if self.target:
            if len(available) < len(self.commands):
                return None
            return f"make {self.target}" if not prefix.startswith(".") else f"{prefix}make {self.target}"
        if prefix.startswith("."):
            return prefix + " && ".join(join_words(_without_venv(words)) for words in available)
        return " && ".join(prefix + join_words(words) for words in available)

    def missing_tools(self, installed: set[str]) -> list[str]:
        """Return the tools that are missing, if installing them makes the commands work."""
        missing = [tool for tool in self.tools if requirement_name(tool) not in installed]
        programs = {_program(words) for words in self.commands}
        return missing if programs & requirements.requirement_names(missing) and len(missing) <= MAX_TOOLS else []


def _without_venv(words: Words) -> Words:
    """Return flake8's command so that it does not check the `.venv` in the repository; other linters skip it by default."""
    targets = [word for word in words[1:] if not word.startswith("-") and not word.isdecimal() and word != "."]
    if words[0] != "flake8" or targets:
        return words
    return (*words, "--extend-exclude=.venv")


def _program(words: Words) -> str:
    return "mypy" if words[0] == "dmypy" else words[0]


def find_lint(repo: RepositoryFiles, envs: Sequence[Environment], jobs: Sequence[CiJob]) -> Linting | None:
    """Return the project's own lint command, or None."""
    return _from_makefile(repo, envs) or _from_environments(repo, envs) or _from_jobs(repo, jobs)


def _lint_commands(repo: RepositoryFiles, commands: Iterable[Words]) -> tuple[Words, ...]:
    """Return the commands that lint. `mypy` without a target is included only if its configuration names one."""
    lint_commands = [lint for words in commands if (lint := lint_command(words))]
    return tuple(dict.fromkeys(words for words in lint_commands if words[0] != "mypy" or _has_target(repo, words)))


def _has_target(repo: RepositoryFiles, words: Words) -> bool:
    if any(not word.startswith("-") for word in words[1:]) or any(word in ("-p", "-m", "-c") for word in words):
        return True
    mypy_table = table(repo.pyproject, "tool", "mypy")
    ini_options = {
        **repo.ini("setup.cfg").get("mypy", {}),
        **repo.ini("mypy.ini").get("mypy", {}),
        **repo.ini(".mypy.ini").get("mypy", {}),
    }
    return bool({"files", "packages", "modules"} & ({*mypy_table} | {*ini_options}))


def _from_makefile(repo: RepositoryFiles, envs: Sequence[Environment]) -> Linting | None:
    for target in ("lint", "flake8", "check-lint", "style"):
        lines = recipe(repo, target)
        commands = [words for line in lines for words in split_commands(line)]
        if lines and len(commands) == len(_lint_commands(repo, commands)) > 0:
            env = _lint_environment(repo, envs)
            tools = env.packages if env else ()
            return Linting(_lint_commands(repo, commands), "Makefile", tools, env.groups if env else (), target)
    return None


def _lint_environment(repo: RepositoryFiles, envs: Sequence[Environment]) -> Environment | None:
    lint_environments = [
        env for env in envs if _LINT_NAMES.search(env.name.lower()) and _lint_commands(repo, env.commands)
    ]
    return min(lint_environments, key=lambda env: "lint" not in env.name.lower(), default=None)


def _from_environments(repo: RepositoryFiles, envs: Sequence[Environment]) -> Linting | None:
    env = _lint_environment(repo, envs)
    if env is None:
        return None
    tools = [*env.packages]
    for name in env.files:
        tools += sorted(requirements.names_in_file(repo, name))
    return Linting(_lint_commands(repo, env.commands), env.source, tuple(tools), env.groups)


def _from_jobs(repo: RepositoryFiles, jobs: Sequence[CiJob]) -> Linting | None:
    lint_jobs = [job for job in jobs if _LINT_NAMES.search(job.name.lower()) or "lint" in job.file.lower()]
    for job in [*lint_jobs, *jobs]:
        if commands := _lint_commands(repo, job.commands):
            return Linting(commands, job.file)
    return None
