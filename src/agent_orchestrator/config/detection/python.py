"""Python projects: how a project and what its tests need get into an environment of the workspace."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent_orchestrator.config.detection import hatch, nox, python_lint, requirements, tox
from agent_orchestrator.config.detection.ci_files import Job
from agent_orchestrator.config.detection.commands import ACTIVATED, Commands, Words, write
from agent_orchestrator.config.detection.files import Repository, requirement_name, table, texts
from agent_orchestrator.config.detection.interpreter import interpreter
from agent_orchestrator.config.detection.python_needs import (
    Needs,
    dependencies,
    find_needs,
    installable,
    known,
    together,
)
from agent_orchestrator.config.detection.python_tests import PYTEST, Tests, find_tests, test_files
from agent_orchestrator.config.detection.requirements import DEV_NAMES, TEST_NAMES, normal


def ways(repo: Repository, jobs: Sequence[Job]) -> Iterator[Commands]:
    """Yield the ways to set a Python project up and to test it, the most likely first."""
    if not is_python(repo):
        return
    envs = [*tox.environments(repo), *hatch.environments(repo), *nox.environments(repo)]
    tests = find_tests(repo, envs, jobs)
    needs = find_needs(repo, tests, jobs)
    linting = python_lint.find(repo, envs, jobs)
    project = _Project(repo, tests, linting)
    if "uv.lock" in repo.names:
        yield project.with_uv(needs)
    if "poetry.lock" in repo.names:
        yield project.with_poetry(needs)
    if "pdm.lock" in repo.names:
        yield project.with_pdm(needs)
    if "Pipfile" in repo.names:
        yield project.with_pipenv()
    yield project.with_venv(needs)
    yield from project.others(needs)


def is_python(repo: Repository) -> bool:
    """Return whether the top folder is a Python project."""
    if repo.has("pyproject.toml", "setup.py", "requirements.txt", "Pipfile", "manage.py", "tox.ini", "noxfile.py"):
        return True
    if repo.ini("setup.cfg").get("metadata") is not None:
        return True
    owned = {name.rpartition("/")[0] for name in repo.tree if name.rpartition("/")[2] in _MANIFESTS}
    return any(not any(name.startswith(f"{folder}/") for folder in owned) for name in test_files(repo))


_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "package.json", "Cargo.toml", "go.mod")
"""A folder with one of these below the top is a project of its own."""


class _Project:
    """A Python project's ways of being set up."""

    def __init__(self, repo: Repository, tests: Tests | None, linting: python_lint.Linting | None) -> None:
        self.repo = repo
        self.tests = tests
        self.linting = linting
        self.evidence = [tests.source] if tests else []

    # -- by the managers of environments

    def with_uv(self, needs: Needs) -> Commands:
        """`uv sync` with the groups and extras that the tests need."""
        uv = table(self.repo.pyproject, "tool", "uv")
        defaults = uv.get("default-groups", ["dev"])
        usual = set(requirements.groups(self.repo)) if defaults == "all" else set(texts(defaults))
        groups, left = self._lint_groups(needs.groups), self._undeclared(needs, usual)
        options = [word for name in groups if name not in usual for word in ("--group", name)]
        options += [word for name in needs.extras for word in ("--extra", name)]
        if table(uv, "workspace"):
            options.append("--all-packages")
        set_up = [write(["uv", "sync", *options])]
        if left:
            set_up.append(write(["uv", "pip", "install", *left]))
        return self._run("uv", set_up, ("uv", "run"), "uv.lock", needs, {*usual, *groups})

    def with_poetry(self, needs: Needs) -> Commands:
        """`poetry install` with the groups and extras that the tests need."""
        poetry = table(self.repo.pyproject, "tool", "poetry")
        declared = requirements.poetry_groups(self.repo)
        optional = {name for name in declared if table(poetry, "group", name).get("optional") is True}
        wanted = [
            name
            for name in optional
            if normal(name) in TEST_NAMES or requirements.runs_tests(requirements.names(declared[name]))
        ]
        wanted += [name for name in needs.groups if name not in declared]
        options = ["--with", ",".join(sorted(wanted))] if wanted else []
        options += [word for name in needs.extras for word in ("--extras", name)]
        left = self._undeclared(needs, set(declared) - optional | set(wanted))
        set_up = [write(["poetry", "install", *options])]
        if left:
            set_up.append(write(["poetry", "run", "pip", "install", *left]))
        return self._run("poetry", set_up, ("poetry", "run"), "poetry.lock", needs, {*declared, *wanted})

    def with_pdm(self, needs: Needs) -> Commands:
        """`pdm install` with the groups that the tests need."""
        usual = {*table(self.repo.pyproject, "tool", "pdm", "dev-dependencies"), *requirements.groups(self.repo)}
        wanted = [name for name in [*needs.extras, *needs.groups] if name not in usual]
        set_up = [write(["pdm", "install", *(word for name in wanted for word in ("-G", name))])]
        return self._run("pdm", set_up, ("pdm", "run"), "pdm.lock", needs, usual)

    def with_pipenv(self) -> Commands:
        """`pipenv install` with the development packages."""
        locked = "Pipfile.lock" in self.repo.names
        set_up = ["pipenv sync --dev" if locked else "pipenv install --dev"]
        return self._run("pipenv", set_up, ("pipenv", "run"), "Pipfile", Needs(), set())

    def _undeclared(self, needs: Needs, usual: set[str]) -> list[str]:
        """Return the packages and files that no group or extra brings, as arguments of `pip install`."""
        declared = requirements.groups(self.repo) | requirements.poetry_groups(self.repo)
        dev = texts(table(self.repo.pyproject, "tool", "uv").get("dev-dependencies"))
        brought = requirements.names(
            [*dev, *dependencies(self.repo), *(one for name in usual for one in declared.get(name, []))]
        )
        brought |= replace(needs, packages=(), files=()).names(self.repo)
        if requirements.runs_tests(brought) and not any(
            requirement_name(one).startswith("pytest-") for one in needs.packages
        ):
            return []
        return [one for one in needs.packages if requirement_name(one) not in brought]

    def _lint_groups(self, groups: tuple[str, ...]) -> tuple[str, ...]:
        return together(
            groups, known(self.linting.needs_groups if self.linting else (), requirements.groups(self.repo))
        )

    def _run(
        self, name: str, set_up: list[str], runner: Words, evidence: str, needs: Needs, groups: set[str]
    ) -> Commands:
        packaged = (
            bool(table(self.repo.pyproject, "build-system"))
            or table(self.repo.pyproject, "tool", "uv").get("package") is True
        )
        test = None
        if self.tests:
            written = [self._prefixed(words, runner, packaged) for words in self.tests.commands]
            test = self._environment_variables() + " && ".join(written)
        installed = replace(needs, groups=tuple({*needs.groups, *groups})).names(self.repo) | self._dev_names()
        lint = self.linting.written(installed, " ".join(runner) + " ") if self.linting else None
        return Commands(name, tuple(set_up), test, lint, tuple(dict.fromkeys([evidence, *self.evidence])))

    def _dev_names(self) -> set[str]:
        dev = [*texts(table(self.repo.pyproject, "tool", "uv").get("dev-dependencies"))]
        for value in table(self.repo.pyproject, "tool", "pdm", "dev-dependencies").values():
            dev += texts(value)
        return requirements.names(dev)

    def _prefixed(self, words: Words, runner: Words, packaged: bool) -> str:
        if words[0] == "cd":
            return write(words)
        if words[:3] == PYTEST and packaged:
            words = ("pytest", *words[3:])
        return write([*runner, *words])

    # -- in a .venv of the workspace

    def with_venv(self, needs: Needs, *, editable: bool = True) -> Commands:
        """A virtual environment in the workspace, with the project and what its tests need."""
        python = interpreter(self.repo)
        set_up = [f"{python} -m venv .venv"]
        arguments: list[str] = []
        if editable and installable(self.repo):
            arguments += ["-e", f".[{','.join(needs.extras)}]" if needs.extras else "."]
        elif self.repo.text("requirements.txt"):
            arguments += ["-r", "requirements.txt"]
        else:
            arguments += dependencies(self.repo) if "pyproject.toml" in self.repo.names else []
        arguments += [
            word for name in needs.files if name != "requirements.txt" or "-r" not in arguments for word in ("-r", name)
        ]
        groups = self._lint_groups(needs.groups)
        if groups:
            set_up.append(".venv/bin/pip install --upgrade 'pip>=25.1'")
            arguments += [word for name in groups for word in ("--group", name)]
        named = requirements.names(needs.packages)
        own = [one for one in requirements.tool_requirements(self.repo) if requirement_name(one) not in named]
        arguments += [*needs.packages, *own]
        if arguments:
            set_up.append(write([".venv/bin/pip", "install", *arguments]))
        installed = replace(needs, groups=groups).names(self.repo) | requirements.names(
            [*dependencies(self.repo), *own]
        )
        if self.linting and (tools := self.linting.to_install(installed)):
            set_up.append(write([".venv/bin/pip", "install", *tools]))
            installed |= requirements.names(tools)
        test = None
        if self.tests:
            commands = " && ".join(write(words) for words in self.tests.commands)
            test = ACTIVATED + self._environment_variables() + commands
        lint = self.linting.written(installed, ACTIVATED) if self.linting else None
        evidence = self.repo.has("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
        return Commands(
            "python",
            tuple(set_up),
            test,
            lint,
            tuple(dict.fromkeys([*([evidence] if evidence else []), *needs.files, *self.evidence])),
        )

    def others(self, needs: Needs) -> Iterator[Commands]:
        """Yield what is tried when the first way does not work: more of what is declared, then less."""
        extras, groups = requirements.extras(self.repo), requirements.groups(self.repo)
        wider = Needs(
            together(
                needs.extras, (name for name in extras if normal(name) in (*TEST_NAMES, *DEV_NAMES, "all", "full"))
            ),
            together(needs.groups, (name for name in groups if normal(name) in (*TEST_NAMES, *DEV_NAMES))),
            together(needs.files, requirements.files(self.repo)[:2]),
            needs.packages,
        )
        if wider != needs:
            yield self.with_venv(wider)
        if self.tests and self.tests.commands != (PYTEST,):
            simple = _Project(self.repo, replace(self.tests, commands=(PYTEST,), environment=None), self.linting)
            yield simple.with_venv(replace(needs, packages=together(needs.packages, ["pytest"])))
        if installable(self.repo):
            flat = together(needs.files, ["requirements.txt"] if self.repo.text("requirements.txt") else [])
            yield self.with_venv(replace(needs, files=flat, extras=()), editable=False)

    def _environment_variables(self) -> str:
        env = self.tests.variables if self.tests else ()
        return "".join(f"{key}={shlex.quote(value)} " for key, value in env) if not self._starts_with_folder() else ""

    def _starts_with_folder(self) -> bool:
        return bool(self.tests and self.tests.commands[0][0] == "cd")
