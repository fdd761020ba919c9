"""Python projects: how to install a project and what its tests need in the workspace's environment."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent_orchestrator.config.detection.ci_files import CiJob
from agent_orchestrator.config.detection.commands import ACTIVATE_VENV, DetectedCommands, Words, join_words
from agent_orchestrator.config.detection.files import RepositoryFiles, requirement_name, strings_in, table
from agent_orchestrator.config.detection.python import hatch, lint, nox, requirements, tox
from agent_orchestrator.config.detection.python.interpreter import choose_interpreter
from agent_orchestrator.config.detection.python.needs import (
    TestRequirements,
    declared_names,
    dependencies,
    find_needs,
    is_installable,
    merge_unique,
)
from agent_orchestrator.config.detection.python.requirements import DEV_NAMES, TEST_NAMES, normalize
from agent_orchestrator.config.detection.python.tests import PYTEST_COMMAND, TestCommands, find_tests, test_files


def find_candidates(repo: RepositoryFiles, jobs: Sequence[CiJob]) -> Iterator[DetectedCommands]:
    """Yield the ways to set up a Python project and to test it, the most likely first."""
    if not is_python(repo):
        return
    envs = [*tox.environments(repo), *hatch.environments(repo), *nox.environments(repo)]
    tests = find_tests(repo, envs, jobs)
    needs = find_needs(repo, tests, jobs)
    linting = lint.find_lint(repo, envs, jobs)
    project = _PythonProject(repo, tests, linting)
    if "uv.lock" in repo.top_level_names:
        yield project.with_uv(needs)
    if "poetry.lock" in repo.top_level_names:
        yield project.with_poetry(needs)
    if "pdm.lock" in repo.top_level_names:
        yield project.with_pdm(needs)
    if "Pipfile" in repo.top_level_names:
        yield project.with_pipenv()
    yield project.with_venv(needs)
    yield from project.others(needs)


def is_python(repo: RepositoryFiles) -> bool:
    """Return whether the top folder is a Python project."""
    if repo.first_existing(
        "pyproject.toml", "setup.py", "requirements.txt", "Pipfile", "manage.py", "tox.ini", "noxfile.py"
    ):
        return True
    if repo.ini("setup.cfg").get("metadata") is not None:
        return True
    project_folders = {name.rpartition("/")[0] for name in repo.tree if name.rpartition("/")[2] in _MANIFESTS}
    return any(not any(name.startswith(f"{folder}/") for folder in project_folders) for name in test_files(repo))


_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "package.json", "Cargo.toml", "go.mod")
"""Files that make a folder below the top a separate project."""


class _PythonProject:
    """The ways to set up a Python project."""

    def __init__(self, repo: RepositoryFiles, tests: TestCommands | None, linting: lint.Linting | None) -> None:
        self.repo = repo
        self.tests = tests
        self.linting = linting
        self.evidence = [tests.source] if tests else []

    # -- by the managers of environments

    def with_uv(self, needs: TestRequirements) -> DetectedCommands:
        """Return the way with `uv sync`, with the groups and extras that the tests need."""
        uv = table(self.repo.pyproject, "tool", "uv")
        defaults = uv.get("default-groups", ["dev"])
        default_groups = set(requirements.groups(self.repo)) if defaults == "all" else set(strings_in(defaults))
        groups, undeclared = self._lint_groups(needs.groups), self._undeclared(needs, default_groups)
        options = [word for name in groups if name not in default_groups for word in ("--group", name)]
        options += [word for name in needs.extras for word in ("--extra", name)]
        if table(uv, "workspace"):
            options.append("--all-packages")
        set_up = [join_words(["uv", "sync", *options])]
        if undeclared:
            set_up.append(join_words(["uv", "pip", "install", *undeclared]))
        return self._commands_with("uv", set_up, ("uv", "run"), "uv.lock", needs, {*default_groups, *groups})

    def with_poetry(self, needs: TestRequirements) -> DetectedCommands:
        """Return the way with `poetry install`, with the groups and extras that the tests need."""
        poetry = table(self.repo.pyproject, "tool", "poetry")
        declared = requirements.poetry_groups(self.repo)
        optional = {name for name in declared if table(poetry, "group", name).get("optional") is True}
        test_groups = [
            name
            for name in optional
            if normalize(name) in TEST_NAMES
            or requirements.has_test_runner(requirements.requirement_names(declared[name]))
        ]
        test_groups += [name for name in needs.groups if name not in declared]
        options = ["--with", ",".join(sorted(test_groups))] if test_groups else []
        options += [word for name in needs.extras for word in ("--extras", name)]
        undeclared = self._undeclared(needs, set(declared) - optional | set(test_groups))
        set_up = [join_words(["poetry", "install", *options])]
        if undeclared:
            set_up.append(join_words(["poetry", "run", "pip", "install", *undeclared]))
        return self._commands_with("poetry", set_up, ("poetry", "run"), "poetry.lock", needs, {*declared, *test_groups})

    def with_pdm(self, needs: TestRequirements) -> DetectedCommands:
        """Return the way with `pdm install`, with the groups that the tests need."""
        installed_groups = {
            *table(self.repo.pyproject, "tool", "pdm", "dev-dependencies"),
            *requirements.groups(self.repo),
        }
        test_groups = [name for name in [*needs.extras, *needs.groups] if name not in installed_groups]
        set_up = [join_words(["pdm", "install", *(word for name in test_groups for word in ("-G", name))])]
        return self._commands_with("pdm", set_up, ("pdm", "run"), "pdm.lock", needs, installed_groups)

    def with_pipenv(self) -> DetectedCommands:
        """Return the way with `pipenv install`, with the development packages."""
        has_lock = "Pipfile.lock" in self.repo.top_level_names
        set_up = ["pipenv sync --dev" if has_lock else "pipenv install --dev"]
        return self._commands_with("pipenv", set_up, ("pipenv", "run"), "Pipfile", TestRequirements(), set())

    def _undeclared(self, needs: TestRequirements, default_groups: set[str]) -> list[str]:
        """Return the packages that no group or extra installs, as arguments of `pip install`."""
        declared = requirements.groups(self.repo) | requirements.poetry_groups(self.repo)
        dev_dependencies = strings_in(table(self.repo.pyproject, "tool", "uv").get("dev-dependencies"))
        installed = requirements.requirement_names(
            [
                *dev_dependencies,
                *dependencies(self.repo),
                *(requirement for name in default_groups for requirement in declared.get(name, [])),
            ]
        )
        installed |= replace(needs, packages=(), files=()).package_names(self.repo)
        if requirements.has_test_runner(installed) and not any(
            requirement_name(requirement).startswith("pytest-") for requirement in needs.packages
        ):
            return []
        return [requirement for requirement in needs.packages if requirement_name(requirement) not in installed]

    def _lint_groups(self, groups: tuple[str, ...]) -> tuple[str, ...]:
        return merge_unique(
            groups, declared_names(self.linting.needs_groups if self.linting else (), requirements.groups(self.repo))
        )

    def _commands_with(
        self, name: str, set_up: list[str], runner: Words, evidence: str, needs: TestRequirements, groups: set[str]
    ) -> DetectedCommands:
        is_package = (
            bool(table(self.repo.pyproject, "build-system"))
            or table(self.repo.pyproject, "tool", "uv").get("package") is True
        )
        test = None
        if self.tests:
            test_commands = [self._with_runner(words, runner, is_package) for words in self.tests.commands]
            test = self._environment_variables() + " && ".join(test_commands)
        installed = replace(needs, groups=tuple({*needs.groups, *groups})).package_names(self.repo) | self._dev_names()
        lint = self.linting.command_for(installed, " ".join(runner) + " ") if self.linting else None
        return DetectedCommands(name, tuple(set_up), test, lint, tuple(dict.fromkeys([evidence, *self.evidence])))

    def _dev_names(self) -> set[str]:
        dev_dependencies = [*strings_in(table(self.repo.pyproject, "tool", "uv").get("dev-dependencies"))]
        for value in table(self.repo.pyproject, "tool", "pdm", "dev-dependencies").values():
            dev_dependencies += strings_in(value)
        return requirements.requirement_names(dev_dependencies)

    def _with_runner(self, words: Words, runner: Words, is_package: bool) -> str:
        if words[0] == "cd":
            return join_words(words)
        if words[:3] == PYTEST_COMMAND and is_package:
            words = ("pytest", *words[3:])
        return join_words([*runner, *words])

    # -- in a .venv of the workspace

    def with_venv(self, needs: TestRequirements, *, editable: bool = True) -> DetectedCommands:
        """Return the way with a virtual environment in the workspace, with the project and what its tests need."""
        python = choose_interpreter(self.repo)
        set_up = [f"{python} -m venv .venv"]
        arguments: list[str] = []
        if editable and is_installable(self.repo):
            arguments += ["-e", f".[{','.join(needs.extras)}]" if needs.extras else "."]
        elif self.repo.text("requirements.txt"):
            arguments += ["-r", "requirements.txt"]
        else:
            arguments += dependencies(self.repo) if "pyproject.toml" in self.repo.top_level_names else []
        arguments += [
            word for name in needs.files if name != "requirements.txt" or "-r" not in arguments for word in ("-r", name)
        ]
        groups = self._lint_groups(needs.groups)
        if groups:
            set_up.append(".venv/bin/pip install --upgrade 'pip>=25.1'")
            arguments += [word for name in groups for word in ("--group", name)]
        package_names = requirements.requirement_names(needs.packages)
        tool_requirements = [
            requirement
            for requirement in requirements.tool_requirements(self.repo)
            if requirement_name(requirement) not in package_names
        ]
        arguments += [*needs.packages, *tool_requirements]
        if arguments:
            set_up.append(join_words([".venv/bin/pip", "install", *arguments]))
        installed = replace(needs, groups=groups).package_names(self.repo) | requirements.requirement_names(
            [*dependencies(self.repo), *tool_requirements]
        )
        if self.linting and (tools := self.linting.missing_tools(installed)):
            set_up.append(join_words([".venv/bin/pip", "install", *tools]))
            installed |= requirements.requirement_names(tools)
        test = None
        if self.tests:
            commands = " && ".join(join_words(words) for words in self.tests.commands)
            test = ACTIVATE_VENV + self._environment_variables() + commands
        lint = self.linting.command_for(installed, ACTIVATE_VENV) if self.linting else None
        evidence = self.repo.first_existing("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
        return DetectedCommands(
            "python",
            tuple(set_up),
            test,
            lint,
            tuple(dict.fromkeys([*([evidence] if evidence else []), *needs.files, *self.evidence])),
        )

    def others(self, needs: TestRequirements) -> Iterator[DetectedCommands]:
        """Yield what to try if the first way fails: more of what is declared, then less."""
        extras, groups = requirements.extras(self.repo), requirements.groups(self.repo)
        wider_needs = TestRequirements(
            merge_unique(
                needs.extras, (name for name in extras if normalize(name) in (*TEST_NAMES, *DEV_NAMES, "all", "full"))
            ),
            merge_unique(needs.groups, (name for name in groups if normalize(name) in (*TEST_NAMES, *DEV_NAMES))),
            merge_unique(needs.files, requirements.find_requirements_files(self.repo)[:2]),
            needs.packages,
        )
        if wider_needs != needs:
            yield self.with_venv(wider_needs)
        if self.tests and self.tests.commands != (PYTEST_COMMAND,):
            pytest_only = _PythonProject(
                self.repo, replace(self.tests, commands=(PYTEST_COMMAND,), environment=None), self.linting
            )
            yield pytest_only.with_venv(replace(needs, packages=merge_unique(needs.packages, ["pytest"])))
        if is_installable(self.repo):
            needed_files = merge_unique(needs.files, ["requirements.txt"] if self.repo.text("requirements.txt") else [])
            yield self.with_venv(replace(needs, files=needed_files, extras=()), editable=False)

    def _environment_variables(self) -> str:
        env = self.tests.variables if self.tests else ()
        return "".join(f"{key}={shlex.quote(value)} " for key, value in env) if not self._starts_with_folder() else ""

    def _starts_with_folder(self) -> bool:
        return bool(self.tests and self.tests.commands[0][0] == "cd")
