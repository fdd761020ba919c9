"""What a Python project declares for its tests: extras, dependency groups and requirements files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agent_orchestrator.config.ecosystems.files import Repository, requirement_name, table, texts

TEST_NAMES = ("test", "tests", "testing", "test-all", "all-tests", "unittest", "unit", "pytest", "qa", "ci")
DEV_NAMES = ("dev", "develop", "development", "devel", "all-dev", "dev-all")
_FILES = (
    *(
        "requirements-test.txt",
        "requirements-tests.txt",
        "requirements-testing.txt",
        "requirements_test.txt",
        "requirements_tests.txt",
    ),
    *(
        "requirements.test.txt",
        "test-requirements.txt",
        "test_requirements.txt",
        "tests-requirements.txt",
        "requirements-ci.txt",
    ),
    *(
        "requirements/test.txt",
        "requirements/tests.txt",
        "requirements/testing.txt",
        "requirements/test-ci.txt",
        "requirements/ci.txt",
    ),
    *(
        "requirements/requirements-test.txt",
        "requirements/requirements-testing.txt",
        "requirements/requirements-tests.txt",
    ),
    *("tests/requirements.txt", "test/requirements.txt", "tests/requirements-test.txt", "tests/requirements/py3.txt"),
    *(
        "requirements-dev.txt",
        "requirements_dev.txt",
        "requirements.dev.txt",
        "dev-requirements.txt",
        "dev_requirements.txt",
    ),
    *("requirements-develop.txt", "requirements/dev.txt", "requirements/develop.txt", "requirements/development.txt"),
    *(
        "requirements/local.txt",
        "requirements/requirements-dev.txt",
        "requirements-devel.txt",
        "etc/requirements-dev.txt",
    ),
)


def normal(name: str) -> str:
    """Return the name of an extra or group as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def extras(repo: Repository) -> dict[str, list[str]]:
    """Return the extras that a project declares, with their requirements as far as they can be read."""
    project = table(repo.pyproject, "project", "optional-dependencies")
    found = {name: texts(value) for name, value in project.items()}
    poetry = table(repo.pyproject, "tool", "poetry", "extras")
    found |= {name: texts(value) for name, value in poetry.items()}
    for name, lines in repo.ini("setup.cfg").get("options.extras_require", {}).items():
        found.setdefault(name, [line.strip() for line in lines.splitlines() if line.strip()])
    for name, listed in _called_extras(repo.text("setup.py")):
        found.setdefault(name, listed)
    return found


def _called_extras(setup: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the extras that `setup.py` writes as literals."""
    match = re.search(r"extras_require\s*=\s*\{(.{0,6000})", setup, re.DOTALL) or re.search(
        r"^\w*extras?\w*\s*=\s*\{(.{0,6000})", setup, re.DOTALL | re.MULTILINE | re.IGNORECASE
    )
    if match:
        body = match[1].split("\n}", 1)[0]
        for name, listed in re.findall(r"[\"']([\w.-]{1,60})[\"']\s*:\s*[\[(]([^\])]*)[\])]", body):
            yield name, re.findall(r"[\"']([^\"'\n]{1,200})[\"']", listed)
        for name in re.findall(r"[\"']([\w.-]{1,60})[\"']\s*:\s*[A-Za-z_]", body):
            yield name, []


def groups(repo: Repository) -> dict[str, list[str]]:
    """Return the dependency groups that a project declares, with their requirements and those of the groups that they include."""
    declared = table(repo.pyproject, "dependency-groups")

    def expand(name: str, left: int) -> list[str]:
        value = declared.get(name)
        if not isinstance(value, list) or left == 0:
            return []
        found = texts(value)
        included = [one.get("include-group") for one in value if isinstance(one, dict)]
        return found + [text for one in included if isinstance(one, str) for text in expand(one, left - 1)[:200]]

    return {name: expand(name, 4) for name in list(declared)[:60]}


def poetry_groups(repo: Repository) -> dict[str, list[str]]:
    """Return Poetry's groups with the names of their packages; the old `dev-dependencies` as `dev`."""
    poetry = table(repo.pyproject, "tool", "poetry")
    found = {name: list(table(value, "dependencies")) for name, value in table(poetry, "group").items()}
    if "dev-dependencies" in poetry:
        found.setdefault("dev", list(table(poetry, "dev-dependencies")))
    return found


def files(repo: Repository) -> list[str]:
    """Return the requirements files for tests, the most particular first."""
    return [name for name in _FILES if ("/" in name or name in repo.names) and repo.text(name)]


def names_in_file(repo: Repository, name: str, left: int = 4) -> set[str]:
    """Return the names of the packages in a requirements file and those that it includes."""
    found: set[str] = set()
    folder = name.rpartition("/")[0]
    for line in repo.text(name).splitlines()[:500]:
        if match := re.match(r"\s*(?:-r|--requirement)[\s=]*(\S+)", line):
            other = match[1] if not folder else f"{folder}/{match[1]}"
            if left and ".." not in other:
                found |= names_in_file(repo, other, left - 1)
            elif left and match[1].startswith("../") and "/" not in folder:
                found |= names_in_file(repo, match[1].removeprefix("../"), left - 1)
        elif one := requirement_name(line):
            found.add(one)
    return found


def names(requirements: Iterable[str]) -> set[str]:
    """Return the names of requirements."""
    return {name for one in requirements if (name := requirement_name(one))}


def runs_tests(found: set[str]) -> bool:
    """Return whether a test runner is among these packages."""
    return bool(found & {"pytest", "nose2", "ward", "twisted", "zope-testrunner", "stestr"}) or any(
        one.startswith("pytest-") for one in found
    )
