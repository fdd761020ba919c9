"""Read what a Python project declares for its tests: extras, dependency groups and requirements files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from agent_orchestrator.config.detection.files import RepositoryFiles, requirement_name, strings_in, table
from agent_orchestrator.config.detection.python.environments import requirements_of

MAX_INCLUDED = 20
TEST_NAMES = ("test", "tests", "testing", "test-all", "all-tests", "unittest", "unit", "pytest", "qa", "ci")
DEV_NAMES = ("dev", "develop", "development", "devel", "all-dev", "dev-all")
_TEST_FILE = re.compile(r"(?:^|[-_./])(?:tests?|testing|pytest|unittest)(?:[-_./]|$)")
_DEV_FILE = re.compile(r"(?:^|[-_./])(?:dev|devel|develop|development|local|ci|all)(?:[-_./]|$)")
_OTHER_FILE = re.compile(
    r"doc|lint|build|publish|release|example|constraint|mypy|typ(?:es|ing)|min|lowest|oldest|bench|style|format"
)


def normalize(name: str) -> str:
    """Return the name of an extra or group in normalized form, for comparison."""
    return re.sub(r"[-_.]+", "-", name).lower()


def extras(repo: RepositoryFiles) -> dict[str, list[str]]:
    """Return the extras that a project declares, with their requirements as far as they can be read."""
    project = table(repo.pyproject, "project", "optional-dependencies")
    extras_by_name = {name: strings_in(value) for name, value in project.items()}
    poetry = table(repo.pyproject, "tool", "poetry", "extras")
    extras_by_name |= {name: strings_in(value) for name, value in poetry.items()}
    for name, lines in repo.ini("setup.cfg").get("options.extras_require", {}).items():
        extras_by_name.setdefault(name, [line.strip() for line in lines.splitlines() if line.strip()])
    for name, extra_requirements in _setup_py_extras(repo.text("setup.py")):
        extras_by_name.setdefault(name, extra_requirements)
    return extras_by_name


def _setup_py_extras(setup: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the extras that `setup.py` has as literals."""
    match = re.search(r"extras_require\s*=\s*\{(.{0,6000})", setup, re.DOTALL) or re.search(
        r"^\w*extras?\w*\s*=\s*\{(.{0,6000})", setup, re.DOTALL | re.MULTILINE | re.IGNORECASE
    )
    if match:
        body = match[1].split("\n}", 1)[0]
        for name, literal in re.findall(r"[\"']([\w.-]{1,60})[\"']\s*:\s*[\[(]([^\])]*)[\])]", body):
            yield name, re.findall(r"[\"']([^\"'\n]{1,200})[\"']", literal)
        for name in re.findall(r"[\"']([\w.-]{1,60})[\"']\s*:\s*[A-Za-z_]", body):
            yield name, []


def groups(repo: RepositoryFiles) -> dict[str, list[str]]:
    """Return the dependency groups that a project declares, with their requirements and those of included groups."""
    declared = table(repo.pyproject, "dependency-groups")

    def expand(name: str, depth: int) -> list[str]:
        value = declared.get(name)
        if not isinstance(value, list) or depth == 0:
            return []
        group_requirements = strings_in(value)
        included_names = [entry.get("include-group") for entry in value if isinstance(entry, dict)]
        return group_requirements + [
            text for entry in included_names if isinstance(entry, str) for text in expand(entry, depth - 1)[:200]
        ]

    return {name: expand(name, 4) for name in list(declared)[:60]}


def poetry_groups(repo: RepositoryFiles) -> dict[str, list[str]]:
    """Return Poetry's groups with the names of their packages; the old `dev-dependencies` are `dev`."""
    poetry = table(repo.pyproject, "tool", "poetry")
    packages_by_group = {name: list(table(value, "dependencies")) for name, value in table(poetry, "group").items()}
    if "dev-dependencies" in poetry:
        packages_by_group.setdefault("dev", list(table(poetry, "dev-dependencies")))
    return packages_by_group


def find_requirements_files(repo: RepositoryFiles) -> list[str]:
    """Return the requirements files for tests, the most specific first."""
    candidates = [
        name
        for name in repo.tree
        if name.count("/") < 3
        and name.endswith((".txt", ".in", ".pip"))
        and "requirement" in name
        and not _OTHER_FILE.search(name)
    ]
    tests = [name for name in candidates if _TEST_FILE.search(name)]
    dev = [name for name in candidates if name not in tests and _DEV_FILE.search(name)]
    return [path for group in (tests, dev) for path in sorted(group, key=lambda name: not name.endswith(".txt"))][:20]


