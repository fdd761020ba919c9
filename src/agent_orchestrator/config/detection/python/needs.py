"""Find what the tests of a Python project need besides the project itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.config.detection.ci_files import CiJob
from agent_orchestrator.config.detection.commands import without_runner
from agent_orchestrator.config.detection.files import RepositoryFiles, requirement_name, strings_in, table
from agent_orchestrator.config.detection.python import requirements
from agent_orchestrator.config.detection.python.environments import parse_install
from agent_orchestrator.config.detection.python.requirements import DEV_NAMES, TEST_NAMES, normalize
from agent_orchestrator.config.detection.python.tests import (
    TestCommands,
    imported_test_packages,
    test_files,
    used_pytest_plugins,
)


@dataclass(frozen=True, slots=True)
class TestRequirements:
    """What is installed for the tests besides the project itself."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def package_names(self, repo: RepositoryFiles) -> set[str]:
        """Return the names of the packages, as far as they can be read."""
        package_names = requirements.requirement_names(self.packages)
        declared, groups = requirements.extras(repo), requirements.groups(repo) | requirements.poetry_groups(repo)
        for name in self.extras:
            package_names |= requirements.requirement_names(declared.get(name, []))
        for name in self.groups:
            package_names |= requirements.requirement_names(groups.get(name, []))
        for name in self.files:
            package_names |= requirements.names_in_file(repo, name)
        return package_names


def find_needs(repo: RepositoryFiles, tests: TestCommands | None, jobs: Sequence[CiJob]) -> TestRequirements:
    """Return what the tests need, from the environment that runs them, from CI, and from what is declared under the usual names."""
    extras, groups = requirements.extras(repo), requirements.groups(repo)
    env = tests.environment if tests else None
    needs = TestRequirements(
        declared_names(env.extras if env else (), extras),
        declared_names(env.groups if env else (), groups),
        tuple(name for name in (env.files if env else ()) if repo.text(name)),
        tuple(env.packages if env else ()),
    )
    if env is None or (tests and tests.is_pytest and not requirements.has_test_runner(needs.package_names(repo))):
        needs = _with_job(repo, needs, tests, jobs)
    test_extras = [name for name in extras if normalize(name) in TEST_NAMES]
    test_groups = [name for name in groups if normalize(name) in TEST_NAMES]
    needs = replace(
        needs, extras=merge_unique(needs.extras, test_extras), groups=merge_unique(needs.groups, test_groups)
    )
    tool_names = requirements.requirement_names(requirements.tool_requirements(repo))
    if (tests is None or tests.is_pytest) and not requirements.has_test_runner(needs.package_names(repo) | tool_names):
        needs = _with_runner(repo, needs, extras, groups)
    return _with_pytest(repo, needs, tests)


def declared_names(requested: Iterable[str], declared: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted names as they are declared; `{a,b}` and unknown ones are left out."""
    by_name = {normalize(name): name for name in declared}
    return tuple(
        dict.fromkeys(by_name[normalize(wanted_name)] for wanted_name in requested if normalize(wanted_name) in by_name)
    )


def merge_unique(*lists: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of several lists, each once."""
    return tuple(dict.fromkeys(text for texts_of_list in lists for text in texts_of_list))


def _with_job(
    repo: RepositoryFiles, needs: TestRequirements, tests: TestCommands | None, jobs: Sequence[CiJob]
) -> TestRequirements:
    """Add what the CI job that runs the tests installs."""
    job = (
        tests.job
        if tests and tests.job
        else next(
            (
                job
                for job in jobs
                if any(without_runner(words)[:1] in (("pytest",), ("coverage",)) for words in job.commands)
            ),
            None,
        )
    )
    for words in job.commands if job else ():
        if (installed := parse_install(words)) is None:
            continue
        packages = [
            package
            for package in installed.packages
            if requirement_name(package) not in _TOOLS and job and not job.has_services
        ]
        needs = TestRequirements(
            merge_unique(needs.extras, declared_names(installed.extras, requirements.extras(repo))),
            merge_unique(needs.groups, declared_names(installed.groups, requirements.groups(repo))),
            merge_unique(
                needs.files, (name.removeprefix("./") for name in installed.files if repo.text(name.removeprefix("./")))
            ),
            merge_unique(needs.packages, packages),
        )
    return needs


_TOOLS = frozenset(
    [
        "pip",
        "setuptools",
        "wheel",
        "tox",
        "nox",
        "uv",
        "poetry",
        "pdm",
        "hatch",
        "build",
        "twine",
        "virtualenv",
        "tox-gh-actions",
        "tox-uv",
        "tox-py",
        "coveralls",
        "codecov",
        "pre-commit",
        "pipenv",
        "flit",
        "coverage",
    ]
)


def _with_runner(
    repo: RepositoryFiles, needs: TestRequirements, extras: dict[str, list[str]], groups: dict[str, list[str]]
) -> TestRequirements:
    """Add the first requirements file, extra or group that declares a test runner."""
    for name in [*requirements.find_requirements_files(repo), "requirements.txt"]:
        if requirements.has_test_runner(requirements.names_in_file(repo, name)):
            return replace(needs, files=merge_unique(needs.files, [name]))
    order = (*TEST_NAMES, *DEV_NAMES)
    for name in sorted(
        groups, key=lambda candidate: order.index(normalize(candidate)) if normalize(candidate) in order else len(order)
    ):
        if requirements.has_test_runner(requirements.requirement_names(groups[name])):
            return replace(needs, groups=merge_unique(needs.groups, [name]))
    for name in sorted(
        extras, key=lambda candidate: order.index(normalize(candidate)) if normalize(candidate) in order else len(order)
    ):
        if requirements.has_test_runner(requirements.requirement_names(extras[name])):
            return replace(needs, extras=merge_unique(needs.extras, [name]))
    return needs


def _with_pytest(repo: RepositoryFiles, needs: TestRequirements, tests: TestCommands | None) -> TestRequirements:
    """Add the runner, its plugins and the packages that test files import, if they are not declared."""
    installed = (
        needs.package_names(repo)
        | requirements.requirement_names(dependencies(repo))
        | requirements.requirement_names(requirements.tool_requirements(repo))
    )
    if not is_installable(repo):
        installed |= requirements.names_in_file(repo, "requirements.txt")
    missing = list[str]()
    if tests is None or tests.is_pytest:
        missing += [
            name
            for name in ["pytest", *used_pytest_plugins(repo, tests.commands if tests else ())]
            if normalize(name) not in installed
        ]
    if tests is not None:
        missing += [
            name for name in sorted(imported_test_packages(repo, test_files(repo))) if normalize(name) not in installed
        ]
    if tests is None:
        return needs
    if "manage.py" in repo.top_level_names and "django" not in installed and not installed and "pytest" not in missing:
        missing.append("Django")
    return replace(needs, packages=merge_unique(needs.packages, missing))


def dependencies(repo: RepositoryFiles) -> list[str]:
    """Return what the project itself depends on, as far as `pyproject.toml` says."""
    return [
        *strings_in(table(repo.pyproject, "project").get("dependencies")),
        *table(repo.pyproject, "tool", "poetry", "dependencies"),
    ]


def is_installable(repo: RepositoryFiles) -> bool:
    """Return whether pip can install the project."""
    if table(repo.pyproject, "tool", "poetry").get("package-mode") is False:
        return False
    return bool(
        "setup.py" in repo.top_level_names
        or table(repo.pyproject, "build-system")
        or table(repo.pyproject, "project")
        or repo.ini("setup.cfg").get("metadata")
    )