def tool_requirements(repo: RepositoryFiles) -> list[str]:
    """Return the test requirements that are declared only for Poetry, PDM, uv or setuptools, in pip's syntax."""
    groups = {
        name: strings_in(value) for name, value in table(repo.pyproject, "tool", "pdm", "dev-dependencies").items()
    }
    groups["uv"] = strings_in(table(repo.pyproject, "tool", "uv").get("dev-dependencies"))
    poetry = table(repo.pyproject, "tool", "poetry")
    poetry_groups = {name: table(value, "dependencies") for name, value in table(poetry, "group").items()}
    poetry_groups["dev-dependencies"] = table(poetry, "dev-dependencies")
    groups |= {
        f"poetry {name}": [
            requirement for key, value in group.items() for requirement in _poetry_requirement(key, value)
        ]
        for name, group in poetry_groups.items()
    }
    test_requirements = [
        requirement
        for name, group in groups.items()
        if normalize(name.removeprefix("poetry ")) in TEST_NAMES or has_test_runner(requirement_names(group))
        for requirement in group
    ]
    return list(dict.fromkeys([*test_requirements, *_tests_require(repo)]))


def _tests_require(repo: RepositoryFiles) -> list[str]:
    """Return the requirements in `tests_require`; in `setup.py` only those written as literals."""
    lines = repo.ini("setup.cfg").get("options", {}).get("tests_require", "").splitlines()
    match = re.search(r"\btests?_requires?\w*\s*=\s*[\[(]([^\])]{0,4000})", repo.text("setup.py"), re.IGNORECASE)
    lines += re.findall(r"[\"']([^\"'\n]{1,200})[\"']", match[1]) if match else []
    return list(requirements_of(lines))


def _poetry_requirement(name: str, value: object) -> Iterator[str]:
    """Yield a dependency in Poetry's syntax as a requirement, or nothing if it is a path or a repository."""
    if isinstance(value, list):
        value = value[0] if value else None
    options = value if isinstance(value, dict) else {"version": value}
    version = options.get("version")
    if not isinstance(version, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or "||" in version:
        return
    extras = ",".join(strings_in(options.get("extras")))
    bounds = ",".join(bound for part in version.split(",") for bound in _version_specifiers(part.strip()))
    marker = options.get("markers")
    yield name + (f"[{extras}]" if extras else "") + bounds + (f"; {marker}" if isinstance(marker, str) else "")


def _version_specifiers(version: str) -> Iterator[str]:
    """Yield pip's version specifiers for `^1.2`, `~1.2`, `1.2`, `*` and comparisons."""
    match = re.fullmatch(r"([\^~]?)\s*(\d+(?:\.\d+)*)", version)
    if match is None:
        if re.match(r"[<>=!~]", version):
            yield version.replace(" ", "")
        elif version.endswith(".*"):
            yield f"=={version}"
        return
    parts = [int(part) for part in match[2].split(".")][:6]
    if not match[1]:
        yield f"=={match[2]}"
        return
    significant = (
        next((index for index, part in enumerate(parts) if part), len(parts) - 1)
        if match[1] == "^"
        else min(1, len(parts) - 1)
    )
    yield f">={match[2]}"
    yield "<" + ".".join(map(str, [*parts[:significant], parts[significant] + 1]))


def names_in_file(repo: RepositoryFiles, name: str) -> set[str]:
    """Return the names of the packages in a requirements file and the files that it includes."""
    packages: set[str] = set()
    queue = [name]
    for path in queue:
        for line in repo.text(path).splitlines()[:500]:
            if match := re.match(r"\s*(?:-r|--requirement)[\s=]*([^\s#]+)", line):
                included_path = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
                if included_path not in queue and len(queue) < MAX_INCLUDED:
                    queue.append(included_path)
            elif package := requirement_name(line):
                packages.add(package)
    return packages


def requirement_names(requirements: Iterable[str]) -> set[str]:
    """Return the names of requirements."""
    return {name for requirement in requirements if (name := requirement_name(requirement))}


def has_test_runner(names: set[str]) -> bool:
    """Return whether a test runner is among these packages."""
    return bool(names & {"pytest", "nose2", "ward", "twisted", "zope-testrunner", "stestr"}) or any(
        package.startswith("pytest-") for package in names
    )
